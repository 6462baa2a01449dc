"""Gaps, phases and parts on timelines made by hand, where the right answer can be counted."""
import pytest

from zkjax.engine.gaps import PARTS, analyze, common, merged, partition_times, without
from zkjax.engine.report import report
from zkjax.engine.timeline import Event


def partition(job, index, *, put, pickup, start, end, device=0, attempt=0, extra=()):
  where = (job, index, attempt)
  rows = [(put, "QUEUE_PUT", None), (pickup, "DEVICE_PICKUP", device), (start, "DEVICE_START", device), (end, "DEVICE_END", device)]
  return [Event(t, name, *where, d) for t, name, d in [*rows, *extra]]


def run(*partitions):
  return analyze(sorted(sum(partitions, []), key=lambda event: event.time_ns))


def gaps(analysis, device=0):
  return [tuple(gap) for gap in analysis.devices[device].gaps]


# Sets

def test_unions_intersections_and_differences():
  assert merged([(5, 7), (1, 3), (2, 4), (9, 9)]) == [(1, 4), (5, 7)]
  assert common([(0, 10)], [(2, 3), (5, 20)]) == [(2, 3), (5, 10)]
  assert without([(0, 10), (20, 30)], [(2, 3), (9, 25)]) == [(0, 2), (3, 9), (25, 30)]
  assert without([(0, 10)], []) == [(0, 10)] and not without([(1, 2)], [(0, 3)])


# Busy

def test_busy_is_a_union_and_never_a_sum():
  analysis = run(partition(0, 0, put=0, pickup=0, start=0, end=60), partition(0, 1, put=0, pickup=0, start=40, end=100))
  assert analysis.devices[0].busy == [(0, 100)] and analysis.devices[0].busy_share == 1.0 and not gaps(analysis)


def test_waiting_for_a_place_is_not_busy():
  """Two partitions that wait for one another leave the device idle, whatever their threads do."""
  wait = [(10, "LOCK_WAIT_START", 0), (90, "LOCK_WAIT_END", 0)]
  analysis = run(partition(0, 0, put=0, pickup=5, start=90, end=100, extra=wait))
  assert analysis.devices[0].busy_share == pytest.approx(0.1)


def test_compiling_inside_a_device_interval_is_cold_start():
  compiling = [(20, "COMPILE_START", 0), (80, "COMPILE_END", 0)]
  analysis = run(partition(0, 0, put=0, pickup=0, start=10, end=100, extra=compiling))
  assert analysis.devices[0].busy == [(10, 20), (80, 100)]
  assert gaps(analysis) == [(0, 10, "cold_start", "backlog"), (20, 80, "cold_start", "starved")]


def test_compiling_for_one_partition_leaves_the_work_of_another():
  compiling = [(20, "COMPILE_START", 0), (80, "COMPILE_END", 0)]
  analysis = run(partition(0, 0, put=0, pickup=0, start=0, end=100, extra=compiling), partition(0, 1, put=0, pickup=0, start=0, end=50))
  assert analysis.devices[0].busy == [(0, 50), (80, 100)]


# Gaps

def test_a_gap_between_jobs_is_a_cross_job_stall_and_one_within_a_job_is_overhead():
  analysis = run(partition(0, 0, put=0, pickup=0, start=0, end=10), partition(0, 1, put=5, pickup=12, start=20, end=30),
                 partition(1, 0, put=45, pickup=47, start=50, end=60))
  assert gaps(analysis) == [(10, 20, "partition", "backlog"), (30, 45, "cross_job", "starved"), (45, 50, "cross_job", "backlog")]
  assert analysis.gap_share["cross_job"] == {"backlog": pytest.approx(5 / 60), "starved": pytest.approx(15 / 60)}


def test_before_the_first_work_everything_is_cold_start():
  synthesis = [Event(0, "SYNTH_START", 0, 0), Event(30, "SYNTH_END", 0, 0)]
  analysis = run(synthesis, partition(0, 0, put=30, pickup=30, start=40, end=50))
  assert gaps(analysis) == [(0, 30, "cold_start", "starved"), (30, 40, "cold_start", "backlog")]


def test_loading_a_key_between_jobs_is_cold_start():
  load = [(12, "KEY_LOAD_START", 0), (18, "KEY_LOAD_END", 0)]
  analysis = run(partition(0, 0, put=0, pickup=0, start=0, end=10), partition(1, 0, put=10, pickup=11, start=20, end=30, extra=load))
  kinds = {(start, end): kind for start, end, kind, _ in gaps(analysis)}
  assert kinds == {(10, 12): "cross_job", (12, 18): "cold_start", (18, 20): "cross_job"}


def test_a_device_that_ends_early_has_a_tail():
  analysis = run(partition(0, 0, put=0, pickup=0, start=0, end=10), partition(0, 1, put=0, pickup=0, start=0, end=50, device=1))
  assert gaps(analysis) == [(10, 50, "tail", "starved")] and not gaps(analysis, 1)


def test_what_another_device_took_is_no_backlog():
  analysis = run(partition(0, 0, put=0, pickup=0, start=0, end=10), partition(0, 1, put=0, pickup=0, start=40, end=50, device=1),
                 partition(0, 2, put=40, pickup=40, start=40, end=50))
  assert gaps(analysis) == [(10, 40, "partition", "starved")]


def test_shares_of_gaps_and_busy_add_up_to_the_run():
  analysis = run(*(partition(k // 3, k % 3, put=40 * k, pickup=40 * k + 7, start=40 * k + 9, end=40 * k + 40 - k) for k in range(9)))
  gap_share = sum(share for causes in analysis.gap_share.values() for share in causes.values())
  assert gap_share + analysis.devices[0].busy_share == pytest.approx(1)


# Phases

def test_fill_steady_and_drain_are_apart():
  analysis = run(*(partition(0, k, put=0, pickup=100 * k, start=100 + 100 * k, end=200 + 100 * k) for k in range(5)))
  assert analysis.phases == {"fill": (0, 200), "steady": (200, 400), "drain": (400, 600)}
  assert analysis.busy_share == {"fill": 0.5, "steady": 1.0, "drain": 1.0}
  assert analysis.steady_finished == 2 and analysis.steady_seconds_per_proof == pytest.approx(100e-9)


def test_one_partition_has_no_steady_state():
  analysis = run(partition(0, 0, put=0, pickup=0, start=10, end=20))
  assert analysis.busy_share["steady"] is None and analysis.steady_seconds_per_proof is None


def test_nothing_gives_an_empty_analysis():
  assert not analyze([]).devices and report(analyze([])) == "no partition reached a device\n"


# Parts

def whole(job=0, index=0):
  names = ["SUBMIT", "ADMIT", "SYNTH_START", "SYNTH_END", "QUEUE_PUT", "DEVICE_PICKUP", "TRANSFER_START", "TRANSFER_END", "LOCK_WAIT_START",
           "LOCK_WAIT_END", "DISPATCH_START", "DEVICE_START", "STAGE_START", "DISPATCH_END", "STAGE_END", "DEVICE_END", "FINISH_START",
           "FINISH_END", "SERIALIZE_START", "SERIALIZE_END", "VERIFY_START", "VERIFY_END"]
  untimed = ("QUEUE_PUT", "TRANSFER_START", "LOCK_WAIT_START", "DISPATCH_START", "SERIALIZE_START")   # right behind what comes before
  events, at = [], 0
  for name in names:
    at += 0 if name in untimed else 10**9
    events.append(Event(at, name, job, index, 0, 0, 1, "msm_h" if "STAGE" in name else None))
  return events


def test_the_parts_of_a_partition_are_its_wall_time():
  (times,) = partition_times(whole())
  assert list(times.parts) == list(PARTS)
  assert times.wall_seconds == 16 and times.unexplained_seconds == 0 and times.stages == {"msm_h": 2}
  assert times.parts == {**dict.fromkeys(PARTS, 1.0), "key load": 0.0, "device wait": 0.0, "device": 4.0}


def test_unexplained_time_is_told():
  late = ("SERIALIZE_START", "SERIALIZE_END", "VERIFY_START", "VERIFY_END")
  events = [event._replace(time_ns=event.time_ns + 10**9 * (event.name in late)) for event in whole()]
  (times,) = partition_times(events)
  assert times.unexplained_seconds == 1 and analyze(events).parts_vs_wall_percent == pytest.approx(100 * 16 / 17)


def test_waiting_of_the_device_is_not_dispatch():
  """As on a device that works behind its host: the call has returned before the device begins."""
  times = {"DISPATCH_START": 0, "DISPATCH_END": 2, "DEVICE_START": 7, "DEVICE_END": 9}
  (found,) = partition_times([Event(t * 10**9, name, 0, 0, 0, 0) for name, t in times.items()])
  assert (found.parts["dispatch"], found.parts["device wait"], found.parts["device"]) == (2, 5, 2)


def test_attempts_are_told_apart():
  again = [event._replace(attempt=1, time_ns=event.time_ns + 10**11) for event in whole()]
  assert [(times.partition, times.attempt) for times in partition_times(whole() + again)] == [(0, 0), (0, 1)]


@pytest.mark.parametrize("mode,word", [("throughput", "overlap is real"), ("attribution", "overlap is not")])
def test_the_report_says_what_was_measured_and_how(mode, word):
  text = report(analyze(whole()), mode, dropped=3)
  assert word in text and "estimated on the host" in text and "3 events" in text
  for line in ("fill", "steady", "drain", "cold start", "cross-job stall", "per-partition overhead", "queue wait", "msm_h", "unexplained"):
    assert any(row.startswith(line) for row in text.splitlines()), line
  assert "measured by the profiler" in report(analyze([event._replace(exact=True) for event in whole()]))
