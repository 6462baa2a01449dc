"""Why a device was idle, and where the time of every partition went: pure functions of a list of events.

Busy time is the union of the intervals in which partitions were on the device, never a sum, and without the time that such an interval
spent compiling. Without a trace an interval is that of the partition's stages as host threads see them: on the CPU backend it holds what
their threads wait for the interpreter while others run Python.

Every idle interval up to the device's last work has one class

  cold_start   before the first work of the device, or while a program is compiled or a key loaded
  cross_job    between partitions of different jobs
  partition    between partitions of one job

and what follows its last work while another device is still busy is `tail`. An interval is cut where its cause changes:

  backlog      a partition was in the queue or on its way to the device: the engine is at fault
  starved      there was none: synthesis is

The run has three phases, never averaged: fill until the first partition has left a device, drain from the moment the last one was taken
from the queue, steady between them.
"""
import dataclasses
from typing import NamedTuple

from zkjax.engine.timeline import spans

KINDS, CAUSES, PHASES = ("cold_start", "cross_job", "partition", "tail"), ("backlog", "starved"), ("fill", "steady", "drain")
PARTS = ("admission wait", "synthesis wait", "synthesis", "queue wait", "key load", "transfer", "slot wait", "dispatch", "device wait",
         "device", "finish wait", "finish", "serialize", "verify wait", "verify")


class Gap(NamedTuple):
  """An idle interval of one class and one cause."""
  start_ns: int
  end_ns: int
  kind: str
  cause: str


@dataclasses.dataclass(frozen=True)
class DeviceUse:
  """One device: disjoint busy intervals in order, its gaps, and the share of the run in which it was busy."""
  busy: list
  gaps: list
  busy_share: float


@dataclasses.dataclass(frozen=True)
class PartitionTimes:
  """Seconds of one attempt at a partition: `parts` by the names of PARTS, `stages` of the device by their names, and the wall time.

  `stages` overlap unless the run was made to attribute. The parts follow one another, so their sum is the wall time, except for what
  `unexplained_seconds` holds.
  """
  job: int
  partition: int
  attempt: int
  device: int
  wall_seconds: float
  parts: dict
  stages: dict

  @property
  def unexplained_seconds(self):
    """Wall time in none of the parts."""
    return self.wall_seconds - sum(self.parts.values())


@dataclasses.dataclass(frozen=True)
class Analysis:
  """What `analyze` found. phases: {name: (start_ns, end_ns)}; busy_share: {phase: share}, None where the phase has no length."""
  devices: dict
  phases: dict
  busy_share: dict
  gap_share: dict                             # {kind: {cause: share of the devices' time in the run}}
  partitions: list
  seconds: float
  finished: int                               # attempts that left a device
  steady_finished: int
  exact: bool                                 # every device interval comes from a trace of the profiler

  def as_dict(self):
    """The analysis as what JSON can hold; without the intervals."""
    return {"seconds": self.seconds, "device_busy_share": self.busy_share, "gaps": self.gap_share,
            "device_time": "measured" if self.exact else "estimated", "finished": self.finished,
            "steady_seconds_per_proof": self.steady_seconds_per_proof, "parts_vs_wall_percent": self.parts_vs_wall_percent,
            "devices": {str(device): use.busy_share for device, use in self.devices.items()},
            "partitions": [dataclasses.asdict(times) for times in self.partitions]}

  @property
  def steady_seconds_per_proof(self):
    """Length of the steady phase over the partitions that left a device in it, or None."""
    start, end = self.phases["steady"]
    return (end - start) / 1e9 / self.steady_finished if self.steady_finished else None

  @property
  def parts_vs_wall_percent(self):
    """100 * sum of parts / wall time of the partition where the two differ most, or None."""
    ratios = [100 * sum(times.parts.values()) / times.wall_seconds for times in self.partitions if times.wall_seconds]
    return max(ratios, key=lambda ratio: abs(ratio - 100), default=None)


def analyze(events):
  """The Analysis of events in time order, such as `Timeline.events()`; events without any device interval give an empty one."""
  found = spans(events)
  on_device = [span for span in found if span.name == "DEVICE"]
  partitions = partition_times(events)
  if not on_device:
    nothing = {kind: dict.fromkeys(CAUSES, 0.0) for kind in KINDS}
    return Analysis({}, dict.fromkeys(PHASES, (0, 0)), dict.fromkeys(PHASES), nothing, partitions, 0.0, 0, 0, False)
  begin, end = events[0].time_ns, max(span.end_ns for span in on_device)
  devices = {device: _use(device, events, found, begin, end) for device in sorted({span.device for span in on_device})}
  phases = _phases(events, on_device, begin, end)
  share = {name: _share([use.busy for use in devices.values()], *interval) for name, interval in phases.items()}
  idle = lambda kind, cause: sum(_length(use.gaps, kind, cause) for use in devices.values()) / (len(devices) * (end - begin))
  gaps = {kind: {cause: idle(kind, cause) for cause in CAUSES} for kind in KINDS}
  steady = sum(phases["steady"][0] < span.end_ns <= phases["steady"][1] for span in on_device)
  return Analysis(devices, phases, share, gaps, partitions, (end - begin) / 1e9, len(on_device), steady, all(s.exact for s in on_device))


def _length(gaps, kind, cause):
  return sum(gap.end_ns - gap.start_ns for gap in gaps if (gap.kind, gap.cause) == (kind, cause))


def _phases(events, on_device, begin, end):
  filled = min(span.end_ns for span in on_device)
  last_pickup = max((event.time_ns for event in events if event.name == "DEVICE_PICKUP"), default=filled)
  drained = min(max(filled, last_pickup), end)
  return {"fill": (begin, filled), "steady": (filled, drained), "drain": (drained, end)}


def _share(busy_lists, start, end):
  if start >= end:
    return None
  inside = sum(max(0, min(stop, end) - max(first, start)) for busy in busy_lists for first, stop in busy)
  return inside / (len(busy_lists) * (end - start))


def _use(device, events, found, begin, end):
  here = [span for span in found if span.name == "DEVICE" and span.device == device]
  compiling = {}
  for span in found:
    if span.name == "COMPILE":
      compiling.setdefault(span[3:6], []).append((span.start_ns, span.end_ns))
  busy = merged(piece for span in here for piece in without([(span.start_ns, span.end_ns)], merged(compiling.get(span[3:6], []))))
  cold = merged((span.start_ns, span.end_ns) for span in found if span.name in ("COMPILE", "KEY_LOAD") and span.device == device)
  waiting = merged(_waiting(device, events))
  gaps = []
  for idle in without([(begin, end)], busy):
    for piece in common([idle], cold):
      gaps += _by_cause(piece, "cold_start", waiting)
    for piece in without([idle], cold):
      gaps += _by_cause(piece, _kind(idle, here, busy), waiting)
  total = sum(stop - start for start, stop in busy)
  return DeviceUse(busy, sorted(gaps), total / (end - begin))


def _kind(idle, here, busy):
  """The class of an idle interval, apart from compiling and loading: by the partition that left last and the one that comes next."""
  if not busy or idle[1] <= busy[0][0]:
    return "cold_start"
  if idle[0] >= busy[-1][1]:
    return "tail"
  before = max((span for span in here if span.end_ns <= idle[0]), key=lambda span: span.end_ns, default=None)
  after = min((span for span in here if span.start_ns >= idle[1]), key=lambda span: span.start_ns, default=None)
  # idle inside one partition's interval has no neighbour on one side: it is that partition's own
  return "cross_job" if before and after and before.job != after.job else "partition"


def _by_cause(piece, kind, waiting):
  backlog = [Gap(*interval, kind, "backlog") for interval in common([piece], waiting)]
  return backlog + [Gap(*interval, kind, "starved") for interval in without([piece], waiting)]


def _waiting(device, events):
  """Intervals in which a partition was in the queue, or taken by this device and not yet running on it."""
  put, picked = {}, {}
  for event in events:
    key = event[2:5]
    if event.name == "QUEUE_PUT":
      put[key] = event.time_ns
    elif event.name == "DEVICE_PICKUP" and key in put:
      yield put.pop(key), event.time_ns
      if event.device == device:
        picked[key] = event.time_ns
    elif event.name == "DROP" and key in put:
      yield put.pop(key), event.time_ns
    elif event.name in ("DEVICE_START", "DROP") and key in picked:
      yield picked.pop(key), event.time_ns
  if events:
    yield from ((start, events[-1].time_ns) for start in put.values())


# The wall time of a partition, cut into parts

def partition_times(events):
  """[PartitionTimes] of every attempt that has left a device, in order."""
  attempts = {}
  for event in events:
    if event.partition is not None:
      attempts.setdefault(event[2:5], []).append(event)
  return [_times(key, attempts[key]) for key in sorted(attempts) if any(event.name == "DEVICE_END" for event in attempts[key])]


def _times(key, events):
  at = {}
  for event in events:
    at.setdefault(event.name, event.time_ns)
  seconds = lambda start, end: max(0, at[end] - at[start]) / 1e9 if start in at and end in at else 0.0
  parts = {
      "admission wait": seconds("SUBMIT", "ADMIT"), "synthesis wait": seconds("ADMIT", "SYNTH_START"),
      "synthesis": seconds("SYNTH_START", "SYNTH_END"), "queue wait": seconds("QUEUE_PUT", "DEVICE_PICKUP"),
      "key load": seconds("KEY_LOAD_START", "KEY_LOAD_END"), "transfer": seconds("TRANSFER_START", "TRANSFER_END"),
      "slot wait": seconds("LOCK_WAIT_START", "LOCK_WAIT_END"), "dispatch": 0.0, "device wait": 0.0,
      "device": seconds("DEVICE_START", "DEVICE_END"), "finish wait": seconds("DEVICE_END", "FINISH_START"),
      "finish": seconds("FINISH_START", "FINISH_END"), "serialize": seconds("SERIALIZE_START", "SERIALIZE_END"),
      "verify wait": seconds("SERIALIZE_END", "VERIFY_START"), "verify": seconds("VERIFY_START", "VERIFY_END")}
  if "DISPATCH_START" in at and "DEVICE_START" in at:
    # the device may begin before the dispatching call returns: what is left of the call then is not on the partition's path
    dispatched = min(at.get("DISPATCH_END", at["DEVICE_START"]), at["DEVICE_START"])
    parts["dispatch"] = max(0, dispatched - at["DISPATCH_START"]) / 1e9
    parts["device wait"] = max(0, at["DEVICE_START"] - max(dispatched, at["DISPATCH_START"])) / 1e9
  stages = {}
  for span in spans(events):
    if span.name == "STAGE":
      stages[span.detail] = stages.get(span.detail, 0.0) + (span.end_ns - span.start_ns) / 1e9
  device = next(event.device for event in events if event.name == "DEVICE_END")
  last = max(at.get(name, 0) for name in ("DEVICE_END", "FINISH_END", "SERIALIZE_END", "VERIFY_END"))
  return PartitionTimes(*key, device, (last - events[0].time_ns) / 1e9, parts, stages)


# Sets of times as lists of disjoint intervals in order

def merged(intervals):
  """The union of intervals, as disjoint ones in order; empty ones vanish."""
  out = []
  for start, end in sorted(pair for pair in intervals if pair[0] < pair[1]):
    if out and start <= out[-1][1]:
      out[-1] = out[-1][0], max(out[-1][1], end)
    else:
      out.append((start, end))
  return out


def common(first, second):
  """The intersection of two lists of disjoint intervals in order."""
  return merged((max(a, c), min(b, d)) for a, b in first for c, d in second if max(a, c) < min(b, d))


def without(first, second):
  """What of `first` is not in `second`; lists of disjoint intervals in order."""
  out = []
  for start, end in first:
    for cut, resume in second:
      if resume <= start or cut >= end:
        continue
      if cut > start:
        out.append((start, cut))
      start = max(start, resume)
    if start < end:
      out.append((start, end))
  return out
