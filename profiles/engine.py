"""Measures the engine on this machine's device: jobs of partitions of one circuit, with producers of several kinds, traced.

  python profiles/engine.py 18 20

For each size, a squaring chain that fills a domain of 2^size, with a random witness: a proof alone; the engine with its timeline on and
off, in turns; and a traced run for each kind of producer, in which the timeline's claims are compared with the profiler. Producers:

  trivial       returns the witness
  waiting       as long as a proof takes the device in the run before, without computing
  native        computes as long, without the interpreter
  python        computes as long, in Python, in processes

Verification runs in processes too, as it does on a GPU by default, but for the kind named trivial_threads. Every proof is verified. Adds
rows to profiles/engine.json, or to the file that JSON names; KEEP names a folder for the traces, one of a job of two partitions among them,
and the events. Several of these scripts may run at once, to compile: they time one at a time.
"""
import contextlib
import faulthandler
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

import jax  # noqa: E402
import numpy as np  # noqa: E402
import workloads  # noqa: E402

from zkjax import groth16, profiling  # noqa: E402
from zkjax.engine import Engine, EngineConfig, Job, Timeline, export  # noqa: E402
from zkjax.engine.gaps import analyze  # noqa: E402
from zkjax.engine.report import report  # noqa: E402
from zkjax.engine.timeline import spans, with_measured  # noqa: E402
from zkjax.ops.field import Fr  # noqa: E402

JOBS, PARTITIONS, TURNS, THREADS = 3, 10, 9, 4
HANG_SECONDS = 120                            # a step that takes longer tells where all threads are, and ends the script
SLICE = bytes(1 << 20)


def computed(seconds):
  """Seconds of one core, spent in a hash, which does not hold the interpreter."""
  end = time.thread_time() + seconds
  while time.thread_time() < end:
    hashlib.sha256(SLICE).digest()


def in_python(path, seconds):
  """The witness in a file, after so many seconds of one core in Python."""
  end = time.thread_time() + seconds
  while time.thread_time() < end:
    sum(range(1000))
  return Fr(np.load(path))


def producer(kind, witness, seconds, folder):
  """What makes a witness of this kind."""
  if kind == "python":
    np.save(path := pathlib.Path(folder) / "witness.npy", np.asarray(witness.limbs))
    return functools.partial(in_python, path, seconds)
  spend = {"waiting": time.sleep, "native": computed}.get(kind, lambda seconds: None)
  return lambda: (spend(seconds), witness)[1]


def run(key, source, partitions, jobs, kind, trace=None):
  """(seconds from the first submission to the last result, events, folder of the trace or None) of one run."""
  config = EngineConfig(synthesis_threads=THREADS, finish_threads=THREADS, verify_processes=False if kind == "trivial_threads" else None,
                        synthesis_processes=kind == "python")
  with Engine(config) as engine:
    engine.preload(key)
    engine.timeline.clear()
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
    if trace is None:
      seconds = prove(engine, key, source, partitions, jobs)
    else:
      with profiling.capture(trace, programs=False):
        seconds = prove(engine, key, source, partitions, jobs)
    faulthandler.cancel_dump_traceback_later()
  return seconds, engine.timeline.events(), trace


def prove(engine, key, source, partitions, jobs):
  """Seconds from the first submission to the last result."""
  start = time.perf_counter()
  futures = [engine.submit(Job(key, [source] * partitions)) for _ in range(jobs)]
  for future in futures:
    future.result()
  return time.perf_counter() - start


def row_of(kind, seconds, events, trace_folder):
  """The numbers of a traced run; and its report, printed."""
  (trace_folder / "events.jsonl").write_text(export.to_json_lines(events))
  trace = profiling.read(trace_folder)
  claimed, comparison = analyze(events), profiling.compare(events, trace)
  exact = analyze(with_measured(events, comparison.measured()))
  print(f"-- {kind}\n{report(exact, 'throughput', 0)}", flush=True)
  compiled = [span for span in spans(events) if span.name == "COMPILE"]
  median = lambda name: 1e3 * statistics.median(times.parts.get(name, 0) for times in claimed.partitions)
  percents = sorted(compared.percent for compared in comparison.partitions)
  return {
      "producer": kind, "seconds": seconds, "proofs": claimed.finished, "proofs_per_minute": 60 * claimed.finished / seconds,
      "profiler_busy_share": {name: trace.busy_share(*interval) for name, interval in exact.phases.items()},
      "timeline_busy_share": claimed.busy_share, "gaps": exact.gap_share, "device_time": "measured" if exact.exact else "estimated",
      "compared": len(percents), "claimed_vs_measured_percent": comparison.percent,
      "claimed_vs_measured_median_percent": statistics.median(percents) if percents else None,
      "unattributed_seconds": comparison.unattributed_seconds, "parts_vs_wall_percent": exact.parts_vs_wall_percent,
      "steady_seconds_per_proof": claimed.steady_seconds_per_proof, "compilations": len(compiled),
      "compile_seconds": sum(span.end_ns - span.start_ns for span in compiled) / 1e9,
      "median_ms": {name: round(median(name), 3) for name in ("transfer", "dispatch", "slot wait", "device", "finish", "verify")},
      "kernel_ms_per_proof": {name: round(1e3 * seconds / claimed.finished, 3) for name, seconds in trace.kernel_seconds().items()},
  }


def kept(log2_size):
  """A context manager of the folder for traces."""
  if "KEEP" not in os.environ:
    return tempfile.TemporaryDirectory()
  folder = pathlib.Path(os.environ["KEEP"]) / str(log2_size)
  folder.mkdir(parents=True)
  return contextlib.nullcontext(folder)


def measure(log2_size, save):
  """All rows of one size."""
  begin = time.perf_counter()
  key, witness = workloads.squaring_chain(log2_size)
  common = {"log2_size": log2_size, "device": jax.devices()[0].device_kind, "jax": jax.__version__, "commit": os.environ.get("COMMIT"),
            "jobs": JOBS, "partitions": PARTITIONS}
  print(f"2^{log2_size}: setup {time.perf_counter() - begin:.1f} s", flush=True)
  begin = time.perf_counter()
  groth16.prove(key, witness)
  print(f"2^{log2_size}: first proof {time.perf_counter() - begin:.1f} s", flush=True)
  with open(pathlib.Path(tempfile.gettempdir()) / "zkjax-timing", "w") as lock, kept(log2_size) as folder:
    fcntl.flock(lock, fcntl.LOCK_EX)
    alone = [timed(lambda: groth16.prove(key, witness)) for _ in range(10)]
    save(common | {"producer": "none", "proof_alone_seconds": statistics.median(alone)})
    seconds, events, _ = run(key, lambda: witness, 2, 1, "trivial")
    compiled = sum(span.name == "COMPILE" for span in spans(events))
    print(f"2^{log2_size}: alone {statistics.median(alone):.4f} s, 1 x 2 {seconds:.3f} s, {compiled} compilations", flush=True)
    row_of("small", *run(key, lambda: witness, 2, 1, "small", trace=pathlib.Path(folder) / "small"))
    last = statistics.median(alone)
    for kind in ("trivial", "waiting", "native", "python", "trivial_threads"):
      source = producer(kind, witness, last, folder)
      row = row_of(kind, *run(key, source, PARTITIONS, JOBS, kind, trace=pathlib.Path(folder) / kind))
      save(common | row)
      if kind == "trivial":
        last = row["steady_seconds_per_proof"] or last
        save(common | timeline_cost(key, source))


def timed(function):
  start = time.perf_counter()
  function()
  return time.perf_counter() - start


def timeline_cost(key, source):
  """Seconds of runs with the timeline on and off, in turns, without a trace and without verification, whose end is the host's."""
  with contextlib.ExitStack() as stack:
    config = EngineConfig(synthesis_threads=THREADS, finish_threads=THREADS, verify=False)
    engines = [stack.enter_context(Engine(config, timeline=timeline)) for timeline in (Timeline(), Timeline(0))]
    for engine in engines:
      engine.preload(key)
      prove(engine, key, source, PARTITIONS, JOBS)
    on, off = zip(*([prove(engine, key, source, PARTITIONS, JOBS) for engine in engines] for _ in range(TURNS)))
  return {"producer": "trivial", "timeline_on_seconds": on, "timeline_off_seconds": off,
          "timeline_cost_percent": 100 * (statistics.median(on) / statistics.median(off) - 1)}


def main(sizes):
  path = pathlib.Path(os.environ.get("JSON", ROOT / "profiles" / "engine.json"))
  rows = json.loads(path.read_text())["rows"] if path.exists() else []

  def save(row):
    print(json.dumps(row), flush=True)
    rows.append(row)
    path.write_text('{"rows": [\n' + ",\n".join(json.dumps(r) for r in rows) + "\n]}\n")
  for size in sizes:
    measure(int(size), save)


if __name__ == "__main__":
  faulthandler.enable()
  main(sys.argv[1:])
