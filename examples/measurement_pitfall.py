"""Shows on a real run two clocks that fool people, beside the device's own.

  python examples/measurement_pitfall.py
  python examples/measurement_pitfall.py --zkey=circuit.zkey --wtns=witness.wtns --proofs=5

1. A stopwatch around the call that starts a proof. The call returns when everything is dispatched: it tells nothing about the proof.
2. A stopwatch from the queue to the finished bytes. It counts waiting for the queue, the host's arithmetic and encoding as the device's
   time, and two proofs that wait for one device add up to more than there is.
3. The union of the intervals in which the device worked, divided by the proofs.

Exit code: 0 done, 2 an error.
"""
import json
import statistics
import time

import command_line
import jax
import measure
from absl import flags

from zkjax import groth16
from zkjax.engine import Engine, Job
from zkjax.engine.gaps import analyze
from zkjax.groth16.formats.container import replace_file

FLAGS = flags.FLAGS
flags.DEFINE_string("zkey", None, "Proving key of snarkjs. Without --zkey and --wtns: those in examples/data.")
flags.DEFINE_string("wtns", None, "Witness of circom or snarkjs.")
flags.DEFINE_integer("proofs", 8, "Proofs in the run.", lower_bound=1)
flags.DEFINE_string("json", None, "Where to write the measurements.")

_CLOCKED = ("queue wait", "key load", "transfer", "slot wait", "dispatch", "device wait", "device", "finish wait", "finish", "serialize")


def main():
  data = command_line.DATA
  zkey, wtns = command_line.given_or_default((data / "purchase.zkey", data / "witness.wtns"), zkey=FLAGS.zkey, wtns=FLAGS.wtns)
  command_line.check_outputs(FLAGS.json)
  with command_line.progress("reading"):
    key, witness = groth16.read_zkey(zkey), groth16.read_wtns(wtns)
  with command_line.progress("proving for the first time, which compiles"):
    groth16.prove(key, witness)
  with command_line.progress("measuring"):
    dispatch = [stopwatch_around_dispatch(key, witness) for _ in range(FLAGS.proofs)]
    analysis, seconds = run(key, witness)
  numbers = make_numbers(dispatch, analysis, seconds)
  if FLAGS.json:
    with replace_file(FLAGS.json) as file:
      file.write(json.dumps(numbers, indent=2).encode() + b"\n")
  print_numbers(numbers)
  return command_line.DONE


def stopwatch_around_dispatch(key, witness):
  """The first pitfall, as one would write it: the clock is read before the proof is there."""
  start = time.perf_counter()
  pending = groth16.start(key, witness)
  seconds = time.perf_counter() - start
  groth16.finish(pending)
  return seconds


def run(key, witness):
  with Engine() as engine:
    engine.preload(key)
    start = time.perf_counter()
    engine.prove(Job(key, [witness] * FLAGS.proofs))
    seconds = time.perf_counter() - start
    return analyze(engine.timeline.events()), seconds


def make_numbers(dispatch, analysis, seconds):
  """All in seconds a proof; the shares are those that a reader of each clock would compute for the device."""
  busy = sum(end - start for use in analysis.devices.values() for start, end in use.busy) / 1e9
  clocked = [sum(times.parts[part] for part in _CLOCKED) for times in analysis.partitions]
  return {
      "device": measure.device_name(), "jax": jax.__version__, "proofs": FLAGS.proofs, "wall_seconds_per_proof": seconds / FLAGS.proofs,
      "dispatch_stopwatch_seconds": statistics.median(dispatch),
      "queue_to_bytes_stopwatch_seconds": statistics.median(clocked), "queue_to_bytes_share": sum(clocked) / seconds,
      "device_seconds_per_proof": busy / FLAGS.proofs, "device_busy_share": busy / seconds,
  }


def print_numbers(numbers):
  print(f"device    {numbers['device']}, JAX {numbers['jax']}: {numbers['proofs']} proofs, "
        f"{1e3 * numbers['wall_seconds_per_proof']:.1f} ms of wall time each")
  rows = [("1. stopwatch around the dispatching call", numbers["dispatch_stopwatch_seconds"], "says nothing about the device"),
          ("2. stopwatch from the queue to the bytes", numbers["queue_to_bytes_stopwatch_seconds"],
           f"as if the device were {numbers['queue_to_bytes_share']:.0%} busy"),
          ("3. union of the device's intervals", numbers["device_seconds_per_proof"], f"{numbers['device_busy_share']:.0%} busy")]
  for name, seconds, meaning in rows:
    print(f"{name:<44}{1e3 * seconds:>10.1f} ms a proof   {meaning}")


if __name__ == "__main__":
  command_line.run(main)
