"""A Groth16 prover for BLS12-381 in pure Python on JAX."""
from zkjax import xla_flags

xla_flags.apply()                            # before anything can start a JAX backend

from zkjax import engine, groth16, ops  # noqa: E402

__version__ = "0.1.0"
__all__ = ["engine", "groth16", "ops"]
