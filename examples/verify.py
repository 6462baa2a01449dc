"""Verifies a proof of snarkjs or zkjax on BLS12-381.

  python examples/verify.py --vkey=vkey.json --proof=proof.json --public=public.json

Without flags it verifies the proof in examples/data. Exit code: 0 the proof is true, 1 it is false, 2 an error; what is not a proof at
all (a point off its curve or subgroup, another number of public signals, a number that is too large) is an error.
"""
import command_line
from absl import flags

from zkjax import groth16

FLAGS = flags.FLAGS
flags.DEFINE_string("vkey", None, "Verifying key. Without --vkey, --proof and --public: those in examples/data.")
flags.DEFINE_string("proof", None, "Proof.")
flags.DEFINE_string("public", None, "Public signals.")
flags.DEFINE_bool("allow_uncontributed", False, "Accept a key without a phase-2 contribution, for which anybody can forge proofs.")

DEFAULT = tuple(command_line.DATA / name for name in ("vkey.json", "proof.json", "public.json"))


def main():
  vkey, proof, public = command_line.given_or_default(DEFAULT, vkey=FLAGS.vkey, proof=FLAGS.proof, public=FLAGS.public)
  allow = FLAGS.allow_uncontributed
  key = groth16.prepare(groth16.read_vkey(vkey, allow_uncontributed=allow), allow_uncontributed=allow)
  true = groth16.verify(key, groth16.read_proof(proof), groth16.read_public(public))
  print("The proof is true." if true else "The proof is FALSE.")
  return command_line.DONE if true else command_line.FALSE_PROOF


if __name__ == "__main__":
  command_line.run(main)
