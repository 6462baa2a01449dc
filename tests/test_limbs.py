"""Lazy limbs against Python integers, with operands at the very bounds that they claim. NumPy arrays: nothing compiles."""
import random
from fractions import Fraction

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import P, R

from zkjax.ops import limbs
from zkjax.ops.lazy_fp2 import LazyFp2
from zkjax.ops.limbs import FP, FR, Lazy, wide, wide_square

MODULI = pytest.mark.parametrize("m", [FR, FP], ids=["Fr", "Fp"])


@pytest.fixture(autouse=True)
def uint64():
  with jax.enable_x64(True):
    yield


def extremes(m, bound=1, limb_max=None, seed=0):
  """A Lazy whose lanes are the worst that its bounds allow: 0, the largest value, the largest low limbs, single large limbs, random."""
  limb_max = m.mask if limb_max is None else limb_max
  largest = -(-Fraction(bound) * m.value // 1) - 1             # value < bound * modulus
  low = (1 << m.bits * (m.num - 1)) - 1
  full = m.join([limb_max] * (m.num - 1) + [0])
  lanes = [[0] * m.num, m.split(largest)]
  if full <= largest:
    lanes.append([limb_max] * (m.num - 1) + [(largest - full) >> m.bits * (m.num - 1)])
  lanes += [[limb_max if i == k else 0 for i in range(m.num)] for k in range(m.num - 1) if limb_max << m.bits * k <= largest]
  lanes.append([0] * (m.num - 1) + [(largest - low) >> m.bits * (m.num - 1)])
  generator = random.Random(seed)
  lanes += [m.split(generator.randrange(largest + 1)) for _ in range(4)]
  return Lazy(m, list(np.array(lanes, np.uint32).T), bound, limb_max)


def largest_bound(m):
  """The multiples of the modulus whose top limb stays below 2^32."""
  return ((1 << 32) - 1) // ((m.value >> m.bits * (m.num - 1)) + 1)


def pair(m, bound_a=1, max_a=None, bound_b=1, max_b=None):
  """Every lane of one against every lane of the other."""
  a, b = extremes(m, bound_a, max_a), extremes(m, bound_b, max_b, seed=1)
  size_a, size_b = len(a.limbs[0]), len(b.limbs[0])
  return (Lazy(m, [np.repeat(v, size_b) for v in a.limbs], a.bound, a.limb_max),
          Lazy(m, [np.tile(v, size_a) for v in b.limbs], b.bound, b.limb_max))


def values(lazy):
  return [lazy.modulus.join(lane) for lane in zip(*(np.asarray(v).tolist() for v in lazy.limbs))]


def columns(value):
  return [value.modulus.join(lane) for lane in zip(*(np.asarray(v).tolist() for v in value.columns))]


def check(lazy):
  """The values, after checking every claim of the bounds."""
  for limb, largest in zip(lazy.limbs, lazy.maxima()):
    assert np.asarray(limb).dtype == np.uint32 and int(np.max(limb)) <= largest < 1 << 32
  out = values(lazy)
  assert max(out) < lazy.bound * lazy.modulus.value
  return out


def check_wide(value):
  for column, largest in zip(value.columns, value.maxima):
    assert int(np.max(column)) <= largest < 1 << 64
  out = columns(value)
  assert max(out) < value.bound * value.modulus.value**2
  return out


# The representation

@MODULI
def test_parameters(m):
  assert m.value == (R if m is FR else P) and m.radix == 1 << 32 * m.words + m.shift and m.shift > 0
  assert m.num * 2 * m.mask**2 + (1 << 64 - m.bits) < 1 << 64  # columns of a product and of its reduction
  assert m.negative_inverse * m.value % (1 << m.bits) == m.mask


@MODULI
def test_split_and_join_are_inverse(m):
  for v in (0, 1, m.value - 1, m.value << 4):
    assert m.join(m.split(v)) == v and all(limb <= m.mask for limb in m.split(v)[:-1])


@MODULI
@pytest.mark.parametrize("bound,limb_max", [(1, None), (2, None), (7, 1 << 30), (31, (1 << 31) - 1)])
def test_at_least_covers_every_limb(m, bound, limb_max):
  minima = extremes(m, bound, limb_max).maxima()
  offset, multiple = limbs.at_least(m, minima)
  assert m.join(offset) == multiple * m.value and all(a >= b for a, b in zip(offset, minima))
  assert all(a - b <= m.mask for a, b in zip(offset[:-1], minima))


@MODULI
def test_unpack_and_pack(m):
  ints = (cases.scalar_field if m is FR else cases.base_field)()
  words = np.array([[v >> 32 * i & 0xffffffff for v in ints] for i in range(m.words)], np.uint32)
  assert values(limbs.unpack(m, words)) == ints
  assert check(limbs.unpack(m, words, m.shift)) == [v << m.shift for v in ints]
  assert np.array_equal(limbs.pack(limbs.unpack(m, words)), words)


# Sums and differences at their bounds

LAZY = pytest.mark.parametrize("bounds", [(1, None, 1, None), (2, None, 3, None), (5, 3 << 28, 4, 1 << 30), (1, None, 9, (1 << 31) - 1)])


@MODULI
@LAZY
def test_add(m, bounds):
  a, b = pair(m, *bounds)
  assert check(a + b) == [x + y for x, y in zip(values(a), values(b))]


@MODULI
@LAZY
def test_subtract(m, bounds):
  a, b = pair(m, *bounds)
  assert [v % m.value for v in check(a - b)] == [(x - y) % m.value for x, y in zip(values(a), values(b))]


@MODULI
@pytest.mark.parametrize("bound,limb_max", [(1, None), (6, 1 << 30), (20, (1 << 32) - 17)])
def test_carried_keeps_the_value(m, bound, limb_max):
  a = extremes(m, bound, limb_max)
  assert check(a.carried()) == values(a) and a.carried().limb_max == m.mask


@MODULI
@pytest.mark.parametrize("bound,limb_max", [(1, None), (Fraction(3, 2), None), (2, None), (3, None), (4, None), (8, None), (9, 3 << 28),
                                            (33, None), ("largest", None)])
def test_canonical(m, bound, limb_max):
  a = extremes(m, largest_bound(m) if bound == "largest" else bound, limb_max)
  assert check(a.canonical()) == [v % m.value for v in values(a)] and a.canonical().bound == 1


@MODULI
def test_canonical_around_every_multiple(m):
  ints = [k * m.value + d for k in range(67) for d in (-1, 0, 1) if 0 <= k * m.value + d < 66 * m.value]
  a = Lazy(m, list(np.array([m.split(v) for v in ints], np.uint32).T), 66)
  assert check(a.canonical()) == [v % m.value for v in ints]
  assert np.asarray(a.is_zero()).tolist() == [v % m.value == 0 for v in ints]


@MODULI
@pytest.mark.parametrize("multiple", [1, 2])
@pytest.mark.parametrize("bound,limb_max", [(1, None), (3, None), (4, 1 << 30), (5, None), (6, None), (13, None), (66, None)])
def test_weakly_reduced(m, bound, limb_max, multiple):
  """Around every multiple; in 32 bits and, beyond 5 r or 13 p, in 64."""
  a = extremes(m, bound, limb_max)
  ints = values(a) + [v for k in range(bound + 1) for d in (-1, 0, 1) if 0 <= (v := multiple * k * m.value + d) < bound * m.value]
  a = Lazy(m, list(np.array([m.split(v) for v in ints], np.uint32).T), bound)
  reduced = a.weakly_reduced(multiple)
  assert [v % m.value for v in check(reduced)] == [v % m.value for v in ints]
  assert reduced.bound <= bound and reduced.bound < multiple + Fraction(1, 8)


@MODULI
def test_select(m):
  a, b = pair(m, 3, 1 << 30, 2, None)
  condition = np.arange(len(a.limbs[0])) % 2 == 0
  assert check(a.select(condition, b)) == [x if c else y for c, x, y in zip(condition, values(a), values(b))]


# Products at their bounds

WIDE = pytest.mark.parametrize("bounds", [(1, None, 1, None), (2, None, 2, None), (8, 3 << 29, 1, None), (6, 1 << 31, 7, 1 << 31)])


@MODULI
@WIDE
@pytest.mark.parametrize("whole", [True, False])
def test_wide_is_the_product(m, bounds, whole):
  a, b = pair(m, *bounds)
  assert check_wide(wide(a, b, whole)) == [x * y for x, y in zip(values(a), values(b))]


@pytest.mark.parametrize("m,whole,dots", [(FR, None, True), (FP, None, False), (FP, True, True), (FR, False, False)])
def test_columns_are_single_operations_where_that_is_the_faster_form(m, whole, dots):
  with jax.enable_x64(True):
    limb = jax.ShapeDtypeStruct((8,), np.uint32)
    jaxpr = jax.make_jaxpr(lambda *v: wide(Lazy(m, v[:m.num], 1), Lazy(m, v[m.num:], 1), whole).columns)(*[limb] * 2 * m.num)
  assert (sum(e.primitive.name == "reduce_sum" for e in jaxpr.jaxpr.eqns) == 2 * m.num - 1) == dots


@MODULI
@WIDE
def test_wide_square_equals_wide(m, bounds):
  a, _ = pair(m, *bounds)
  square, product = wide_square(a), wide(a, a)
  assert check_wide(square) == check_wide(product) and square.maxima == product.maxima and square.bound == product.bound
  assert check(a.square()) == check(a * a)


@MODULI
@WIDE
def test_reduction_is_montgomery(m, bounds):
  a, b = pair(m, *bounds)
  product = check(a * b)
  assert [v * m.radix % m.value for v in product] == [x * y % m.value for x, y in zip(values(a), values(b))]
  assert (a * b).bound == a.bound * b.bound / m.room + 1 and (a * b).limb_max == m.mask


@MODULI
def test_wide_sum(m):
  a, b = pair(m, 2, None, 3, None)
  product, square = wide(a, b), wide_square(b)
  x, y = columns(product), columns(square)
  assert check_wide(product + square) == [s + t for s, t in zip(x, y)]
  assert [v * m.radix % m.value for v in check((product + square).redc())] == [(s + t) % m.value for s, t in zip(x, y)]


@MODULI
def test_product_of_words(m):
  ints = (cases.scalar_field if m is FR else cases.base_field)()[::3]
  pairs = [(x, y) for x in ints for y in ints]
  a, b = (np.array([[p[k] >> 32 * i & 0xffffffff for p in pairs] for i in range(m.words)], np.uint32) for k in (0, 1))
  inverse = pow(2, -32 * m.words, m.value)
  words = np.asarray(limbs.mul(m, a, b)).astype(object)
  assert [sum(v << 32 * i for i, v in enumerate(lane)) for lane in words.T] == [x * y * inverse % m.value for x, y in pairs]


# The quadratic extension

def fp2_pair(bound, limb_max):
  """(LazyFp2, LazyFp2, [(a0, a1, b0, b1)]): the lanes of `pair`, components of one number in opposite order."""
  a, b = pair(FP, bound, limb_max, bound, limb_max)
  both = lambda x: LazyFp2(Lazy(FP, [np.stack([v, v[::-1]]) for v in x.limbs], x.bound, x.limb_max))
  return both(a), both(b), [(w, x, y, z) for w, x, y, z in zip(values(a), values(a)[::-1], values(b), values(b)[::-1])]


def check_fp2(value):
  """[(c0, c1)] after checking the bounds of both."""
  return list(zip(*(check(Lazy(FP, [v[k] for v in value.both.limbs], value.both.bound, value.both.limb_max)) for k in range(2))))


@pytest.mark.parametrize("bound,limb_max", [(1, None), (3, None), (4, 1 << 30)])
def test_lazy_fp2(bound, limb_max):
  a, b, ints = fp2_pair(bound, limb_max)
  outer = lambda v: [(x * FP.radix % P, y * FP.radix % P) for x, y in check_fp2(v)]
  plain = lambda v: [(x % P, y % P) for x, y in check_fp2(v)]
  assert outer(a * b) == [((w * y - x * z) % P, (w * z + x * y) % P) for w, x, y, z in ints]
  assert outer(a.square()) == [((w * w - x * x) % P, 2 * w * x % P) for w, x, _, _ in ints]
  assert plain(a + b) == [((w + y) % P, (x + z) % P) for w, x, y, z in ints]
  assert plain(a - b) == [((w - y) % P, (x - z) % P) for w, x, y, z in ints]
  assert plain(a.conjugate()) == [(w % P, -x % P) for w, x, _, _ in ints]
  assert plain(a.weakly_reduced()) == [(w % P, x % P) for w, x, _, _ in ints]
  assert plain(LazyFp2.stacked(FP, a.stack(), bound)) == [(w % P, x % P) for w, x, _, _ in ints]


def test_lazy_fp2_is_zero_where_both_components_are():
  zero, one = [0] * FP.num, [1] + [0] * (FP.num - 1)
  lanes = np.array([[zero, FP.split(P), one, zero, one], [zero, zero, zero, one, one]], np.uint32)      # component, lane, limb
  value = LazyFp2(Lazy(FP, [lanes[:, :, k] for k in range(FP.num)], Fraction(P + 1, P)))
  assert np.asarray(value.is_zero()).tolist() == [True, True, False, False, False]


@MODULI
def test_rolled_product(m):
  """The same as the unrolled one, for limbs up to 2^bits and values up to the bound where carries stay below the last limb."""
  a, b = pair(m, 9 / 4, m.mask + 1, 9 / 4, m.mask + 1)
  product = Lazy.stacked(m, np.asarray(limbs.mul_rolled(m, jnp.stack(a.limbs), jnp.stack(b.limbs))), 2, m.mask + 1)
  assert [v * m.radix % m.value for v in check(product)] == [x * y % m.value for x, y in zip(values(a), values(b))]


# What could overflow raises while tracing

@MODULI
def test_a_sum_that_could_overflow_raises(m):
  total = a = extremes(m)
  with pytest.raises(ValueError, match="over 32 bits"):
    for _ in range(1 << 32 - m.bits):
      total = total + a
  assert check(total)


@MODULI
def test_a_difference_that_could_overflow_raises(m):
  a, b = pair(m, 1, None, 30, (1 << 32) - (1 << m.bits))
  with pytest.raises(ValueError, match="over 32 bits"):
    a - b


@MODULI
def test_a_carry_that_could_overflow_raises(m):
  with pytest.raises(ValueError, match="carry"):
    extremes(m, 40, (1 << 32) - 1).carried()


@MODULI
def test_a_wide_sum_that_could_overflow_raises(m):
  total = product = wide(*pair(m))
  with pytest.raises(ValueError, match="over 64 bits"):
    for _ in range(64):
      total = total + product
  assert check_wide(total)
  total.redc()


@MODULI
def test_a_product_that_could_overflow_raises(m):
  a, b = pair(m)
  product = wide(a, b)
  with pytest.raises(ValueError, match="overflow"):
    limbs.Wide(m, product.columns, m.room * 2**31, product.maxima).redc()
  top = m.value >> m.bits * (m.num - 1)                      # a top limb near 2^32 against low limbs as large as they enter a product
  low = min((1 << 32) - 1, ((1 << 64) // m.num - (2 << 2 * m.bits)) // m.mask - 1)
  with pytest.raises(ValueError, match="over 64 bits"):
    wide(Lazy(m, a.limbs, ((1 << 32) - 1) // top), Lazy(m, b.limbs, 2, low))


@MODULI
def test_a_value_too_large_for_a_reduction_raises(m):
  """The top limb has 32 bits."""
  a = extremes(m, largest_bound(m))
  too_large = Lazy(m, a.limbs, largest_bound(m) + 2)
  with pytest.raises(ValueError, match="over 32 bits"):
    too_large.canonical()
  with pytest.raises(ValueError, match="over 32 bits"):
    too_large.weakly_reduced()
