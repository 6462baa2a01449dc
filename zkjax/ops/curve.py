"""Points (draft skeleton)."""
import numpy as np

from zkjax.ops.field import Fp2
from zkjax.pytree import pytree


@pytree
class Affine:
  """(x, y) over Fp (G1) or Fp2 (G2); infinity is (0, 0)."""
  x: object
  y: object

  @classmethod
  def from_ints(cls, field, points):
    """One point (x, y) or a list of them; coordinates are ints (Fp) or pairs of ints (Fp2), None is infinity. Not checked."""
    zero = (0, 0) if field is Fp2 else 0
    if points is None or isinstance(points, tuple):
      x, y = (zero, zero) if points is None else points
      return cls(field.from_ints(x), field.from_ints(y))
    pairs = [(zero, zero) if p is None else p for p in points]
    column = lambda k: np.array([p[k] for p in pairs], dtype=object).reshape((len(pairs),) + ((2,) if field is Fp2 else ()))
    return cls(field.from_ints(column(0)), field.from_ints(column(1)))

  def to_ints(self):
    """The inverse of `from_ints`: (x, y) or a list; None for infinity."""
    x, y = self.x.to_ints(), self.y.to_ints()
    none = lambda a, b: None if a in (0, (0, 0)) and b in (0, (0, 0)) else (a, b)
    return [none(a, b) for a, b in zip(x, y)] if isinstance(x, list) else none(x, y)


def is_on_curve(points):
  """bool[*batch]: y^2 = x^3 + b, or infinity. (draft on Python ints)"""
  from zkjax.ops import bls12_381 as card
  p = card.P
  def check(point):
    if point is None:
      return True
    x, y = point
    if isinstance(points.x, Fp2):
      mul = lambda a, b: ((a[0] * b[0] - a[1] * b[1]) % p, (a[0] * b[1] + a[1] * b[0]) % p)
      x3 = mul(mul(x, x), x)
      return mul(y, y) == ((x3[0] + 4) % p, (x3[1] + 4) % p)
    return (y * y - x**3 - 4) % p == 0
  ints = points.to_ints()
  return np.array([check(q) for q in ints]) if isinstance(ints, list) else np.array(check(ints))


def is_in_subgroup(points):
  """bool[*batch]: on the curve and of order dividing r. (draft)"""
  raise ValueError("skeleton")
