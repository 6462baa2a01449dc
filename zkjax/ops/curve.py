"""Points of G1 (over Fp) and G2 (over Fp2) on y^2 = x^3 + b, in three coordinate systems, with complete formulas.

Formulas are those of the Explicit-Formulas Database (EFD, hyperelliptic.org/EFD, short Weierstrass, a = 0), with independent products made
by one multiplication. They are made complete, right for all points of the curve, at the cost of one product: where P = Q the chord through
both becomes the tangent, and the same steps with its slope double the point.
"""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from zkjax.ops import bls12_381
from zkjax.ops.field import Batched, Fp, Fp2, Fr, batch_inverse, broadcast, in_blocks, lanewise, products
from zkjax.ops.int_curve import CUBE_ROOT, PSI_X, PSI_Y
from zkjax.ops.programs import stored
from zkjax.pytree import pytree

_CURVE_LANES = 2048                          # lanes of one call of the curve equation on the host
_SUBGROUP_LANES = 128                        # and of the subgroup test, a thousand times the work a point
_SCALAR_BITS = 256                           # integer scalars are padded to a multiple of this, so that one compilation serves them all


class _Point(Batched):
  @property
  def field(self):
    """Fp or Fp2."""
    return type(self.x)

  def negate(self):
    """-P = (x, -y)."""
    return _negate(self)

  def multiply(self, scalar):
    """[scalar]P, by doubling and adding: 255 rounds for a scalar in Fr; any Python integer, not reduced mod r, so right off the subgroup.

    Args: scalar: Fr, one for each point (batches broadcast), or an int. Returns: XYZZ, or Jacobian for a Jacobian point.
    Cost: 20 products a bit. Not constant time in its memory accesses on every backend; the number of rounds does not depend on an Fr.
    """
    if isinstance(scalar, Fr):
      return _multiply(self, scalar.bits(), scalar.modulus.bit_length())
    bits = [int(b) for b in bin(abs(scalar))[:1:-1]]
    padded = np.zeros(-(-len(bits) // _SCALAR_BITS) * _SCALAR_BITS, np.uint32)
    padded[:len(bits)] = bits
    return _multiply(self.negate() if scalar < 0 else self, padded, len(bits))


@pytree
class Affine(_Point):
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

  @classmethod
  def generator(cls, field):
    """The generator of G1 (Fp) or G2 (Fp2)."""
    return cls.from_ints(field, bls12_381.G2_GENERATOR if field is Fp2 else bls12_381.G1_GENERATOR)

  @classmethod
  def infinity(cls, field, shape=()):
    """The neutral element, repeated."""
    return cls(field.zeros(shape), field.zeros(shape))

  def is_infinity(self):
    """bool[*batch]."""
    return self.x.is_zero() & self.y.is_zero()

  def equals(self, other):
    """bool[*batch]: the same points."""
    return self.x.equals(other.x) & self.y.equals(other.y)

  def to_jacobian(self):
    """(x, y, 1), or z = 0."""
    return Jacobian(self.x, self.y, self._one())

  def to_xyzz(self):
    """(x, y, 1, 1), or zz = zzz = 0."""
    one = self._one()
    return XYZZ(self.x, self.y, one, one)

  def _one(self):
    return self.field.zeros(()).select(self.is_infinity(), self.field.ones(()))


@pytree
class Jacobian(_Point):
  """(x / z^2, y / z^3); infinity is z = 0."""
  x: object
  y: object
  z: object

  @classmethod
  def infinity(cls, field, shape=()):
    """The neutral element, repeated."""
    return cls(field.ones(shape), field.ones(shape), field.zeros(shape))

  def is_infinity(self):
    """bool[*batch]."""
    return self.z.is_zero()

  def add(self, other):
    """P + Q for any points. EFD add-1998-cmo-2, 12M + 4S, and S."""
    return _jacobian_add(self, other)

  def add_mixed(self, other):
    """P + Q for an Affine Q, any points. add-1998-cmo-2 with z2 = 1, 8M + 3S, and S."""
    return _jacobian_add_mixed(self, other)

  def double(self):
    """2P for any point. EFD dbl-2009-l with D = 4 X B, 3M + 4S."""
    return _jacobian_double(self)

  def equals(self, other):
    """bool[*batch]: the same points, whatever their z."""
    return self.to_xyzz().equals(other.to_xyzz())

  def to_xyzz(self):
    """(x, y, z^2, z^3)."""
    zz = self.z * self.z
    return XYZZ(self.x, self.y, zz, zz * self.z)

  def to_affine(self):
    """(x, y); one inversion along the last batch axis."""
    return _jacobian_to_affine(self)


@pytree
class XYZZ(_Point):
  """(x / zz, y / zzz) with zz^3 = zzz^2; infinity is zz = zzz = 0."""
  x: object
  y: object
  zz: object
  zzz: object

  @classmethod
  def infinity(cls, field, shape=()):
    """The neutral element, repeated."""
    return cls(field.ones(shape), field.ones(shape), field.zeros(shape), field.zeros(shape))

  def is_infinity(self):
    """bool[*batch]."""
    return self.zz.is_zero()

  def add(self, other):
    """P + Q for any points. EFD add-2008-s, 12M + 2S, and S."""
    return _xyzz_add(self, other)

  def add_mixed(self, other):
    """P + Q for an Affine Q, any points. EFD madd-2008-s, 8M + 2S, and S."""
    return _xyzz_add_mixed(self, other)

  def double(self):
    """2P for any point. EFD dbl-2008-s-1, 6M + 3S."""
    return _xyzz_double(self)

  def equals(self, other):
    """bool[*batch]: the same points, whatever their zz."""
    return _xyzz_equals(self, other)

  def to_jacobian(self):
    """(x zz, y zzz, zz): z = zz, because its square and cube are zz and zzz times those of the old z."""
    return Jacobian(*products((self.x, self.zz), (self.y, self.zzz)), self.zz)

  def to_affine(self):
    """(x, y); one inversion along the last batch axis."""
    return _xyzz_to_affine(self)


@lanewise
def _negate(p):
  fields = {name: getattr(p, name) for name in p.__dataclass_fields__}
  return type(p)(**{**fields, "y": -p.y})


# XYZZ

def _xyzz_line(p, dx, dy, tangent):
  """The third point, negated, of the line through p with slope dy / (dx z): with P = dx and R = dy the end of add-2008-s; for the tangent,
  P = 2Y and R = 3X^2, that of dbl-2008-s-1, where P^3 does not enter x3. 8 products."""
  pp, rr = products((dx, dx), (dy, dy))
  ppp, v, zz = products((dx, pp), (p.x, pp), (p.zz, pp))
  x = rr - p.field.zeros(()).select(tangent, ppp) - v.double()
  left, right, zzz = products((dy, v - x), (p.y, ppp), (p.zzz, ppp))
  return XYZZ(x, left - right, zz, zzz)


def _triple(a):
  return a.double() + a


@lanewise
def _xyzz_double(p):
  u = p.y.double()
  v, xx = products((u, u), (p.x, p.x))
  m = _triple(xx)
  w, s, mm, zz = products((u, v), (p.x, v), (m, m), (v, p.zz))
  x = mm - s.double()
  left, right, zzz = products((m, s - x), (w, p.y), (w, p.zzz))
  return XYZZ(x, left - right, zz, zzz)


@lanewise
def _xyzz_add(p, q):
  u1, u2, s1, s2, zz, zzz, xx = products((p.x, q.zz), (q.x, p.zz), (p.y, q.zzz), (q.y, p.zzz), (p.zz, q.zz), (p.zzz, q.zzz), (p.x, p.x))
  dx, dy = u2 - u1, s2 - s1
  same = dx.is_zero() & dy.is_zero()
  base = p.select(same, XYZZ(u1, s1, zz, zzz))
  total = _xyzz_line(base, p.y.double().select(same, dx), _triple(xx).select(same, dy), same)
  return q.select(p.is_infinity(), p.select(q.is_infinity(), total))


@lanewise
def _xyzz_add_mixed(p, q):
  u2, s2, xx = products((q.x, p.zz), (q.y, p.zzz), (p.x, p.x))
  dx, dy = u2 - p.x, s2 - p.y
  same = dx.is_zero() & dy.is_zero()
  total = _xyzz_line(p, p.y.double().select(same, dx), _triple(xx).select(same, dy), same)
  return q.to_xyzz().select(p.is_infinity(), p.select(q.is_infinity(), total))


@lanewise
def _xyzz_equals(p, q):
  x1, x2, y1, y2 = products((p.x, q.zz), (q.x, p.zz), (p.y, q.zzz), (q.y, p.zzz))
  return jnp.where(p.is_infinity() | q.is_infinity(), p.is_infinity() & q.is_infinity(), x1.equals(x2) & y1.equals(y2))


@jax.jit
def _xyzz_to_affine(p):
  inverse = batch_inverse(p.zzz)
  return _scale_xyzz(p, inverse)


@lanewise
def _scale_xyzz(p, inverse):
  """zz / zzz = 1 / z, and its square is 1 / zz."""
  z, y = products((p.zz, inverse), (p.y, inverse))
  return Affine(p.x * (z * z), y)


# Jacobian

def _jacobian_line(x1, y1, z1, dx, dy, tangent):
  """As `_xyzz_line`: H = dx and r = dy, or the tangent's H = 2Y and r = 3X^2 (then V = 4XY^2 and Y H^3 = 8Y^4 are those of dbl-2009-l)."""
  hh, rr, z = products((dx, dx), (dy, dy), (dx, z1))
  hhh, v = products((dx, hh), (x1, hh))
  x = rr - type(x1).zeros(()).select(tangent, hhh) - v.double()
  left, right = products((dy, v - x), (y1, hhh))
  return Jacobian(x, left - right, z)


@lanewise
def _jacobian_double(p):
  a, b, yz = products((p.x, p.x), (p.y, p.y), (p.y, p.z))
  e = _triple(a)
  c, xb, f = products((b, b), (p.x, b), (e, e))
  d = xb.double().double()
  x = f - d.double()
  return Jacobian(x, e * (d - x) - c.double().double().double(), yz.double())


@lanewise
def _jacobian_add(p, q):
  zz1, zz2, z, y1z2, y2z1, xx = products((p.z, p.z), (q.z, q.z), (p.z, q.z), (p.y, q.z), (q.y, p.z), (p.x, p.x))
  u1, u2, s1, s2 = products((p.x, zz2), (q.x, zz1), (y1z2, zz2), (y2z1, zz1))
  dx, dy = u2 - u1, s2 - s1
  same = dx.is_zero() & dy.is_zero()
  dx, dy, z = p.y.double().select(same, dx), _triple(xx).select(same, dy), p.z.select(same, z)
  total = _jacobian_line(p.x.select(same, u1), p.y.select(same, s1), z, dx, dy, same)
  return q.select(p.is_infinity(), p.select(q.is_infinity(), total))


@lanewise
def _jacobian_add_mixed(p, q):
  zz, y2z1, xx = products((p.z, p.z), (q.y, p.z), (p.x, p.x))
  u2, s2 = products((q.x, zz), (y2z1, zz))
  dx, dy = u2 - p.x, s2 - p.y
  same = dx.is_zero() & dy.is_zero()
  dx, dy = p.y.double().select(same, dx), _triple(xx).select(same, dy)
  total = _jacobian_line(p.x, p.y, p.z, dx, dy, same)
  return q.to_jacobian().select(p.is_infinity(), p.select(q.is_infinity(), total))


@jax.jit
def _jacobian_to_affine(p):
  return _scale_jacobian(p, batch_inverse(p.z))


@lanewise
def _scale_jacobian(p, inverse):
  zz, y = products((inverse, inverse), (p.y, inverse))
  x, y = products((p.x, zz), (y, zz))
  return Affine(x, y)


# Multiples

@jax.jit
def _multiply(point, bits, count):
  """bits: uint32[at least count, *batch], low bit first; without a batch they are those of one scalar for all points."""
  if bits.ndim == 1:
    return in_blocks(lambda p: _double_and_add(p, bits, count), point)
  return in_blocks(functools.partial(_double_and_add, count=count), *broadcast(point, bits))


def _double_and_add(point, bits, count):
  system = Jacobian if isinstance(point, Jacobian) else XYZZ
  add = system.add_mixed if isinstance(point, Affine) else system.add

  def step(i, total):
    total = total.double()
    return add(total, point).select(bits[count - 1 - i] == 1, total)
  return lax.fori_loop(0, count, step, system.infinity(point.field, point.shape))


# Checks

def is_on_curve(points):
  """bool[*batch]: y^2 = x^3 + b, or infinity. The order is not checked.

  Args: points: Affine of any batch. Arrays are tested in blocks of one shape, so that a new length never compiles, and give a NumPy array.
  """
  return _in_host_blocks(_on_curve_block, _CURVE_LANES, points)


def is_in_subgroup(points):
  """bool[*batch]: on the curve and [r]P = O, read off an endomorphism (Scott, eprint 2021/1130), or infinity.

  On the curve, P is in G1 when phi(P) = -[x^2]P with phi(x, y) = (beta x, y), beta^3 = 1, and in G2 when psi(P) = [x]P with psi the
  untwisted Frobenius. Args: points: as `is_on_curve`. Cost: 63 doublings and 6 additions a point of G2, twice that in G1.
  """
  return is_on_curve(points) & _in_host_blocks(_in_subgroup_block, _SUBGROUP_LANES, points)


@lanewise
def _on_curve(p):
  b = p.field.from_ints(bls12_381.G2_B if p.field is Fp2 else bls12_381.G1_B)
  xx, yy = products((p.x, p.x), (p.y, p.y))
  return yy.equals(xx * p.x + b) | p.is_infinity()


@lanewise
def _in_subgroup(p):
  if p.field is Fp:
    image, rounds = Affine(p.x * Fp.from_ints(CUBE_ROOT), p.y), 2
  else:
    image, rounds = Affine(*products((p.x.conjugate(), Fp2.from_ints(PSI_X)), (p.y.conjugate(), Fp2.from_ints(PSI_Y)))), 1
  multiple = lax.fori_loop(0, rounds, lambda i, q: _times_parameter(q), p.to_xyzz())   # [|x|]P or [x^2]P, and x < 0
  return multiple.equals(image.negate().to_xyzz())


def _times_parameter(p):
  """[|x|]P. |x| has six ones: as many runs of doublings, each but the last followed by an addition."""
  digits = bin(-bls12_381.X)[3:]
  runs = [len(zeros) + 1 for zeros in digits.split("1")]
  runs[-1] -= 1

  def step(i, total):
    total = lax.fori_loop(0, jnp.asarray(runs)[i], lambda _, q: q.double(), total)
    return total.add(p).select(i < len(runs) - 1, total)
  return lax.fori_loop(0, len(runs), step, p)


_on_curve_block, _in_subgroup_block = stored(_on_curve), stored(_in_subgroup)


def _in_host_blocks(test, lanes, points):
  """test(points), called on blocks of `lanes` points; the last one is filled up with infinity, which is (0, 0)."""
  leaves = jax.tree.leaves(points)
  if any(isinstance(v, jax.core.Tracer) for v in leaves):
    return test(points)
  shape = points.shape
  flat = jax.tree.map(lambda v: np.asarray(v).reshape((v.shape[0], -1)), points)
  count = flat.shape[0]

  def block(start):
    size = min(lanes, count - start)
    return jax.tree.map(lambda v: np.pad(v[:, start:start + size], ((0, 0), (0, lanes - size))), flat)
  results = [test(block(start)) for start in range(0, count, lanes)]
  return np.concatenate([np.zeros(0, bool), *map(np.asarray, results)])[:count].reshape(shape)
