"""What happened when: an append-only record of the engine's events, always on, bounded, and without a single secret.

Each name brackets exactly what it says (`EVENTS`). A time is `time.perf_counter_ns()`: monotonic, one clock for all threads. An event
holds numbers that the engine gave out itself and names of stages; nothing of a witness, a blinding or a caller's label can get in.
"""
import collections
import contextlib
import itertools
import threading
import time
from typing import NamedTuple, Optional

POINTS = {
    "SUBMIT": "the job was accepted, or a partition of it was put back for its second attempt",
    "ADMIT": "the admission thread reserved the partition's memory",
    "QUEUE_PUT": "the partition was put into the queue of the devices",
    "DEVICE_PICKUP": "a device's dispatch thread took it out",
    "DEVICE_START": "the device began with the partition",
    "DEVICE_END": "the last output of the device was ready",
    "DROP": "the partition was given up: cancelled, expired, or a sibling failed",
}
SPANS = {
    "SYNTH": "the producer of the witness: its first to its last instruction",
    "KEY_LOAD": "a key was being made resident on a device",
    "TRANSFER": "the host call that hands the witness to the device",
    "LOCK_WAIT": "the dispatch thread waited for a free place on the device",
    "DISPATCH": "the host call that starts the proof; its end says nothing about the device",
    "STAGE": "one stage of the proof on the device, as its host thread sees it; `detail` names it",
    "COMPILE": "a program was traced, compiled or fetched",
    "FINISH": "the last point arithmetic on the host",
    "SERIALIZE": "encoding into 192 bytes",
    "VERIFY": "verification, of the whole job at once or of one partition",
}
EVENTS = frozenset(POINTS) | {f"{name}_{end}" for name in SPANS for end in ("START", "END")}


class Event(NamedTuple):
  """One point in time. time_ns: of the clock; job: the engine's own number of it; attempt: from 0; exact: from a trace of the profiler."""
  time_ns: int
  name: str
  job: Optional[int] = None
  partition: Optional[int] = None
  attempt: int = 0
  device: Optional[int] = None
  thread: int = 0
  detail: Optional[str] = None
  exact: bool = False


class Span(NamedTuple):
  """The interval between an event NAME_START and its NAME_END."""
  name: str
  start_ns: int
  end_ns: int
  job: Optional[int] = None
  partition: Optional[int] = None
  attempt: int = 0
  device: Optional[int] = None
  thread: int = 0
  detail: Optional[str] = None
  exact: bool = False


class Timeline:
  """A bounded record of events that any thread may add to.

  Args: capacity: events kept; the oldest go first, and `dropped` counts them. 0 records nothing.
  """

  def __init__(self, capacity=1 << 18):
    if capacity < 0:
      raise ValueError(f"capacity must not be negative, got {capacity}")
    self.capacity = capacity
    self.threads = {}                          # ident: name
    self._events = collections.deque(maxlen=capacity)
    self._next = itertools.count()
    self._count = 0

  def record(self, name, job=None, partition=None, attempt=0, device=None, detail=None, time_ns=None, thread=None):
    """Adds an event, now or at `time_ns` of time.perf_counter_ns(), and returns it (None if nothing is recorded).

    Raises ValueError for a name outside EVENTS. Cost: about one microsecond; no lock, appending to a deque is atomic.
    """
    if not self.capacity:
      return None
    if name not in EVENTS:
      raise ValueError(f"{name!r} is no event of a timeline; EVENTS lists them")
    if thread is None:
      thread = threading.get_ident()
      if thread not in self.threads:
        self.threads[thread] = threading.current_thread().name
    event = Event(time.perf_counter_ns() if time_ns is None else time_ns, name, job, partition, attempt, device, thread, detail)
    self._events.append(event)
    self._count = next(self._next) + 1
    return event

  @contextlib.contextmanager
  def span(self, name, **where):
    """Records NAME_START and NAME_END around a block, whether or not it raises."""
    self.record(f"{name}_START", **where)
    try:
      yield
    finally:
      self.record(f"{name}_END", **where)

  @property
  def dropped(self):
    """How many events are no longer kept."""
    return max(0, self._count - self.capacity)

  def events(self):
    """The events in the order of their times, as a list."""
    while True:
      try:
        return sorted(self._events, key=lambda event: event.time_ns)
      except RuntimeError:                     # another thread appended meanwhile
        continue

  def __len__(self):
    return len(self._events)

  def clear(self):
    """Forgets everything."""
    self._events.clear()


def spans(events):
  """The Spans of events in time order; DEVICE_START and DEVICE_END make a span DEVICE. What never ended is left out."""
  open_, out = {}, []
  for event in events:
    name, _, end = event.name.rpartition("_")
    if end not in ("START", "END"):
      continue
    # the two ends of a device's interval may be seen by different threads
    thread = None if name == "DEVICE" else event.thread
    key = name, event.job, event.partition, event.attempt, thread, event.detail
    if end == "START":
      open_.setdefault(key, []).append(event)
    elif open_.get(key):
      start = open_[key].pop()
      out.append(Span(name, start.time_ns, event.time_ns, *event[2:6], start.thread, event.detail, start.exact and event.exact))
  return sorted(out, key=lambda span: (span.start_ns, span.end_ns))


def with_measured(events, measured):
  """The events with the DEVICE_START and DEVICE_END that were measured in place of the estimated ones.

  Args: events: list of Event. measured: {(job, partition, attempt): (start_ns, end_ns)} on the same clock, as `profiling.compare` returns
  them.
  """
  def replaced(event):
    if event.name not in ("DEVICE_START", "DEVICE_END"):
      return event
    interval = measured.get((event.job, event.partition, event.attempt))
    return event._replace(time_ns=interval[event.name == "DEVICE_END"], exact=True) if interval else event
  return sorted(map(replaced, events), key=lambda event: event.time_ns)
