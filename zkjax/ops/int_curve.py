"""G1 and G2 on Python integers: for the few points of a proof or a verifying key, where compiling for JAX would cost more.

A coordinate is an int (G1) or a pair of ints (c0, c1) (G2), always reduced mod p. An affine point is (x, y), infinity is None.
Inside, points are Jacobian triples (X, Y, Z) for (X / Z^2, Y / Z^3), infinity has Z = 0. Not constant time: never give it secrets.
"""
from zkjax.ops.bls12_381 import G1_B, G1_GENERATOR, G2_B, G2_GENERATOR, P, X


class IntFp:
  """The field Fp on ints in [0, p). All methods are static, so that one curve code serves Fp and Fp2."""
  zero, one = 0, 1

  add = staticmethod(lambda a, b: (a + b) % P)
  sub = staticmethod(lambda a, b: (a - b) % P)
  negate = staticmethod(lambda a: -a % P)
  mul = staticmethod(lambda a, b: a * b % P)
  square = staticmethod(lambda a: a * a % P)
  scale = staticmethod(lambda a, k: a * k % P)
  inverse = staticmethod(lambda a: pow(a, -1, P))
  is_reduced = staticmethod(lambda a: 0 <= a < P)
  is_larger = staticmethod(lambda a: a > (P - 1) // 2)        # the ZCash sign: a > -a as integers in [0, p)

  @staticmethod
  def sqrt(a):
    """A square root of a, or None: a^((p + 1) / 4), because p = 3 mod 4."""
    root = pow(a, (P + 1) // 4, P)
    return root if root * root % P == a else None


class IntFp2:
  """The field Fp2 = Fp[u] / (u^2 + 1) on pairs (c0, c1) of ints in [0, p)."""
  zero, one = (0, 0), (1, 0)

  add = staticmethod(lambda a, b: ((a[0] + b[0]) % P, (a[1] + b[1]) % P))
  sub = staticmethod(lambda a, b: ((a[0] - b[0]) % P, (a[1] - b[1]) % P))
  negate = staticmethod(lambda a: (-a[0] % P, -a[1] % P))
  square = staticmethod(lambda a: ((a[0] + a[1]) * (a[0] - a[1]) % P, 2 * a[0] * a[1] % P))
  scale = staticmethod(lambda a, k: (a[0] * k % P, a[1] * k % P))
  is_reduced = staticmethod(lambda a: 0 <= a[0] < P and 0 <= a[1] < P)

  @staticmethod
  def mul(a, b):
    """(a0 b0 - a1 b1) + ((a0 + a1)(b0 + b1) - a0 b0 - a1 b1) u: Karatsuba, three products."""
    low, high = a[0] * b[0], a[1] * b[1]
    return (low - high) % P, ((a[0] + a[1]) * (b[0] + b[1]) - low - high) % P

  @staticmethod
  def inverse(a):
    """(c0 - c1 u) / (c0^2 + c1^2)."""
    norm = pow(a[0] * a[0] + a[1] * a[1], -1, P)
    return a[0] * norm % P, -a[1] * norm % P

  @staticmethod
  def power(a, exponent):
    """a^exponent, exponent >= 0."""
    result = IntFp2.one
    for bit in bin(exponent)[2:]:
      result = IntFp2.square(result)
      result = IntFp2.mul(result, a) if bit == "1" else result
    return result

  @staticmethod
  def is_larger(a):
    """The ZCash sign: a > -a, comparing c1 first and c0 when c1 = 0."""
    return IntFp.is_larger(a[1] if a[1] else a[0])

  @staticmethod
  def sqrt(a):
    """A square root x0 + x1 u of a, or None.

    With n = sqrt(a0^2 + a1^2) (exists if a is a square), x0^2 = (a0 + n) / 2 or (a0 - n) / 2 and x1 = a1 / (2 x0). When a1 = 0
    one of a0, -a0 is a square, because -1 is none.
    """
    if a[1] == 0:
      root = IntFp.sqrt(a[0])
      return (root, 0) if root is not None else (0, IntFp.sqrt(-a[0] % P))
    norm = IntFp.sqrt((a[0] * a[0] + a[1] * a[1]) % P)
    if norm is None:
      return None
    half = (P + 1) // 2
    x0 = IntFp.sqrt((a[0] + norm) * half % P)
    x0 = IntFp.sqrt((a[0] - norm) * half % P) if x0 is None else x0
    root = (x0, a[1] * half * pow(x0, -1, P) % P)
    return root if IntFp2.square(root) == a else None


class IntCurve:
  """y^2 = x^3 + b over `field`, with complete addition on affine points (x, y) or None."""

  def __init__(self, field, b, generator, endomorphism, power, cube_root):
    """`endomorphism` acts on the order-r subgroup as [x] (power = 1) or [-x^2] (power = 2), and there [x^2](X, Y) = (cube_root X, -Y)."""
    self.field, self.b, self.generator, self.cube_root = field, b, generator, cube_root
    self._endomorphism, self._power = endomorphism, power

  def curve_equation(self, x):
    """x^3 + b."""
    f = self.field
    return f.add(f.mul(f.square(x), x), self.b)

  def is_on_curve(self, point):
    """Infinity, or reduced coordinates with y^2 = x^3 + b. The order is not checked: see `is_in_subgroup`."""
    if point is None:
      return True
    x, y = point
    return self.field.is_reduced(x) and self.field.is_reduced(y) and self.field.square(y) == self.curve_equation(x)

  def is_in_subgroup(self, point):
    """[r]P = O for a point on the curve, read off an endomorphism (Scott, eprint 2021/1130): phi(P) = -[x^2]P, psi(P) = [x]P."""
    if point is None:
      return True
    multiple = self.to_jacobian(point)
    for _ in range(self._power):
      multiple = self._jacobian_multiply(multiple, -X)           # x < 0; after both powers -[x]P or [x^2]P
    return self.jacobian_add(multiple, self.to_jacobian(self._endomorphism(point)))[2] == self.field.zero

  def negate(self, point):
    """-P = (x, -y)."""
    return None if point is None else (point[0], self.field.negate(point[1]))

  def add(self, p, q):
    """P + Q, for any P and Q, equal, opposite and infinite ones included."""
    return self.to_affine(self.jacobian_add(self.to_jacobian(p), self.to_jacobian(q)))

  def double(self, p):
    """P + P."""
    return self.to_affine(self.jacobian_double(self.to_jacobian(p)))

  def multiply(self, point, scalar):
    """[scalar]P for any integer, without reducing it mod r: points outside the subgroup are multiplied correctly too."""
    base = self.to_jacobian(self.negate(point) if scalar < 0 else point)
    return self.to_affine(self._jacobian_multiply(base, abs(scalar)))

  def sum(self, points):
    """The sum of affine points; one inversion in all."""
    total = self.to_jacobian(None)
    for point in points:
      total = self.jacobian_add(total, self.to_jacobian(point))
    return self.to_affine(total)

  def combination(self, terms):
    """sum [k]P over pairs (k, P) of non-negative integers and affine points: the doublings are shared (Straus 1964).

    Scalars are written with digits -1, 0, 1 of which no two neighbours are nonzero: a third of them are, on average.
    """
    points = []                                # those with a digit other than 0 at place i, or their negatives, by i
    for k, p in terms:
      if p is None:
        continue
      signed = self.to_jacobian(p), self.to_jacobian(self.negate(p))
      while k:
        i = (k & -k).bit_length() - 1
        points += [[] for _ in range(i + 1 - len(points))]
        negative = k >> i & 3 == 3
        points[i].append(signed[negative])
        k += (1 << i) if negative else -(1 << i)
    total = self.to_jacobian(None)
    for part in reversed(points):
      total = self.jacobian_double(total)
      for point in part:
        total = self.jacobian_add(total, point)
    return self.to_affine(total)

  def subgroup_combination(self, terms):
    """`combination` for points of order r and scalars below r, with half the doublings: k = k0 + k1 x^2, [x^2](X, Y) = (cube_root X, -Y)
    (Gallant, Lambert, Vanstone 2001)."""
    halves = []
    for k, p in terms:
      high, low = divmod(k, X * X)
      halves += [(low, p)] + ([(high, (self.field.scale(p[0], self.cube_root), self.field.negate(p[1])))] if p is not None else [])
    return self.combination(halves)

  def to_jacobian(self, point):
    """(x, y, 1), or (1, 1, 0) for infinity."""
    f = self.field
    return (f.one, f.one, f.zero) if point is None else (point[0], point[1], f.one)

  def to_affine(self, p):
    """(X / Z^2, Y / Z^3), or None for infinity."""
    f = self.field
    if p[2] == f.zero:
      return None
    inverse = f.inverse(p[2])
    square = f.square(inverse)
    return f.mul(p[0], square), f.mul(p[1], f.mul(square, inverse))

  def _jacobian_negate(self, p):
    return p[0], self.field.negate(p[1]), p[2]

  def jacobian_double(self, p):
    """EFD dbl-2009-l for a = 0. Right at infinity (Z = 0) and at points of order two (Y = 0 gives Z3 = 0)."""
    f = self.field
    x, y, z = p
    a, b = f.square(x), f.square(y)
    d = f.scale(f.mul(x, b), 4)
    e = f.scale(a, 3)
    x3 = f.sub(f.square(e), f.scale(d, 2))
    y3 = f.sub(f.mul(e, f.sub(d, x3)), f.scale(f.square(b), 8))
    return x3, y3, f.scale(f.mul(y, z), 2)

  def jacobian_add(self, p, q):
    """Complete addition: H = U2 - U1, r = S2 - S1, X3 = r^2 - H^3 - 2 U1 H^2 (Cohen, Miyaji, Ono 1998), or doubling if P = Q."""
    f = self.field
    if p[2] == f.zero or q[2] == f.zero:
      return q if p[2] == f.zero else p
    z1, z, u1, s1 = f.square(p[2]), p[2], p[0], p[1]
    if q[2] != f.one:
      z2 = f.square(q[2])
      z, u1, s1 = f.mul(z, q[2]), f.mul(u1, z2), f.mul(s1, f.mul(z2, q[2]))
    u2, s2 = f.mul(q[0], z1), f.mul(q[1], f.mul(z1, p[2]))
    h, r = f.sub(u2, u1), f.sub(s2, s1)
    if h == f.zero:
      return self.jacobian_double(p) if r == f.zero else (f.one, f.one, f.zero)
    h2 = f.square(h)
    h3, v = f.mul(h2, h), f.mul(u1, h2)
    x3 = f.sub(f.sub(f.square(r), h3), f.scale(v, 2))
    y3 = f.sub(f.mul(r, f.sub(v, x3)), f.mul(s1, h3))
    return x3, y3, f.mul(h, z)

  def _jacobian_multiply(self, p, scalar):
    total = self.to_jacobian(None)
    for bit in bin(scalar)[2:]:
      total = self.jacobian_double(total)
      total = self.jacobian_add(total, p) if bit == "1" else total
    return total


def _phi(point):
  """(beta x, y) with beta a primitive cube root of unity in Fp, the one that gives -[x^2] on G1."""
  return point[0] * CUBE_ROOT % P, point[1]


def _psi(point):
  """The untwisted Frobenius (conj(x) / xi^((p-1)/3), conj(y) / xi^((p-1)/2)) with xi = 1 + u (Galbraith, Scott 2008)."""
  conjugate = lambda a: (a[0], -a[1] % P)
  return IntFp2.mul(conjugate(point[0]), PSI_X), IntFp2.mul(conjugate(point[1]), PSI_Y)


CUBE_ROOT = pow(2, (P - 1) // 3, P)
PSI_X = IntFp2.inverse(IntFp2.power((1, 1), (P - 1) // 3))
PSI_Y = IntFp2.inverse(IntFp2.power((1, 1), (P - 1) // 2))

G1 = IntCurve(IntFp, G1_B, G1_GENERATOR, _phi, 2, CUBE_ROOT)
G2 = IntCurve(IntFp2, G2_B, G2_GENERATOR, _psi, 1, (PSI_X[0]**2 + PSI_X[1]**2) % P)
