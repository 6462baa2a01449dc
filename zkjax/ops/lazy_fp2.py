"""Fp2 in lazy limbs: see `limbs` for what lazy means and how bounds are proven while tracing."""
from fractions import Fraction

import jax.numpy as jnp
import numpy as np

from zkjax.ops.limbs import Lazy, wide


class LazyFp2:
  """c0 + c1 u, u^2 = -1: one `Lazy` whose limbs are uint32[2, *batch], so that every operation is written once for c0 and c1.

  Products are schoolbook's, a (b0 + b1 u) = a0 (b0, b1) + a1 (-b1, b0), two reductions: each column is one sum, where Karatsuba's three
  products would be written out as 64-bit columns and read again (measured: 1.9 times slower on XLA:CPU).
  """

  def __init__(self, both):
    self.both = both

  @classmethod
  def stacked(cls, modulus, array, bound, limb_max=None):
    """From limbs uint32[2 * num, *batch], the components of a limb beside each other."""
    return cls(Lazy.stacked(modulus, array.reshape((modulus.num, 2) + array.shape[1:]), bound, limb_max))

  @property
  def bound(self):
    return self.both.bound

  @property
  def component(self):
    """(c0, c1), limbs uint32[1, *batch]."""
    both = self.both
    return [Lazy(both.modulus, [v[k:k + 1] for v in both.limbs], both.bound, both.limb_max) for k in range(2)]

  def __add__(self, other):
    return LazyFp2(self.both + other.both)

  def __sub__(self, other):
    return LazyFp2(self.both - other.both)

  def __mul__(self, other):
    a, b = self, other
    while not a._fits(b):
      a, b = (a.carried(), b) if a.both.limb_max > b.both.limb_max else (a, b.carried())
    (a0, a1), swapped = a.component, b._swapped()
    turned = (_zero(swapped) - swapped).select(_first(swapped), swapped)
    return LazyFp2((wide(a0, b.both, whole=True) + wide(a1, turned, whole=True)).redc())

  def square(self):
    """(c0 + c1)(c0 - c1) + c0 (2 c1) u: two products."""
    both, swapped = self.both, self._swapped()
    first = _first(both)
    left = (both + swapped).select(first, swapped)
    right = (both - swapped).select(first, both + both)
    return LazyFp2(wide(left, right, whole=True).redc())

  def conjugate(self):
    return LazyFp2(self.both.select(_first(self.both), _zero(self.both) - self.both))

  def _swapped(self):
    """c1, c0 as a Lazy."""
    return Lazy(self.both.modulus, [v[::-1] for v in self.both.limbs], self.both.bound, self.both.limb_max)

  def _fits(self, other):
    """Whether a column of a0 b0 + a1 (-b1), with limbs of -b1 up to limb_max + 2^bits, leaves room for a reduction."""
    m = self.both.modulus
    return m.num * (self.both.limb_max * (2 * other.both.limb_max + (1 << m.bits)) + 2 * (1 << 2 * m.bits)) < 1 << 64

  def select(self, condition, other):
    return LazyFp2(self.both.select(condition, other.both))

  def is_zero(self):
    return self.both.is_zero().all(axis=0)

  def carried(self):
    return LazyFp2(self.both.carried())

  def weakly_reduced(self):
    return LazyFp2(self.both.weakly_reduced())

  def stack(self):
    """uint32[2 * num, *batch], carried; see `stacked`."""
    return self.both.stack().reshape((-1,) + self.both.limbs[0].shape[1:])


def _zero(like):
  return Lazy(like.modulus, [jnp.zeros_like(v) for v in like.limbs], Fraction(1, like.modulus.value), 0)


def _first(like):
  """bool, true at the first component."""
  return np.array([True, False]).reshape((2,) + (1,) * (like.limbs[0].ndim - 1))
