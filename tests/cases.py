"""Edge values: where carries, borrows, reductions and the special cases of the group law live. Imports nothing from zkjax."""
import random

import oracle
from oracle import P, R


def scalars():
  """Scalars in [0, r): ends, halves, powers of two and their neighbours, digit patterns, the order of another field."""
  powers = [2**k + d for k in (1, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 159, 160, 191, 192, 223, 224, 253, 254) for d in (-1, 0, 1)]
  digits = [int(byte * 32, 16) for byte in ("01", "08", "11", "55", "70")] + [int("00ff" * 16, 16), int("0000ffff" * 8, 16)]
  ends = [0, 1, 2, 3, R - 1, R - 2, R - 3, (R - 1) // 2, (R + 1) // 2, (2**255 - 19) % R, 2**255 % R, 2**256 % R, 2**512 % R]
  return list(dict.fromkeys(v % R for v in ends + powers + digits))


def base_field():
  """Elements of Fp in [0, p), as plain values or as Montgomery limbs: both readings hit the same carries."""
  return _limb_patterns(P, 12)


def scalar_field():
  """Elements of Fr in [0, r): limb patterns beside `scalars`."""
  return list(dict.fromkeys(scalars() + _limb_patterns(R, 8)))


def _limb_patterns(modulus, num_limbs):
  bits = 32 * num_limbs
  ends = [0, 1, 2, modulus - 1, modulus - 2, (modulus - 1) // 2, (modulus + 1) // 2]
  low_ones = [2**(32 * k) - 1 for k in range(1, num_limbs)]                              # k limbs of all ones
  high_ones = [v for k in range(num_limbs) if (v := (modulus >> 32 * k << 32 * k) - 1) > 0]   # top limbs of the modulus, ones below
  one_limb = [(2**32 - 1) << 32 * k for k in range(num_limbs - 1)]
  halves = [2**(32 * k) for k in range(num_limbs)] + [2**(32 * k + 16) - 1 for k in range(num_limbs)]
  alternating = [int("ffff0000" * (num_limbs - 1), 16), int("0000ffff" * (num_limbs - 1), 16), int("80000000" * (num_limbs - 1), 16)]
  montgomery = [2**bits % modulus, -2**bits % modulus, pow(2, 2 * bits, modulus), pow(2, -bits, modulus)]
  values = ends + low_ones + high_ones + one_limb + halves + alternating + montgomery
  return [v for v in dict.fromkeys(values) if 0 <= v < modulus]


def quadratic_field():
  """Pairs in Fp2: every combination of a few ends, and elements of norm one and of the base field."""
  few = [0, 1, P - 1, (P - 1) // 2, 2**352 - 1]
  return [(a, b) for a in few for b in few]


def random_scalars(count, seed=0):
  """Reproducible and uniform in [0, r)."""
  generator = random.Random(seed)
  return [generator.randrange(R) for _ in range(count)]


def random_elements(count, seed=0):
  """Reproducible and uniform in [0, p)."""
  generator = random.Random(seed)
  return [generator.randrange(P) for _ in range(count)]


def random_points(curve, count, seed=0):
  """Distinct multiples of the generator, cheap: k0 G, then steps of a random multiple. `curve` is oracle.g1 or oracle.g2."""
  first, step = random_scalars(2, seed)
  point, delta, points = curve.multiply(curve.generator, first), curve.multiply(curve.generator, step), []
  for _ in range(count):
    points.append(point)
    point = curve.add(point, delta)
  return points


def points(curve):
  """Infinity, G, -G, 2G, -2G, (r - 1) G and three random multiples."""
  g = curve.generator
  double = curve.double(g)
  return [None, g, curve.neg(g), double, curve.neg(double), curve.add(double, g)] + random_points(curve, 3, seed=1)


def point_pairs(curve):
  """Pairs for addition: each special case of the group law (P + P, P - P, P + infinity, infinity + infinity) and the generic one."""
  p, q = random_points(curve, 2, seed=2)
  g = curve.generator
  return [
      (p, q), (q, p), (p, p), (p, curve.neg(p)), (curve.neg(p), p), (p, None), (None, p), (None, None),
      (g, g), (g, curve.neg(g)), (g, curve.double(g)), (curve.double(g), curve.neg(g)), (curve.neg(p), curve.neg(p)),
  ]


def off_subgroup(curve):
  """A point on the curve and outside the subgroup of order r: the first one by x."""
  x = 0
  while True:
    x += 1
    point = _lift(curve, x)
    if point is not None and curve.multiply(point, R) is not None:
      return point


def off_curve(curve):
  """A point that misses the curve by one in y."""
  x, y = curve.generator
  return (x, (y + 1) % P) if isinstance(x, int) else (x, ((y[0] + 1) % P, y[1]))


def _lift(curve, x):
  f = curve.field
  x = x if curve is oracle.g1 else (x, 0)
  square = f.add(f.mul(f.mul(x, x), x), curve.b)
  y = pow(square, (P + 1) // 4, P) if curve is oracle.g1 else _quadratic_root(square)
  return (x, y) if f.mul(y, y) == square else None


def _quadratic_root(a):
  """The complex method: with n = sqrt(norm), c0^2 = (a0 + n) / 2 or (a0 - n) / 2 and c1 = a1 / (2 c0)."""
  norm = pow((a[0]**2 + a[1]**2) % P, (P + 1) // 4, P)
  for n in (norm, -norm):
    c0 = pow((a[0] + n) * pow(2, -1, P) % P, (P + 1) // 4, P)
    if c0 and oracle.fp2.mul(candidate := (c0, a[1] * pow(2 * c0, -1, P) % P), candidate) == a:
      return candidate
  return (0, 0)
