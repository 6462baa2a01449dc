"""The group law of one thread, over Fp (G1) or Fp2 (G2), complete: every exceptional case is a branch that no thread takes in the usual
case.

XYZZ coordinates as in `curve.XYZZ`: (x / zz, y / zzz), infinity is zz = 0, stored with all words of zz zero. A finite zz is a product of
values that are not 0 mod p, so its words are not all zero either, and the test is on words.
"""
from zkjax.ops.gpu.program import constant_field, load_field, store_field, sum_of_products
from zkjax.ops.limbs import FP
from zkjax.pytree import pytree


@pytree
class Xyzz:
  """(x, y, zz, zzz): Elements or Pairs of one thread."""
  x: object
  y: object
  zz: object
  zzz: object

  @property
  def builder(self):
    return self.x.builder

  def is_infinity(self):
    """Flag."""
    return self.zz.all_words_zero()

  def reduced(self):
    """Coordinates in [0, p)."""
    return Xyzz(*(v.reduced() for v in (self.x, self.y, self.zz, self.zzz)))


def affine_words(degree):
  """Words of an affine point: x, y."""
  return 2 * degree * FP.words


def xyzz_words(degree):
  """Words of a point in XYZZ coordinates."""
  return 4 * degree * FP.words


def load_affine(b, ref, row, degree, negative):
  """(x, y) of a row of uint32[rows, affine_words], y negated where the flag `negative` is set. Infinity is (0, 0), and its negative too."""
  x, y = (load_field(b, ref, row, k * degree * FP.words, degree) for k in range(2))
  return x, negative.choose(-y, y)


def store_xyzz(b, ref, row, degree, p):
  """Writes a point to a row of uint32[rows, xyzz_words]."""
  for k, value in enumerate((p.x, p.y, p.zz, p.zzz)):
    store_field(b, ref, row, k * degree * FP.words, value)


def infinity(b, degree):
  """All words zero."""
  zero = constant_field(b, degree, 0)
  return Xyzz(zero, zero, zero, zero)


def from_affine(b, degree, x, y):
  """(x, y, 1, 1), or infinity for (0, 0)."""
  one, zero = constant_field(b, degree, 1), constant_field(b, degree, 0)
  z = (x.all_words_zero() & y.all_words_zero()).choose(zero, one)
  return Xyzz(x, y, z, z)


def double(p):
  """2P. EFD dbl-2008-s-1, 6M + 3S; infinity stays infinity because V and W multiply zz and zzz. No point of either group has y = 0 (odd
  orders)."""
  return _double(p.x, p.y, lambda v: v * p.zz, lambda w: w * p.zzz)


def _double(x, y, times_zz, times_zzz):
  u = y.double()
  v = u.square()
  w = u * v
  s = x * v
  xx = x.square()
  m = xx.double() + xx
  x3 = m.square() - s - s
  y3 = sum_of_products((m, s - x3), (-w, y))
  return Xyzz(x3, y3, times_zz(v), times_zzz(w))


def add_mixed(b, degree, p, load):
  """P + Q for an affine Q = load(). EFD madd-2008-s, 8M + 2S, with the difference of products in y3 under one reduction.

  `load` is called again in the rare branch, so that Q need not be kept: infinite P or Q, or equal x (then 2Q, or infinity for opposite
  points).
  """
  x2, y2 = load()
  dx, dy = x2 * p.zz - p.x, y2 * p.zzz - p.y
  rare = dx.is_zero() | p.is_infinity() | (x2.all_words_zero() & y2.all_words_zero())

  def exception():
    x, y = load()
    nothing = x.all_words_zero() & y.all_words_zero()
    equal = dy.is_zero() & ~nothing & ~p.is_infinity()
    same = b.when(equal, lambda: _double(x, y, lambda v: v, lambda w: w), lambda: infinity(b, degree))
    return nothing.choose(p, p.is_infinity().choose(from_affine(b, degree, x, y), same))
  return b.when(rare, exception, lambda: _chord(dx, dy, p.x, p.y, p.zz, p.zzz))


def _chord(dx, dy, x1, y1, zz, zzz):
  """The end of madd-2008-s: 6M + 2S of which y3 takes two."""
  pp = dx.square()
  ppp = dx * pp
  zz = zz * pp
  v = x1 * pp
  x3 = dy.square() - ppp - v - v
  y3 = sum_of_products((dy, v - x3), (-ppp, y1))
  return Xyzz(x3, y3, zz, zzz * ppp)
