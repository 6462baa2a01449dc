"""How the scripts in this folder measure: seconds on the wall and of CPU, seconds spent compiling, peak memory, the name of the machine.

A time is worth something only when the work is finished: pass functions that return finished results, see `timed`.
"""
import os
import pathlib
import platform
import resource
import sys
import time

import jax

_COMPILE_EVENTS = ("/jax/core/compile/jaxpr_trace_duration", "/jax/core/compile/jaxpr_to_mlir_module_duration",
                   "/jax/core/compile/backend_compile_duration")


def timed(work):
  """Returns (result, wall seconds, CPU seconds of all threads) of work(), waiting for the arrays in its result."""
  wall, cpu = time.perf_counter(), time.process_time()
  result = jax.block_until_ready(work())
  return result, time.perf_counter() - wall, time.process_time() - cpu


class CompileClock:
  """Counts the seconds in which JAX was tracing, lowering or compiling (or fetching from its cache) since this object was made."""

  def __init__(self):
    self._intervals = []
    jax.monitoring.register_event_duration_secs_listener(self._record)

  def _record(self, event, duration, **_):
    if event in _COMPILE_EVENTS:
      end = time.perf_counter()
      self._intervals.append((end - duration, end))

  @property
  def seconds(self):
    """The length of the union of all intervals: traces nest, and threads compile at the same time."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(self._intervals):
      total += max(0.0, end - max(start, reached))
      reached = max(reached, end)
    return total


def peak_rss_mb():
  """The largest resident memory of this process so far, in 10^6 bytes."""
  status = pathlib.Path("/proc/self/status")
  if status.exists():                                         # ru_maxrss starts with the size of the parent on Linux
    kib = next((int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM:")), None)
    if kib is not None:
      return kib * 1024 / 1e6
  unit = 1 if sys.platform == "darwin" else 1024
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def device_name():
  """Such as "gpu: NVIDIA H200" or "cpu: Intel(R) Xeon(R) Processor, 2 cores"."""
  device = jax.devices()[0]
  if device.platform != "cpu":
    return f"{device.platform}: {device.device_kind}"
  cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
  return f"cpu: {_processor()}, {cores} cores"


def _processor():
  info = pathlib.Path("/proc/cpuinfo")
  lines = info.read_text().splitlines() if info.exists() else []
  names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
  return names[0] if names else platform.processor() or platform.machine()
