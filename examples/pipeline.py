"""Proves jobs of several partitions with the engine, and reports how busy the device was and why not.

  python examples/pipeline.py
  python examples/pipeline.py --zkey=circuit.zkey --wtns=witness.wtns --jobs=3 --partitions=10 --waterfall=run.html

Without --zkey and --wtns it proves the small circuit in examples/data. --synth_wait and --synth_compute make producers of witnesses that
wait or compute, as long as you say, in place of reading a file. --trace_dir records what the profiler sees and compares it with what the
timeline claims; keep such a run small on the CPU. Exit code: 0 done, 1 a proof is false, 2 an error.
"""
import concurrent.futures
import contextlib
import functools
import json
import pathlib
import sys
import time

import command_line
import jax
import measure
import status_page
from absl import flags

from zkjax import groth16, profiling
from zkjax.engine import Engine, EngineConfig, Job, RejectedError, Timeline, export, waterfall
from zkjax.engine.gaps import analyze
from zkjax.engine.prover import Prover
from zkjax.engine.report import report
from zkjax.engine.timeline import with_measured
from zkjax.groth16.formats.container import replace_file

FLAGS = flags.FLAGS
flags.DEFINE_string("zkey", None, "Proving key of snarkjs. Without --zkey and --wtns: those in examples/data.")
flags.DEFINE_string("wtns", None, "Witness of circom or snarkjs, the same for every partition.")
flags.DEFINE_integer("jobs", 3, "Jobs, all submitted at once.", lower_bound=1)
flags.DEFINE_integer("partitions", 4, "Proofs in a job.", lower_bound=1)
flags.DEFINE_integer("synth_threads", 2, "Witnesses produced at once.", lower_bound=1)
flags.DEFINE_float("synth_wait", 0.0, "Seconds that every producer waits, as for a file or the network.", lower_bound=0)
flags.DEFINE_float("synth_compute", 0.0, "Seconds of CPU that every producer spends, in Python that holds the interpreter.", lower_bound=0)
flags.DEFINE_bool("synth_processes", False, "Run the producers in processes, as many as --synth_threads, instead of on threads.")
flags.DEFINE_bool("verify_processes", None, "Verify in processes. By default on a GPU only.")
flags.DEFINE_integer("max_in_flight", 2, "Proofs on a device at once.", lower_bound=1)
flags.DEFINE_integer("max_batch", 1, "Partitions of a small circuit in one dispatch.", lower_bound=1)
flags.DEFINE_integer("devices", 1, "Devices to prove on, of those that there are.", lower_bound=1)
flags.DEFINE_enum("mode", "throughput", ["throughput", "attribution"], "throughput: nothing blocks. attribution: one proof at a time, one "
                  "stage after the other, for true times of the stages; kills overlap.")
flags.DEFINE_bool("verify", True, "Verify every proof before it is returned.")
flags.DEFINE_bool("record", True, "Record the timeline. Without it there is no report.")
flags.DEFINE_bool("compare", False, "Prove the same number in a loop of groth16.prove too, with the same producers, and report the ratio.")
flags.DEFINE_string("timeline", None, "Where to write the events: .jsonl, .csv, or .json for Perfetto.")
flags.DEFINE_string("waterfall", None, "Where to write the picture of the run, an HTML file.")
flags.DEFINE_string("trace_dir", None, "Folder for a trace of jax.profiler, for TensorBoard.")
flags.DEFINE_bool("trace_programs", True, "Keep XLA's programs in the trace: they tell the stages of a GPU's kernels, and are large.")
flags.DEFINE_integer("status_port", None, "Serve /status, /metrics and a live page on 127.0.0.1 while the jobs run; 0 takes any free port.",
                     lower_bound=0, upper_bound=65535)
flags.DEFINE_string("json", None, "Where to write the measurements.")


def main():
  data = command_line.DATA
  zkey, wtns = command_line.given_or_default((data / "purchase.zkey", data / "witness.wtns"), zkey=FLAGS.zkey, wtns=FLAGS.wtns)
  check_flags()
  with command_line.progress("reading"):
    key, producer = groth16.read_zkey(zkey), functools.partial(produce, wtns, FLAGS.synth_wait, FLAGS.synth_compute)
  with command_line.progress("proving for the first time, which compiles"):
    groth16.prove(key, groth16.read_wtns(wtns))
  try:
    engine, results, times = run(key, producer)
  except RejectedError as error:
    print(f"A proof is FALSE: {error}")
    return command_line.FALSE_PROOF
  events, comparison, trace = engine.timeline.events(), None, None
  if FLAGS.trace_dir:
    trace = profiling.read(FLAGS.trace_dir)
    comparison = profiling.compare(events, trace)
    events = with_measured(events, comparison.measured())
  loop = loop_seconds(key, producer) if FLAGS.compare else None
  numbers = make_numbers(zkey, analyze(events), results, times, comparison, loop)
  if trace:
    numbers["kernels_busy_share"] = {name: trace.busy_share(*interval) for name, interval in analyze(events).phases.items()}
  write_outputs(engine, events, numbers)
  print_report(engine, events, numbers)
  return command_line.DONE


def check_flags():
  command_line.check_outputs(FLAGS.timeline, FLAGS.waterfall, FLAGS.json)
  if FLAGS.timeline and pathlib.Path(FLAGS.timeline).suffix not in (".jsonl", ".csv", ".json"):
    raise ValueError("--timeline takes a name that ends in .jsonl, .csv or .json")
  if not FLAGS.record and (FLAGS.timeline or FLAGS.waterfall or FLAGS.trace_dir):
    raise ValueError("--norecord leaves nothing for --timeline, --waterfall and --trace_dir to show")
  if FLAGS.devices > len(jax.devices()):
    raise ValueError(f"--devices={FLAGS.devices}, but there are {len(jax.devices())}")


def produce(wtns, wait, compute):
  """A witness: reads the file, after that many seconds of waiting and of computing."""
  time.sleep(wait)
  end = time.thread_time() + compute
  while time.thread_time() < end:
    sum(range(1000))
  return groth16.read_wtns(wtns)


def run(key, producer):
  """(the closed engine, results, wall and CPU seconds from the first submission to the last result)."""
  alone = FLAGS.mode == "attribution"
  config = EngineConfig(max_in_flight=1 if alone else FLAGS.max_in_flight, synthesis_threads=FLAGS.synth_threads, verify=FLAGS.verify,
                        max_batch=FLAGS.max_batch, synthesis_processes=FLAGS.synth_processes, verify_processes=FLAGS.verify_processes)
  trace = profiling.capture(FLAGS.trace_dir, FLAGS.trace_programs) if FLAGS.trace_dir else contextlib.nullcontext()
  with (Engine(config, jax.devices()[:FLAGS.devices], Timeline() if FLAGS.record else Timeline(0), Prover(1 if alone else None)) as engine,
        status_page.serve(engine, FLAGS.status_port)):
    engine.preload(key)
    with trace:
      start, cpu = time.perf_counter(), time.process_time()
      futures = [engine.submit(Job(key, [producer] * FLAGS.partitions, f"job {k}")) for k in range(FLAGS.jobs)]
      watch(engine, futures, start)
      results = [future.result() for future in futures]
      seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
  return engine, results, (seconds, cpu)


def watch(engine, futures, start):
  """Prints progress on stderr until all futures have ended: proofs, their rate, how busy the devices were in the last second."""
  total, live = FLAGS.jobs * FLAGS.partitions, sys.stderr.isatty()
  while concurrent.futures.wait(futures, 1.0).not_done:
    done = sum(device["partitions_done"] for device in engine.status()["devices"])
    now = time.perf_counter()
    recent = [event for event in engine.timeline.events() if event.name in ("DEVICE_START", "DEVICE_END")]
    shares = [use.busy_share for use in analyze(recent).devices.values()]
    busy = f"{sum(shares) / len(shares):.0%}" if shares else "-"
    print(f"{done}/{total} proofs, {60 * done / (now - start):.1f} a minute, device busy {busy}", end="\r" if live else "\n",
          file=sys.stderr, flush=True)
  if live:
    print(file=sys.stderr)


def loop_seconds(key, producer):
  """The same witnesses, proofs, and verification, if asked for, one after the other."""
  vk, start = groth16.prepare(key.vk, allow_uncontributed=True), time.perf_counter()
  with command_line.progress("proving in a loop"):
    for _ in range(FLAGS.jobs * FLAGS.partitions):
      witness = producer()
      proof = groth16.prove(key, witness)
      if FLAGS.verify and not groth16.verify(vk, proof, groth16.public_inputs(key, witness)):
        raise ValueError("a proof of the loop is false")
  return time.perf_counter() - start


def make_numbers(zkey, analysis, results, times, comparison, loop):
  """The object that --json writes; null where something was not measured."""
  count, (seconds, cpu) = sum(len(result.proofs) for result in results), times
  return {
      "circuit": pathlib.Path(zkey).stem, "device": measure.device_name(), "jax": jax.__version__, "mode": FLAGS.mode,
      "jobs": FLAGS.jobs, "partitions": FLAGS.partitions,
      "seconds": seconds, "cores_busy": cpu / seconds, "proofs_per_minute": 60 * count / seconds,
      "device_busy_share": analysis.busy_share, "device_time": "measured" if analysis.exact else "estimated", "gaps": analysis.gap_share,
      "steady_seconds_per_proof": analysis.steady_seconds_per_proof,
      "claimed_vs_measured_percent": comparison.percent if comparison else None,
      "parts_vs_wall_percent": analysis.parts_vs_wall_percent, "loop_seconds": loop, "ratio_to_loop": loop / seconds if loop else None,
      "peak_rss_mb": measure.peak_rss_mb(), "retries": sum(result.retries for result in results),
      "verified": True if FLAGS.verify else None,
  }


def write_outputs(engine, events, numbers):
  if FLAGS.timeline:
    kind = pathlib.Path(FLAGS.timeline).suffix
    text = {".jsonl": lambda: export.to_json_lines(events), ".csv": lambda: export.to_csv(events),
            ".json": lambda: json.dumps(export.to_chrome_trace(events, engine.timeline.threads))}[kind]()
    write(FLAGS.timeline, text)
  if FLAGS.waterfall:
    write(FLAGS.waterfall, waterfall.to_html(events, f"{numbers['circuit']}: {FLAGS.jobs} jobs of {FLAGS.partitions} partitions"))
  if FLAGS.json:
    write(FLAGS.json, json.dumps(numbers, indent=2) + "\n")


def write(path, text):
  with replace_file(path) as file:
    file.write(text.encode())


def print_report(engine, events, numbers):
  print(f"circuit   {numbers['circuit']}, {FLAGS.jobs} jobs of {FLAGS.partitions} partitions on {numbers['device']}, JAX {numbers['jax']}")
  print(f"proofs    {numbers['proofs_per_minute']:.1f} a minute, {'verified' if numbers['verified'] else 'not verified'}; "
        f"{numbers['seconds']:.2f} s from the first submission to the last result, {numbers['cores_busy']:.2f} cores busy on average")
  if numbers["loop_seconds"]:
    print(f"loop      {numbers['loop_seconds']:.2f} s for the same one after the other: {numbers['ratio_to_loop']:.2f} times as long")
  if numbers["claimed_vs_measured_percent"]:
    print(f"profiler  the timeline claims {numbers['claimed_vs_measured_percent']:.2f} % of what it measured, where the two differ most")
  for phase, share in numbers.get("kernels_busy_share", {}).items():
    print(f"profiler  {phase}: " + ("no time" if share is None else f"a kernel was running {share:.1%} of the time"))
  if FLAGS.record:
    print(report(analyze(events), FLAGS.mode, engine.timeline.dropped), end="")
  for path in filter(None, (FLAGS.timeline, FLAGS.waterfall, FLAGS.trace_dir, FLAGS.json)):
    print(f"wrote     {path}")


if __name__ == "__main__":
  command_line.run(main)
