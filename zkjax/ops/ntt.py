"""Domains (draft skeleton)."""
import dataclasses

from zkjax.ops import bls12_381


@dataclasses.dataclass(frozen=True)
class Domain:
  """The coset shift * <w>, w of order 2^log2_size derived from the non-residue `generator` (5: snarkjs, 7: bellman, arkworks)."""
  log2_size: int
  generator: int = bls12_381.SNARKJS_GENERATOR
  shift: int = 1
