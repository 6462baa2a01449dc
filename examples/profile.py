"""Traces single operations and a proof with jax.profiler, and prints for each how long dispatching took, waiting, and its kernels.

  python examples/profile.py
  python examples/profile.py --zkey=circuit.zkey --wtns=witness.wtns --name=chain12

The trace goes to profiles/<name>, for TensorBoard (`tensorboard --logdir=profiles`, with the xprof plugin). Exit code: 0 done, 2 an error.
"""
import json
import pathlib
import sys
import time

# This script's own folder is on the path first, and its name is that of a module of the standard library that others import.
sys.path[:] = [path for path in sys.path if pathlib.Path(path or ".").resolve() != pathlib.Path(__file__).resolve().parent]
import cProfile  # noqa: E402, F401

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import command_line  # noqa: E402
import jax  # noqa: E402
import measure  # noqa: E402
import numpy as np  # noqa: E402
from absl import flags  # noqa: E402

from zkjax import groth16, profiling  # noqa: E402
from zkjax.groth16.formats.container import replace_file  # noqa: E402
from zkjax.groth16.prove import blinded, quotient_scalars  # noqa: E402
from zkjax.ops.ntt import ntt  # noqa: E402

FLAGS = flags.FLAGS
flags.DEFINE_string("zkey", None, "Proving key of snarkjs. Without --zkey and --wtns: those in examples/data.")
flags.DEFINE_string("wtns", None, "Witness of circom or snarkjs.")
flags.DEFINE_string("name", None, "Folder below --profiles for the trace. Default: the name of the key.")
flags.DEFINE_string("profiles", "profiles", "Where the folders of traces are.")
flags.DEFINE_string("json", None, "Where to write the measurements.")


def main():
  data = command_line.DATA
  zkey, wtns = command_line.given_or_default((data / "purchase.zkey", data / "witness.wtns"), zkey=FLAGS.zkey, wtns=FLAGS.wtns)
  command_line.check_outputs(FLAGS.json)
  folder = pathlib.Path(FLAGS.profiles) / (FLAGS.name or pathlib.Path(zkey).stem)
  with command_line.progress("reading"):
    key, witness = groth16.read_zkey(zkey), groth16.read_wtns(wtns)
  work = operations(key, witness)
  with command_line.progress("running each once, which compiles"):
    for run in work.values():
      jax.block_until_ready(run())
  rows = {}
  with command_line.progress("tracing"), profiling.capture(folder):
    for name, run in work.items():
      start = time.perf_counter_ns()
      result = run()
      dispatched = time.perf_counter_ns()
      jax.block_until_ready(result)
      rows[name] = start, dispatched, time.perf_counter_ns()
    proof_start = time.perf_counter_ns()
    prove(key, witness)
  trace = profiling.read(folder)
  of_proof = trace._replace(kernels=[kernel for kernel in trace.kernels if kernel.start_ns >= proof_start])
  numbers = {"device": measure.device_name(), "jax": jax.__version__, "folder": str(folder),
             "operations": {name: times_of(trace, *row) for name, row in rows.items()}, "stages": of_proof.kernel_seconds()}
  if FLAGS.json:
    with replace_file(FLAGS.json) as file:
      file.write(json.dumps(numbers, indent=2).encode() + b"\n")
  print_table(numbers)
  return command_line.DONE


def operations(key, witness):
  """{name: what dispatches it}. The sums of a proof plan on the host and return when they are done: all of their time is dispatch."""
  values = jax.device_put(jax.tree.map(lambda v: np.zeros((8, 1 << key.domain.log2_size), np.uint32), witness))
  transform = jax.jit(lambda v: ntt(key.domain, v))
  scalars = np.asarray(blinded(witness, groth16.Blinding.random()).to_plain())
  return {
      "fr_mul": jax.jit(lambda: values * values), "ntt": lambda: transform(values),
      "quotient": lambda: quotient_scalars(key.constraints, witness, key.domain, key.h_basis),
      "msm_a": lambda: key.bases.a.msm(scalars), "msm_b_g2": lambda: key.bases.b_g2.msm(scalars),
  }


def prove(key, witness):
  """A proof whose stages carry their names and a partition; on the CPU one after the other, so that every kernel belongs to one of them."""
  span = lambda name: jax.profiler.TraceAnnotation(name, job=0, partition=0)
  with jax.profiler.TraceAnnotation("dispatch", job=0, partition=0):
    pending = groth16.start(key, witness, span=span, threads=1)
  groth16.finish(pending)


def times_of(trace, start, dispatched, end):
  kernels = [(max(a, start), min(b, end)) for a, b in trace.busy_ns() if a < end and b > start]
  return {"dispatch_seconds": (dispatched - start) / 1e9, "wait_seconds": (end - dispatched) / 1e9,
          "kernel_seconds": sum(b - a for a, b in kernels) / 1e9}


def print_table(numbers):
  print(f"device    {numbers['device']}, JAX {numbers['jax']}")
  print(f"{'operation, ms':<16}{'dispatch':>12}{'wait':>12}{'kernels':>12}")
  for name, times in numbers["operations"].items():
    print(f"{name:<16}" + "".join(f"{1e3 * times[f'{part}_seconds']:>12.3f}" for part in ("dispatch", "wait", "kernel")))
  print(f"{'in one proof, ms':<40}{'kernels':>12}")
  for name, seconds in numbers["stages"].items():
    print(f"{name:<40}{1e3 * seconds:>12.3f}")
  print(f"wrote     {numbers['folder']}")


if __name__ == "__main__":
  command_line.run(main)
