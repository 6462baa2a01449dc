"""Makes the keys of a circuit, FOR TESTS ONLY: one party knows the secrets of the setup and could forge proofs.

  python examples/setup.py --r1cs=circuit.r1cs --zkey=circuit.zkey --vkey=vkey.json

snarkjs accepts the files. Keys that protect anything come from a ceremony of several parties (snarkjs: powersoftau, zkey contribute).
Exit code: 0 done, 2 an error.
"""
import command_line
from absl import flags

from zkjax import groth16
from zkjax.groth16.pairing import pairing

FLAGS = flags.FLAGS
flags.DEFINE_string("r1cs", None, "Circuit of circom, compiled with --prime bls12381.")
flags.DEFINE_string("zkey", None, "Where to write the proving key.")
flags.DEFINE_string("vkey", None, "Where to write the verifying key, which is inside the proving key too.")


def main():
  r1cs, zkey = command_line.given_or_default(None, r1cs=FLAGS.r1cs, zkey=FLAGS.zkey)
  command_line.check_outputs(zkey, FLAGS.vkey)
  command_line.warn("these keys are for tests: whoever runs a setup alone could keep its secrets and forge proofs.")
  with command_line.progress("reading"):
    constraints = groth16.read_r1cs(r1cs).constraints()
  with command_line.progress("making the keys"):
    key = groth16.setup(constraints)
  if FLAGS.vkey:
    groth16.write_vkey(FLAGS.vkey, key.vk, pairing(key.vk.alpha_g1.to_ints(), key.vk.beta_g2.to_ints()))
  groth16.write_zkey(zkey, key)
  print(f"circuit  {constraints.num_rows - constraints.num_public - 1} constraints, {key.num_wires} wires, {key.num_public} public, "
        f"domain 2^{key.domain.log2_size}")
  for path in filter(None, (zkey, FLAGS.vkey)):
    print(f"wrote    {path}")
  return command_line.DONE


if __name__ == "__main__":
  command_line.run(main)
