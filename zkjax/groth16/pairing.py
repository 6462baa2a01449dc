"""The optimal ate pairing on BLS12-381, on Python integers: a verifier needs three pairings, not throughput, and no compilation.

e: G1 x G2 -> GT, e(P, Q) = f_{x,Q}(P)^(3 (p^12 - 1) / r) (Vercauteren, eprint 2008/096, for the loop of length |x|). The factor 3 is
a bijection of GT that shortens the final exponentiation. snarkjs, zkcrypto and arkworks return the same values; with the value of py_ecc,
which takes |x| for x and leaves the 3 out, e = py_ecc^-3.

Fields: Fp2 = Fp[u] / (u^2 + 1) as pairs (c0, c1); Fp12 = Fp2[w] / (w^6 - xi), xi = 1 + u, as a tuple of six pairs (f0, ..., f5), the
coefficients of 1, w, ..., w^5. The even and the odd ones are the halves of Fp12 = Fp6[w] / (w^2 - v), Fp6 = Fp2[v] / (v^3 - xi).

Python integers do not overflow, so sums of products stay unreduced until a coefficient is complete (lazy reduction: Aranha et al.,
eprint 2010/526): functions named `_wide` return such sums, all others return coefficients in [0, p).
"""
import dataclasses

from zkjax.ops.bls12_381 import P, X
from zkjax.ops.int_curve import IntFp2

XI = (1, 1)
ONE = ((1, 0),) + ((0, 0),) * 5
LOOP_BITS = bin(-X)[3:]                                      # of |x|, below its leading one
GAMMA = [IntFp2.power(XI, i * (P - 1) // 6) for i in range(6)]   # w^(i p) = GAMMA[i] w^i, because w^6 = xi


def _add(a, b):
  return a[0] + b[0], a[1] + b[1]


def _sub(a, b):
  return a[0] - b[0], a[1] - b[1]


def _mul_wide(a, b):
  """Karatsuba: three products."""
  a0, a1 = a
  b0, b1 = b
  low, high = a0 * b0, a1 * b1
  return low - high, (a0 + a1) * (b0 + b1) - low - high


def _square_wide(a):
  """(a0 + a1 u)^2 = (a0 + a1)(a0 - a1) + 2 a0 a1 u."""
  a0, a1 = a
  return (a0 + a1) * (a0 - a1), 2 * a0 * a1


def _times_xi(a):
  """(1 + u)(a0 + a1 u)."""
  return a[0] - a[1], a[0] + a[1]


def _reduce(f):
  return tuple([(c0 % P, c1 % P) for c0, c1 in f])


def _mul6_wide(a, b):
  """Fp6 product with six Fp2 products (Devegili et al., eprint 2006/471, section 4)."""
  (a0, a1, a2), (b0, b1, b2) = a, b
  t0, t1, t2 = _mul_wide(a0, b0), _mul_wide(a1, b1), _mul_wide(a2, b2)
  s12 = _sub(_sub(_mul_wide(_add(a1, a2), _add(b1, b2)), t1), t2)          # a1 b2 + a2 b1
  s01 = _sub(_sub(_mul_wide(_add(a0, a1), _add(b0, b1)), t0), t1)          # a0 b1 + a1 b0
  s02 = _sub(_sub(_mul_wide(_add(a0, a2), _add(b0, b2)), t0), t2)          # a0 b2 + a2 b0
  return _add(t0, _times_xi(s12)), _add(s01, _times_xi(t2)), _add(s02, t1)


def _map6(op, a, b):
  return op(a[0], b[0]), op(a[1], b[1]), op(a[2], b[2])


def _times_v(a):
  return _times_xi(a[2]), a[0], a[1]


def _interleave(even, odd):
  return _reduce((even[0], odd[0], even[1], odd[1], even[2], odd[2]))


def multiply(f, g):
  """(a + b w)(c + d w) = ac + v bd + ((a + b)(c + d) - ac - bd) w: Karatsuba over Fp6."""
  a, b, c, d = f[::2], f[1::2], g[::2], g[1::2]
  ac, bd = _mul6_wide(a, c), _mul6_wide(b, d)
  cross = _mul6_wide(_map6(_add, a, b), _map6(_add, c, d))
  return _interleave(_map6(_add, ac, _times_v(bd)), _map6(_sub, _map6(_sub, cross, ac), bd))


def square(f):
  """(a + b w)^2 = (a + b)(a + v b) - ab - v ab + 2 ab w: the complex method."""
  a, b = f[::2], f[1::2]
  ab = _mul6_wide(a, b)
  norm = _mul6_wide(_map6(_add, a, b), _map6(_add, a, _times_v(b)))
  return _interleave(_map6(_sub, _map6(_sub, norm, ab), _times_v(ab)), _map6(_add, ab, ab))


def conjugate(f):
  """f^(p^6), because w^(p^6) = -w. For f in the cyclotomic subgroup, and so in GT, it is the inverse."""
  return tuple([(-c0 % P, -c1 % P) if i % 2 else (c0, c1) for i, (c0, c1) in enumerate(f)])


def frobenius(f, times=1):
  """f^(p^times): conjugate each coefficient and multiply the one of w^i by GAMMA[i]."""
  for _ in range(times):
    f = _reduce([_mul_wide((c0, -c1), gamma) for (c0, c1), gamma in zip(f, GAMMA)])
  return f


def inverse(f):
  """1 / f by the norm (Itoh and Tsujii 1988): n = f f^(p^6) is in Fp6 and n m = n n^(p^2) n^(p^4) in Fp2. f must not be zero."""
  bar = conjugate(f)
  n = multiply(f, bar)
  m = multiply(frobenius(n, 2), frobenius(n, 4))
  scale = IntFp2.inverse(multiply(n, m)[0])
  return _reduce([_mul_wide(c, scale) for c in multiply(bar, m)])


def cyclotomic_square(f):
  """f^2 for f^(p^4 - p^2 + 1) = 1: three squares in Fp4 = Fp2[s] / (s^2 - xi), s = w^3 (Granger and Scott, eprint 2009/565)."""
  def square4(a, b):                                         # (a + b s)^2
    aa, bb = _square_wide(a), _square_wide(b)
    return _add(aa, _times_xi(bb)), _sub(_sub(_square_wide(_add(a, b)), aa), bb)

  def minus(t, c):                                           # 3 t - 2 c
    return 3 * t[0] - 2 * c[0], 3 * t[1] - 2 * c[1]

  def plus(t, c):                                            # 3 t + 2 c
    return 3 * t[0] + 2 * c[0], 3 * t[1] + 2 * c[1]

  f0, f1, f2, f3, f4, f5 = f
  (a0, a1), (b0, b1), (c0, c1) = square4(f0, f3), square4(f1, f4), square4(f2, f5)
  return _reduce((minus(a0, f0), plus(_times_xi(c1), f1), minus(b0, f2), plus(a1, f3), minus(c0, f4), plus(b1, f5)))


def power(f, exponent):
  """f^exponent for f in the cyclotomic subgroup (every element of GT) and any integer exponent."""
  base = conjugate(f) if exponent < 0 else f
  result = ONE
  for bit in bin(abs(exponent))[2:]:
    result = cyclotomic_square(result)
    result = multiply(result, base) if bit == "1" else result
  return result


def final_exponentiation(f):
  """f^(3 (p^12 - 1) / r).

  Easy part: (p^6 - 1)(p^2 + 1). Hard part: 3 (p^4 - p^2 + 1) / r = (x - 1)^2 (x + p)(x^2 + p^2 - 1) + 3 (Hayashida, Hayasaka and
  Teruya, eprint 2020/875). Cost: one inversion, five powers by x.
  """
  f = multiply(conjugate(f), inverse(f))
  f = multiply(frobenius(f, 2), f)
  t = power(power(f, X - 1), X - 1)
  t = multiply(power(t, X), frobenius(t))
  t = multiply(power(power(t, X), X), multiply(frobenius(t, 2), conjugate(t)))
  return multiply(t, multiply(cyclotomic_square(f), f))


@dataclasses.dataclass(frozen=True)
class PreparedG2:
  """The lines of the Miller loop of one point of G2, in the order of use; none for infinity. See `prepare_g2`."""
  lines: tuple


def prepare_g2(q):
  """Returns the lines of the Miller loop for Q in G2, to be used with any number of points of G1.

  The line through T with slope s (the tangent, or the chord through Q) on the twist y^2 = x^3 + 4 xi, moved to the curve by
  (x, y) -> (x / w^2, y / w^3) and multiplied by w^3 / y_P (factors in Fp and powers of w vanish in the final exponentiation), is at P

    (s x_T - y_T) / y_P  -  s (x_P / y_P) w^2  +  w^3.

  Stored are (s x_T - y_T, s). Cost: 68 inversions in Fp2. Q of order r never meets T = Q, T = -Q or a vertical tangent.
  """
  if q is None:
    return PreparedG2(())
  lines, t = [], q

  def step(other, numerator, denominator):
    slope = IntFp2.mul(numerator, IntFp2.inverse(denominator))
    x, y = t
    lines.append((IntFp2.sub(IntFp2.mul(slope, x), y), slope))
    x3 = IntFp2.sub(IntFp2.sub(IntFp2.square(slope), x), other[0])
    return x3, IntFp2.sub(IntFp2.mul(slope, IntFp2.sub(x, x3)), y)

  for bit in LOOP_BITS:
    t = step(t, IntFp2.scale(IntFp2.square(t[0]), 3), IntFp2.scale(t[1], 2))
    if bit == "1":
      t = step(q, IntFp2.sub(q[1], t[1]), IntFp2.sub(q[0], t[0]))
  return PreparedG2(tuple(lines))


def _multiply_by_line(f, line, p):
  """f (l0 + l2 w^2 + w^3) with the line evaluated at P, given as p = (-x_P / y_P, 1 / y_P). Twelve Fp2 products."""
  f0, f1, f2, f3, f4, f5 = f
  offset, slope = line
  l0 = (offset[0] * p[1] % P, offset[1] * p[1] % P)
  l2 = (slope[0] * p[0] % P, slope[1] * p[0] % P)
  return _reduce((
      _add(_mul_wide(f0, l0), _times_xi(_add(_mul_wide(f4, l2), f3))),
      _add(_mul_wide(f1, l0), _times_xi(_add(_mul_wide(f5, l2), f4))),
      _add(_add(_mul_wide(f2, l0), _mul_wide(f0, l2)), _times_xi(f5)),
      _add(_add(_mul_wide(f3, l0), _mul_wide(f1, l2)), f0),
      _add(_add(_mul_wide(f4, l0), _mul_wide(f2, l2)), f1),
      _add(_add(_mul_wide(f5, l0), _mul_wide(f3, l2)), f2),
  ))


def miller_loop(pairs):
  """prod_i f_{x,Q_i}(P_i), before the final exponentiation; the squarings are shared. Pairs with infinity contribute 1."""
  tracks = []
  for p, q in pairs:
    q = q if isinstance(q, PreparedG2) else prepare_g2(q)
    if p is not None and q.lines:
      inverse_y = pow(p[1], -1, P)
      tracks.append((iter(q.lines), (-p[0] * inverse_y % P, inverse_y)))
  f = ONE
  for bit in LOOP_BITS:
    f = square(f)
    for _ in range(1 + int(bit)):
      for lines, p in tracks:
        f = _multiply_by_line(f, next(lines), p)
  return conjugate(f)                                        # x < 0: f_{-x} and the conjugate of f_x agree up to factors that vanish


def pairing_product(pairs):
  """Returns prod_i e(P_i, Q_i) in GT: one multi Miller loop, one final exponentiation.

  Args:
    pairs: (P, Q) with P in G1 as (x, y) and Q in G2 as ((x0, x1), (y0, y1)) or a `PreparedG2`; None is infinity. Precondition, not
      checked: both are in their subgroups of order r (`int_curve.G1.is_in_subgroup`, `G2.is_in_subgroup`).

  Returns:
    Six pairs of ints in [0, p), the coefficients of 1, w, ..., w^5: a canonical form, so that == compares.
  """
  return final_exponentiation(miller_loop(pairs))


def pairing_check(pairs):
  """Returns whether prod_i e(P_i, Q_i) = 1; arguments as in `pairing_product`. True for no pairs."""
  return pairing_product(pairs) == ONE


def pairing(p, q):
  """Returns e(P, Q); see `pairing_product`."""
  return pairing_product([(p, q)])
