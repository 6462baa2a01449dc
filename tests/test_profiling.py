"""Traces: taken, read back, and compared with what the timeline claims."""
import importlib
import pathlib

import jax
import jax.numpy as jnp
import pytest
from engine_cases import engine, job

from zkjax import profiling, xplane
from zkjax.engine import export
from zkjax.engine.gaps import analyze
from zkjax.engine.timeline import Event, with_measured
from zkjax.profiling import Interval, Trace


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
  """Two partitions of the smallest circuit, one after the other, after a run that compiles."""
  folder = tmp_path_factory.mktemp("trace")
  with engine(max_in_flight=1) as made:
    made.prove(job())
    made.timeline.clear()
    with profiling.capture(folder):
      made.prove(job(2))
    return made.timeline.events(), profiling.read(folder)


def test_stages_come_back_with_their_partitions(traced):
  _, trace = traced
  stages = set(importlib.import_module("zkjax.groth16.prove").STAGES)
  for partition in (0, 1):
    assert {stage.name for stage in trace.stages if stage.partition == (1, partition, 0)} == stages
  assert sorted(dispatch.partition[:2] for dispatch in trace.dispatches) == [(1, 0), (1, 1)]
  assert "quotient" in trace.kernel_seconds() and not trace.on_gpu


def test_the_trace_is_on_the_clock_of_the_timeline(traced):
  events, trace = traced
  assert all(events[0].time_ns < stage.start_ns < stage.end_ns < events[-1].time_ns for stage in trace.stages)


def test_claimed_and_measured_times_agree(traced):
  events, trace = traced
  comparison = profiling.compare(events, trace)
  assert sorted((p.job, p.partition, p.attempt) for p in comparison.partitions) == [(1, 0, 0), (1, 1, 0)]
  for compared in comparison.partitions:
    # the profiler's marks are just outside the timeline's, so that only rounding could make its interval the shorter one
    assert 0 < compared.claimed_seconds < compared.measured_seconds + 1e-6 and compared.percent > 0
    assert 0 < compared.kernel_seconds <= compared.measured_seconds
  exact = analyze(with_measured(events, comparison.measured()))
  assert exact.exact and not analyze(events).exact


def test_a_dispatch_is_followed_by_its_first_kernel(traced):
  delays = traced[1].dispatch_delays()
  assert set(delays) == {(1, 0), (1, 1)} and all(0 <= delay < 60 for delay in delays.values())


def test_kernels_between_two_partitions_are_not_attributed():
  stages = [Interval("msm_a", 0, 100, "t1", (0, 0, 0)), Interval("msm_a", 50, 200, "t2", (0, 1, 0))]
  kernels = [Interval("k", 10, 20, "x"), Interval("k", 60, 70, "x"), Interval("k", 80, 90, "t2"), Interval("k", 300, 310, "x")]
  events = [Event(0, "DEVICE_START", 0, 0, 0, 0), Event(110, "DEVICE_END", 0, 0, 0, 0)]
  comparison = profiling.compare(events, Trace(stages, [], kernels, False))
  (first,) = comparison.partitions
  assert first.kernel_seconds == pytest.approx(10e-9) and comparison.unattributed_seconds == pytest.approx(20e-9)
  assert first.percent == comparison.percent == pytest.approx(110)


def test_on_a_gpu_the_intervals_are_those_of_the_kernels():
  stages = [Interval("msm_a", 0, 100, "t1", (0, 0, 0))]
  kernels = [Interval("k", 10, 20, "Stream", (0, 0, 0)), Interval("k", 60, 70, "Stream", (0, 0, 0)), Interval("k", 80, 90, "Stream")]
  events = [Event(0, "DEVICE_START", 0, 0, 0, 0), Event(90, "DEVICE_END", 0, 0, 0, 0)]
  comparison = profiling.compare(events, Trace(stages, [], kernels, True))
  (compared,) = comparison.partitions
  assert (compared.start_ns, compared.end_ns) == (10, 70) and compared.percent == pytest.approx(150)
  assert comparison.unattributed_seconds == pytest.approx(10e-9)


def test_shares_are_of_unions():
  trace = Trace([], [], [Interval("k", 0, 20, "x"), Interval("k", 10, 40, "y"), Interval("k", 90, 200, "x")], True)
  assert trace.busy_share(0, 100) == pytest.approx(0.5) and trace.busy_share(5, 5) is None


def test_a_folder_without_a_trace_is_refused(tmp_path):
  with pytest.raises(ValueError, match="no trace"):
    profiling.read(tmp_path)
  with jax.profiler.trace(str(tmp_path)):
    jnp.arange(3).block_until_ready()
  with pytest.raises(ValueError, match="capture"):
    profiling.read(tmp_path)


# The recorded traces

PROFILES = pathlib.Path(__file__).resolve().parents[1] / "profiles"


def recorded(name):
  return export.from_json_lines((PROFILES / name / "events.jsonl").read_text()), profiling.read(PROFILES / name)


def test_every_kernel_of_the_recorded_gpu_trace_belongs_to_a_partition():
  """Two proofs of 2^18 on an H200, the second queued behind the first."""
  events, trace = recorded("h200_chain18")
  comparison = profiling.compare(events, trace)
  first, second = sorted(comparison.partitions, key=lambda p: p.start_ns)
  assert trace.on_gpu and len(trace.kernels) > 100 and comparison.unattributed_seconds == 0
  assert first.end_ns <= second.start_ns and all(0.01 < p.kernel_seconds <= p.measured_seconds < 0.02 for p in (first, second))
  assert all(99 < p.percent < 110 for p in (first, second))
  exact = analyze(with_measured(events, comparison.measured()))
  assert exact.exact and trace.busy_share(second.start_ns, second.end_ns) > 0.99
  first_delay, second_delay = (trace.dispatch_delays()[0, k] for k in (0, 1))
  assert 0 < first_delay < 0.005 < second_delay                # the second waits for the first


def test_the_recorded_cpu_trace_holds_two_partitions():
  events, trace = recorded("cpu_mul")
  stages = importlib.import_module("zkjax.groth16.prove").STAGES
  for key in ((0, 0, 0), (0, 1, 0)):
    assert sorted(stage.name for stage in trace.stages if stage.partition == key) == sorted(stages)
  assert abs(profiling.compare(events, trace).percent - 100) < 2 and not trace.on_gpu


def test_recorded_traces_are_small_and_name_no_files():
  for file in PROFILES.rglob("*.xplane.pb"):
    data = file.read_bytes()
    assert len(data) < 200_000 and b".py" not in data and not xplane.scopes(data), file
