"""The stored baseline: no stage launches or adds more than it did."""
import json

import jax
import pytest
import stage_counts

from zkjax.ops.gpu import support

STORED = json.loads(stage_counts.PATH.read_text())


@pytest.fixture
def platform(monkeypatch):
  """Chooses "cpu" or "gpu". What was traced for one of them must not be taken for the other."""
  def choose(kind):
    jax.clear_caches()
    monkeypatch.setattr(support, "usable", lambda: kind == "gpu")
  yield choose
  jax.clear_caches()


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_no_stage_costs_more_than_it_did(kind, platform):
  platform(kind)
  counts = getattr(stage_counts, kind)()
  assert counts.keys() == STORED[kind].keys()
  more = {name: (STORED[kind][name], count) for name, count in counts.items() if count > STORED[kind][name]}
  assert not more, f"(stored, now): {more}; where that is meant, python tests/stage_counts.py --update stores it"


def test_the_baseline_notices_a_stage_that_launches_more(platform, monkeypatch):
  platform("gpu")
  before, accumulate = stage_counts.gpu(), stage_counts.msm.kernels.accumulate
  monkeypatch.setattr(stage_counts.msm.kernels, "accumulate", lambda *arguments: [accumulate(*arguments) for _ in range(2)][-1])
  jax.clear_caches()
  after = stage_counts.gpu()
  assert after["msm_h"] == before["msm_h"] + 1 and after["matvec"] == before["matvec"]
