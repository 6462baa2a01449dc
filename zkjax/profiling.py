"""Traces of jax.profiler: taking one, reading it back, and comparing a timeline's claims with it.

  with profiling.capture("folder"):
    engine.prove(job)
  trace = profiling.read("folder")
  print(profiling.compare(engine.timeline.events(), trace))

Times of a trace are put on the clock of `time.perf_counter_ns()`, which a timeline uses: a mark at the start of the capture carries it.

On the CPU backend host and device share the cores, and a stage of a proof is kernels with NumPy between them. There the device's interval
of a partition is that of its stages, as the profiler saw them; `kernel_seconds` tells how much of it XLA was running. A kernel is counted
for the stage around it, on its own thread or else in time; where stages of two partitions surround it the trace cannot tell, and it counts
as `unattributed_seconds`.

On a GPU kernels are rows of their own. A kernel carries the number of the host's call that launched it; that call lies inside the dispatch
of one partition, on the same thread, and so the kernel is that partition's, and its interval goes from its first kernel to its last.
The stage of a kernel is the `named_scope` that it was traced in, as the programs in the trace tell. XLA launches most kernels as graphs,
whose kernels tell no operation: XLA_FLAGS=--xla_gpu_enable_command_buffer= in the environment makes it launch them one by one, which keeps
the host busier. Copies between host and device run beside the kernels, and are not counted.
"""
import bisect
import contextlib
import pathlib
import time
from typing import NamedTuple, Optional

import jax

from zkjax import xplane
from zkjax.engine.gaps import common, merged
from zkjax.engine.timeline import spans

_CLOCK = "zkjax_clock"
_STAGES = ("matvec", "quotient", "msm_")


class Interval(NamedTuple):
  """Something in a trace: times in ns, the row it stands in, and what partition it belongs to, if that is known."""
  name: str
  start_ns: int
  end_ns: int
  row: str
  partition: Optional[tuple] = None            # (job, partition, attempt)
  device: Optional[int] = None
  stage: Optional[str] = None                  # of a kernel on a GPU


class Trace(NamedTuple):
  """stages, dispatches: annotations of zkjax, with their partitions. kernels: what XLA ran, on devices or on the CPU's threads."""
  stages: list
  dispatches: list
  kernels: list
  on_gpu: bool

  def busy_ns(self):
    """Disjoint intervals in which a kernel was running."""
    return merged((kernel.start_ns, kernel.end_ns) for kernel in self.kernels)

  def busy_share(self, start_ns, end_ns):
    """The part of an interval in which a kernel was running, None for an empty interval."""
    if start_ns >= end_ns:
      return None
    return sum(end - start for start, end in common([(start_ns, end_ns)], self.busy_ns())) / (end_ns - start_ns)

  def kernel_seconds(self):
    """{stage: seconds of the union of its kernels}; kernels outside every stage or in several count as "other"."""
    by_stage = {}
    for kernel in self.kernels:
      names = {kernel.stage} if kernel.stage else {stage.name for stage in _around(kernel, self.stages)}
      by_stage.setdefault(names.pop() if len(names) == 1 else "other", []).append((kernel.start_ns, kernel.end_ns))
    return {name: _seconds(intervals) for name, intervals in sorted(by_stage.items())}

  def dispatch_delays(self):
    """{(job, partition): seconds from the beginning of its dispatch to the first kernel that is certainly its own}."""
    owned, delays = _owned(self), {}
    for dispatch in self.dispatches:
      first = min((kernel.start_ns for key, kernels in owned.items() if key and key[:2] == dispatch.partition[:2] for kernel in kernels
                   if kernel.start_ns >= dispatch.start_ns), default=None)
      if first is not None:
        delays[dispatch.partition[:2]] = (first - dispatch.start_ns) / 1e9
    return delays


@contextlib.contextmanager
def capture(folder, programs=True):
  """Records a trace of the block into a folder that TensorBoard's profile plugin opens, without the calls of Python, most of it otherwise.

  programs: keep XLA's programs in it too, for TensorBoard's viewers of graphs; on a GPU they are 15 MB, most of a small trace.
  Keep what is captured short on the CPU with JAX 0.10, where every step of every loop becomes an event.
  """
  options = jax.profiler.ProfileOptions()
  options.python_tracer_level = 0
  options.enable_hlo_proto = programs
  jax.profiler.start_trace(str(folder), profiler_options=options)
  try:
    for _ in range(5):                         # the closest of several: a thread may be put aside between reading the clock and the mark
      with jax.profiler.TraceAnnotation(_CLOCK, ns=time.perf_counter_ns()):
        pass
    yield
  finally:
    jax.profiler.stop_trace()


def read(folder):
  """The Trace of the latest capture in a folder. Raises: ValueError if there is none, or none that `capture` made."""
  files = sorted(pathlib.Path(folder).rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime)
  if not files:
    raise ValueError(f"{folder} holds no trace: record one with profiling.capture")
  data = jax.profiler.ProfileData.from_file(str(files[-1]))
  rows = [(plane.name, f"{plane.name}/{number}.{line_number} {line.name}", line)
          for number, plane in enumerate(data.planes) for line_number, line in enumerate(plane.lines)]
  gpu = [(row, line) for plane, row, line in rows if plane.startswith("/device:GPU")]
  marks, stages, dispatches, kernels, launched = [], [], [], [], {}
  for plane, row, line in rows:
    if not plane.startswith("/device:GPU"):
      _read_host(row, line, bool(gpu), marks, stages, dispatches, kernels, launched)
  paths = xplane.scopes(files[-1].read_bytes()) if gpu else {}
  for row, line in gpu:
    kernels += _gpu_kernels(row, line, launched, paths)
  if not marks:
    raise ValueError(f"{files[-1]} was not recorded by profiling.capture: it has no mark of the clock")
  shift = min(marks)                           # the mark comes after the clock was read, never before
  moved = [[_moved(interval, shift) for interval in intervals] for intervals in (stages, dispatches, kernels)]
  return Trace(*(sorted(intervals, key=lambda interval: interval.start_ns) for intervals in moved), bool(gpu))


def _read_host(row, line, on_gpu, marks, stages, dispatches, kernels, launched):
  """Adds what a row of the host holds; to `launched`, the partition of every call of the driver inside a dispatch, by its number."""
  events = list(line.events)
  here = len(dispatches)
  for event in events:
    if event.name == _CLOCK:
      marks.append(dict(event.stats)["ns"] - event.start_ns)
    elif event.name == "dispatch" or event.name.startswith(_STAGES):
      stats = dict(event.stats)
      if "job" in stats:
        where = stats["job"], stats["partition"], stats.get("attempt", 0)
        found = Interval(event.name, event.start_ns, event.start_ns + event.duration_ns, row, where, stats.get("device"))
        (dispatches if event.name == "dispatch" else stages).append(found)
    elif not on_gpu and not event.name.startswith("end: ") and "hlo_op" in dict(event.stats):
      kernels.append(Interval(event.name, event.start_ns, event.start_ns + event.duration_ns, row))
  if on_gpu and (mine := sorted(dispatches[here:], key=lambda dispatch: dispatch.start_ns)):
    starts = [dispatch.start_ns for dispatch in mine]
    for event in events:
      around = mine[max(bisect.bisect(starts, event.start_ns) - 1, 0)]
      if around.start_ns <= event.start_ns <= around.end_ns and (number := dict(event.stats).get("correlation_id")) is not None:
        launched[number] = around


def _gpu_kernels(row, line, launched, paths):
  """The kernels of a stream, with partition, device and stage."""
  for event in line.events if line.name.startswith("Stream") else ():
    stats = dict(event.stats)
    if "memcpy_details" in stats:
      continue
    by, end = launched.get(stats.get("correlation_id")), event.start_ns + event.duration_ns
    yield Interval(event.name, event.start_ns, end, row, by and by.partition, by and by.device, _stage(stats, paths))


def _stage(stats, paths):
  """The stage of a GPU's kernel, or None: the innermost of its scopes that is one."""
  operation = f"{stats.get('hlo_module')}({stats.get('program_id')})", stats.get("hlo_op")
  scopes = [part for part in paths.get(operation, str(stats.get("tf_op", ""))).split("/") if part.startswith(_STAGES)]
  return scopes[-1] if scopes else None


def _moved(interval, shift):
  return interval._replace(start_ns=int(interval.start_ns + shift), end_ns=int(interval.end_ns + shift))


class Compared(NamedTuple):
  """One partition: what the timeline claims and what the profiler measured, in seconds."""
  job: int
  partition: int
  attempt: int
  claimed_seconds: float
  measured_seconds: float
  kernel_seconds: float                        # XLA running within it, as far as that is certain
  start_ns: int                                # measured
  end_ns: int

  @property
  def percent(self):
    """100 * claimed / measured."""
    return 100 * self.claimed_seconds / self.measured_seconds


class Comparison(NamedTuple):
  """partitions: of those in both records. unattributed_seconds: kernels that may be of several partitions."""
  partitions: list
  unattributed_seconds: float

  @property
  def percent(self):
    """100 * claimed / measured of the partition where the two differ most, or None."""
    return max((p.percent for p in self.partitions), key=lambda percent: abs(percent - 100), default=None)

  def measured(self):
    """What `timeline.with_measured` takes: the device's own intervals, in place of the estimated ones."""
    return {(p.job, p.partition, p.attempt): (p.start_ns, p.end_ns) for p in self.partitions}


def compare(events, trace):
  """The Comparison of a timeline's device intervals with those of a Trace. Args: events: in time order. trace: Trace."""
  owned, extents = _owned(trace), {}
  kernels = [(key, kernel) for key, found in owned.items() if key is not None for kernel in found]
  for key, interval in kernels if trace.on_gpu else [(stage.partition, stage) for stage in trace.stages]:
    start, end = extents.get(key, (interval.start_ns, interval.end_ns))
    extents[key] = min(start, interval.start_ns), max(end, interval.end_ns)
  out = []
  for span in spans(events):
    key = span.job, span.partition, span.attempt
    if span.name == "DEVICE" and key in extents:
      start, end = extents[key]
      kernels = _seconds((kernel.start_ns, kernel.end_ns) for kernel in owned.get(key, []))
      out.append(Compared(*key, (span.end_ns - span.start_ns) / 1e9, (end - start) / 1e9, kernels, start, end))
  return Comparison(out, _seconds((kernel.start_ns, kernel.end_ns) for kernel in owned.get(None, [])))


def _around(kernel, stages):
  """The stages that surround a kernel: the one on its own row, or all of them in time."""
  found = [stage for stage in stages if stage.start_ns <= kernel.start_ns and kernel.end_ns <= stage.end_ns]
  return [stage for stage in found if stage.row == kernel.row] or found


def _owned(trace):
  """{partition, or None where it is not certain: its kernels}."""
  owned = {}
  for kernel in trace.kernels:
    partitions = {kernel.partition} if trace.on_gpu else {stage.partition for stage in _around(kernel, trace.stages)}
    owned.setdefault(partitions.pop() if len(partitions) == 1 else None, []).append(kernel)
  return owned


def _seconds(intervals):
  return sum(end - start for start, end in merged(intervals)) / 1e9
