"""The stored baseline: no stage launches or adds more than it did."""
import json

import pytest
import stage_counts

from zkjax.ops.gpu import support

STORED = json.loads(stage_counts.PATH.read_text())


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_no_stage_costs_more_than_it_did(kind, monkeypatch):
  monkeypatch.setattr(support, "usable", lambda: kind == "gpu")
  counts = getattr(stage_counts, kind)()
  assert counts.keys() == STORED[kind].keys()
  more = {name: (STORED[kind][name], count) for name, count in counts.items() if count > STORED[kind][name]}
  assert not more, f"(stored, now): {more}; where that is meant, python tests/stage_counts.py --update stores it"


def test_the_baseline_notices_a_stage_that_launches_more(monkeypatch):
  monkeypatch.setattr(support, "usable", lambda: True)
  before, accumulate = stage_counts.gpu(), stage_counts.msm.kernels.accumulate
  monkeypatch.setattr(stage_counts.msm.kernels, "accumulate", lambda *arguments: [accumulate(*arguments) for _ in range(2)][-1])
  stage_counts.fixed._sums.clear_cache()
  stage_counts.fixed._sums_and_schedule.clear_cache()
  stage_counts.fixed._sum_and_made.clear_cache()
  after = stage_counts.gpu()
  for program in (stage_counts.fixed._sums, stage_counts.fixed._sums_and_schedule, stage_counts.fixed._sum_and_made):
    program.clear_cache()
  assert after["msm_h"] == before["msm_h"] + 1 and after["matvec"] == before["matvec"]
