"""The same mathematics in the plainest Python integers. Slow, obvious, and independent: imports nothing from zkjax.

Points are (x, y), None is infinity; coordinates are ints in G1 and pairs (c0, c1) = c0 + c1 u, u^2 = -1, in G2. Both groups share one
set of formulas: `g1` and `g2` are instances of `Curve` over the field helpers `Prime` and `Quadratic`.
"""

P = 0x1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab
R = 0x73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001

G1 = (
    0x17f1d3a73197d7942695638c4fa9ac0fc3688c4f9774b905a14e3a3f171bac586c55e83ff97a1aeffb3af00adb22c6bb,
    0x08b3f481e3aaa0f1a09e30ed741d8ae4fcf5e095d5d00af600db18cb2c04b3edd03cc744a2888ae40caa232946c5e7e1,
)
G2 = (
    (0x024aa2b2f08f0a91260805272dc51051c6e47ad4fa403b02b4510b647ae3d1770bac0326a805bbefd48056c8c121bdb8,
     0x13e02b6052719f607dacd3a088274f65596bd0d09920b61ab5da61bbdc7f5049334cf11213945d57e5ac7d055d042b7e),
    (0x0ce5d527727d6e118cc9cdc6da2e351aadfd9baa8cbdd3a76d429a695160d12c923ac9cc3baca289e193548608b82801,
     0x0606c4a02ea734cc32acd2b02bc28b99cb3e287e85a763af267492ab572e99ab3f370d275cec1da1aaa9075ff05f79be),
)


class Prime:
  """Integers mod `modulus`."""
  zero, one = 0, 1

  def __init__(self, modulus):
    self.modulus = modulus

  def add(self, a, b):
    return (a + b) % self.modulus

  def sub(self, a, b):
    return (a - b) % self.modulus

  def neg(self, a):
    return -a % self.modulus

  def mul(self, a, b):
    return a * b % self.modulus

  def inverse(self, a):
    """1 / a; 0 for a = 0, the convention of batch inversion."""
    return pow(a, -1, self.modulus) if a % self.modulus else 0


class Quadratic:
  """Pairs c0 + c1 u over the base field of BLS12-381, u^2 = -1."""
  zero, one = (0, 0), (1, 0)

  def add(self, a, b):
    return ((a[0] + b[0]) % P, (a[1] + b[1]) % P)

  def sub(self, a, b):
    return ((a[0] - b[0]) % P, (a[1] - b[1]) % P)

  def neg(self, a):
    return (-a[0] % P, -a[1] % P)

  def mul(self, a, b):
    return ((a[0] * b[0] - a[1] * b[1]) % P, (a[0] * b[1] + a[1] * b[0]) % P)

  def inverse(self, a):
    """conj(a) / norm(a); zero for zero."""
    norm = (a[0] * a[0] + a[1] * a[1]) % P
    scale = pow(norm, -1, P) if norm else 0
    return (a[0] * scale % P, -a[1] * scale % P)


fr, fp, fp2 = Prime(R), Prime(P), Quadratic()


class Curve:
  """y^2 = x^3 + b with chords and tangents."""

  def __init__(self, field, b, generator):
    self.field, self.b, self.generator = field, b, generator

  def on_curve(self, p):
    if p is None:
      return True
    f, (x, y) = self.field, p
    return f.mul(y, y) == f.add(f.mul(f.mul(x, x), x), self.b)

  def neg(self, p):
    return None if p is None else (p[0], self.field.neg(p[1]))

  def _third(self, slope, p, q):
    f = self.field
    x = f.sub(f.sub(f.mul(slope, slope), p[0]), q[0])
    return (x, f.sub(f.mul(slope, f.sub(p[0], x)), p[1]))

  def double(self, p):
    f = self.field
    if p is None or p[1] == f.zero:
      return None
    square = f.mul(p[0], p[0])
    return self._third(f.mul(f.add(f.add(square, square), square), f.inverse(f.add(p[1], p[1]))), p, p)

  def add(self, p, q):
    if p is None or q is None:
      return q if p is None else p
    if p[0] == q[0]:
      return self.double(p) if p[1] == q[1] else None
    f = self.field
    return self._third(f.mul(f.sub(q[1], p[1]), f.inverse(f.sub(q[0], p[0]))), p, q)

  def multiply(self, p, k):
    """k p for any integer k; not reduced mod r, so that it is right off the subgroup too."""
    if k < 0:
      return self.multiply(self.neg(p), -k)
    total = None
    for bit in bin(k)[2:]:
      total = self.double(total)
      if bit == "1":
        total = self.add(total, p)
    return total

  def in_subgroup(self, p):
    return self.on_curve(p) and self.multiply(p, R) is None

  def msm(self, points, scalars):
    """sum_i scalars[i] points[i]."""
    total = None
    for p, k in zip(points, scalars, strict=True):
      total = self.add(total, self.multiply(p, k))
    return total


g1, g2 = Curve(fp, 4, G1), Curve(fp2, (4, 4), G2)


def root_of_unity(log2_size, generator):
  """A primitive 2^log2_size-th root of unity mod r from a quadratic non-residue (5: snarkjs; 7: bellman, arkworks, gnark)."""
  return pow(generator, (R - 1) // 2**log2_size, R)


def dft(values, root, shift=1):
  """[sum_j values[j] (shift root^i)^j for i < n]: coefficients to evaluations on the coset shift <root>."""
  return [evaluate_polynomial(values, shift * pow(root, i, R)) for i in range(len(values))]


def inverse_dft(evaluations, root, shift=1):
  """Inverse of `dft`: coefficients[j] = shift^-j / n sum_i evaluations[i] root^(-ij)."""
  n, back = len(evaluations), pow(root, -1, R)
  sums = dft(evaluations, back)
  return [s * pow(n, -1, R) * pow(shift, -j, R) % R for j, s in enumerate(sums)]


def evaluate_polynomial(coefficients, x):
  """Horner's rule; coefficients from the constant term up."""
  total = 0
  for c in reversed(coefficients):
    total = (total * x + c) % R
  return total


def multiply_polynomials(a, b):
  out = [0] * max(len(a) + len(b) - 1, 0)
  for i, x in enumerate(a):
    for j, y in enumerate(b):
      out[i + j] = (out[i + j] + x * y) % R
  return out


def interpolate(xs, ys):
  """Lagrange: coefficients of the polynomial of degree < len(xs) through the points (xs[i], ys[i]), xs distinct."""
  total = [0] * len(xs)
  for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
    basis, scale = [1], y
    for j, other in enumerate(xs):
      if j != i:
        basis, scale = multiply_polynomials(basis, [-other, 1]), scale * pow(x - other, -1, R) % R
    total = [(t + scale * b) % R for t, b in zip(total, basis, strict=True)]
  return total


def divide_by_vanishing(coefficients, n):
  """(quotient, remainder) of the division by X^n - 1."""
  remainder, quotient = [c % R for c in coefficients], [0] * max(len(coefficients) - n, 0)
  for i in reversed(range(len(quotient))):
    quotient[i] = remainder[i + n]
    remainder[i] = (remainder[i] + remainder[i + n]) % R
    remainder[i + n] = 0
  return quotient, remainder[:n]


def quotient(az, bz, cz, root):
  """Coefficients of h = (a b - c) / (X^n - 1), n - 1 of them, and the remainder (all zero for a satisfied circuit)."""
  a, b, c = (inverse_dft(v, root) for v in (az, bz, cz))
  product = multiply_polynomials(a, b)
  for i, value in enumerate(c):
    product[i] = (product[i] - value) % R
  return divide_by_vanishing(product, len(az))


def evaluate_row(row, witness):
  """<row, witness> for a row {wire: coefficient}."""
  return sum(coefficient * witness[wire] for wire, coefficient in row.items()) % R


def evaluate_r1cs(constraints, witness):
  """[(A w)_i], [(B w)_i], [(C w)_i] for constraints [(a_row, b_row, c_row), ...]."""
  return tuple([evaluate_row(rows[k], witness) for rows in constraints] for k in range(3))


def first_unsatisfied(constraints, witness):
  """The index of the first constraint with (A w)(B w) != C w, or None."""
  for i, (a, b, c) in enumerate(zip(*evaluate_r1cs(constraints, witness))):
    if (a * b - c) % R:
      return i
  return None
