"""Multi-scalar multiplication (draft: fixed bases on the CPU)."""
import dataclasses

from zkjax.ops.cpu import msm as cpu


@dataclasses.dataclass(frozen=True, eq=False)
class FixedBases:
  """Bases that do not change, such as a query of a proving key, prepared for the platform that will use them."""
  prepared: cpu.Bases

  @classmethod
  def prepare(cls, points):
    """From an Affine batch [n] in G1 or G2; infinite points are dropped here once."""
    return cls(cpu.prepare(points))

  def msm(self, scalars):
    """sum_i scalars[i] * points[i], scalars plain uint32[8, n] below r; an affine integer point, None for infinity."""
    return cpu.msm(self.prepared, scalars)
