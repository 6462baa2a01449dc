"""Groth16 on BLS12-381 (eprint 2016/260): keys and witnesses in, proofs out, verification.

  key, witness = read_zkey("circuit.zkey"), read_wtns("witness.wtns")
  proof = prove(key, witness)
  assert verify(key.vk, proof, public_inputs(key, witness))
"""
from zkjax.groth16 import formats
from zkjax.groth16.formats.circom import read_r1cs, read_wtns, write_r1cs, write_wtns
from zkjax.groth16.formats.snarkjs import (
    read_proof,
    read_public,
    read_vkey,
    read_zkey,
    write_proof,
    write_public,
    write_vkey,
    write_zkey,
)
from zkjax.groth16.prove import finish, prove, prove_batch, public_inputs, start
from zkjax.groth16.r1cs import check_satisfied
from zkjax.groth16.setup import setup
from zkjax.groth16.types import Blinding, Constraints, FormatError, Proof, ProvingKey, UnsatisfiedError, VerifyingKey
from zkjax.groth16.verify import prepare, verify, verify_batch

__all__ = [
    "Blinding", "Constraints", "FormatError", "Proof", "ProvingKey", "UnsatisfiedError", "VerifyingKey", "check_satisfied", "finish",
    "formats", "prepare", "prove", "prove_batch", "public_inputs", "read_proof", "read_public", "read_r1cs", "read_vkey", "read_wtns",
    "read_zkey", "setup", "start", "verify", "verify_batch", "write_proof", "write_public", "write_r1cs", "write_vkey", "write_wtns",
    "write_zkey",
]
