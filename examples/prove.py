"""Proves that a witness satisfies a circuit, with a key and a witness of circom and snarkjs on BLS12-381, and verifies the proof.

  python examples/prove.py
  python examples/prove.py --zkey=circuit.zkey --wtns=witness.wtns --proof=proof.json --public=public.json

Without flags it proves the small circuit in examples/data. The output files are what `snarkjs groth16 verify` takes; they are written
only when everything succeeded. Exit code: 0 done, 1 the proof is false, 2 an error.
"""
import functools
import json
import pathlib
import statistics

import command_line
import jax
import measure
import numpy as np
from absl import flags

from zkjax import groth16
from zkjax.groth16.formats.container import replace_file
from zkjax.groth16.prove import assemble, blinded, quotient_scalars

FLAGS = flags.FLAGS
flags.DEFINE_string("zkey", None, "Proving key of snarkjs. Without --zkey and --wtns: those in examples/data.")
flags.DEFINE_string("wtns", None, "Witness of circom or snarkjs.")
flags.DEFINE_string("r1cs", None, "Circuit of circom. Checks the witness before proving and names the first constraint that it violates.")
flags.DEFINE_string("proof", None, "Where to write the proof.")
flags.DEFINE_string("public", None, "Where to write the public signals.")
flags.DEFINE_bool("verify", True, "Verify the proof with the verifying key inside the proving key.")
flags.DEFINE_integer("repeat", None, "Prove so many times more and report the median, in all and stage by stage. Default: 3 with --json, "
                     "0 without.", lower_bound=0)
flags.DEFINE_string("json", None, "Where to write the measurements.")
flags.DEFINE_bool("allow_uncontributed", False, "Accept a key without a phase-2 contribution, for which anybody can forge proofs.")
flags.DEFINE_string("test_blinding", None, "Two integers r,s in place of the random blinding, to compare with another prover. "
                    "Such a proof reveals what it should hide.")


def main():
  zkey, wtns = command_line.given_or_default((DATA_ZKEY, DATA_WTNS), zkey=FLAGS.zkey, wtns=FLAGS.wtns)
  command_line.check_outputs(FLAGS.proof, FLAGS.public, FLAGS.json)
  blinding, clock = test_blinding(), measure.CompileClock()
  with command_line.progress("reading"):
    key, witness = load(zkey, wtns)
  if FLAGS.r1cs:
    with command_line.progress("checking the witness"):
      groth16.check_satisfied(groth16.read_r1cs(FLAGS.r1cs).constraints(), witness)
  with command_line.progress("proving for the first time, which compiles"):
    proof, *first = measure.timed(lambda: groth16.prove(key, witness, blinding))
  public = groth16.public_inputs(key, witness)
  if FLAGS.verify and not verify(key, proof, public):
    print("The proof is FALSE, nothing was written. Either the witness does not satisfy the circuit (--r1cs=circuit.r1cs names the "
          "constraint), or it belongs to another key.")
    return command_line.FALSE_PROOF
  repeat = FLAGS.repeat if FLAGS.repeat is not None else 3 if FLAGS.json else 0
  with command_line.progress(f"proving {repeat} times more"):
    warm = [measure.timed(lambda: groth16.prove(key, witness, blinding))[1:] for _ in range(repeat)]
  with command_line.progress("measuring the stages"):
    stages = median_of_stages([time_stages(zkey, wtns, blinding) for _ in range(repeat)])
  report = make_report(zkey, clock, first, warm, stages)
  write_outputs(proof, public, report)
  print_report(key, report)
  return command_line.DONE


DATA_ZKEY, DATA_WTNS = command_line.DATA / "purchase.zkey", command_line.DATA / "witness.wtns"


def load(zkey, wtns):
  return groth16.read_zkey(zkey, allow_uncontributed=FLAGS.allow_uncontributed), groth16.read_wtns(wtns)


def verify(key, proof, public):
  return groth16.verify(groth16.prepare(key.vk, allow_uncontributed=FLAGS.allow_uncontributed), proof, public)


def test_blinding():
  """The Blinding of --test_blinding, or None. Errors do not repeat the value: it is a secret."""
  if FLAGS.test_blinding is None:
    return None
  try:
    r, s = (int(value) for value in FLAGS.test_blinding.split(","))
  except ValueError:
    raise ValueError("--test_blinding takes two integers, such as --test_blinding=7,11") from None
  command_line.warn("--test_blinding fixes the randomness of the proof. Whoever knows it learns about the witness: "
                    "never publish such a proof of a secret.")
  return groth16.Blinding(r, s)


def time_stages(zkey, wtns, blinding):
  """{stage: wall seconds} of one proof with the stages one after the other, each finished before the next. `prove` overlaps the sums."""
  seconds = {}

  def stage(name, work):
    result, seconds[name], _ = measure.timed(work)
    return result

  key, witness = stage("load", lambda: load(zkey, wtns))
  bases = stage("prepare", lambda: key.bases)
  exponents = stage("quotient", lambda: np.asarray(quotient_scalars(key.constraints, witness, key.domain, key.h_basis)))
  blinding = blinding or groth16.Blinding.random()
  scalars = np.asarray(blinded(witness, blinding).to_plain())
  inputs = {"a": scalars, "b_g1": scalars, "b_g2": scalars, "h": exponents, "l": scalars}
  sums = {name: stage(f"msm_{name}", functools.partial(getattr(bases, name).msm, values)) for name, values in inputs.items()}
  proof = stage("assemble", lambda: assemble(sums, blinding))
  if FLAGS.verify:
    stage("verify", lambda: verify(key, proof, groth16.public_inputs(key, witness)))
  return seconds


def median_of_stages(runs):
  return {name: statistics.median(run[name] for run in runs) for name in runs[0]} if runs else {}


def make_report(zkey, clock, first, warm, stages):
  """The object that --json writes. Without repeats the warm times are null."""
  wall, cpu = (statistics.median(times) for times in zip(*warm)) if warm else (None, None)
  return {
      "circuit": pathlib.Path(zkey).stem,
      "device": measure.device_name(),
      "jax": jax.__version__,
      "verified": True if FLAGS.verify else None,
      "compile_seconds": clock.seconds,
      "peak_rss_mb": measure.peak_rss_mb(),
      "prove": {"first_wall_seconds": first[0], "warm_wall_seconds": wall, "warm_cpu_seconds": cpu},
      "stages": stages,
  }


def write_outputs(proof, public, report):
  if FLAGS.public:
    groth16.write_public(FLAGS.public, public)
  if FLAGS.proof:
    groth16.write_proof(FLAGS.proof, proof)
  if FLAGS.json:
    with replace_file(FLAGS.json) as file:
      file.write(json.dumps(report, indent=2).encode() + b"\n")


def print_report(key, report):
  times = report["prove"]
  print(f"circuit  {report['circuit']}: {key.num_wires} wires, {key.num_public} public, domain 2^{key.domain.log2_size}")
  print(f"device   {report['device']}, JAX {report['jax']}, {report['peak_rss_mb']:.0f} MB of memory at most")
  print(f"prove    {times['first_wall_seconds']:.2f} s the first time; {report['compile_seconds']:.2f} s of the run went into compiling")
  if report["stages"]:
    print(f"again    {times['warm_wall_seconds']:.3f} s, {times['warm_cpu_seconds']:.3f} s of CPU (medians)")
    print("stages  ", ", ".join(f"{name} {seconds:.3f} s" for name, seconds in report["stages"].items()))
  print("proof   ", "verified" if report["verified"] else "not verified")
  for path in filter(None, (FLAGS.proof, FLAGS.public, FLAGS.json)):
    print(f"wrote    {path}")


if __name__ == "__main__":
  command_line.run(main)
