"""The PTX text of field operations, executed on edge values and at the bounds that each operation accepts."""
import random

import cases
import pytest
from ptx_interpreter import run

from zkjax.ops.gpu import ptx
from zkjax.ops.limbs import FP, FR

BOTH = pytest.mark.parametrize("modulus", [FR, FP], ids=["Fr", "Fp"])


def edges(modulus, multiple=None):
  """Values in [0, multiple p): edge values of the field, shifted by every multiple of p, and the last value below the bound."""
  multiple = ptx.rest(modulus) if multiple is None else multiple
  few = cases.scalar_field() if modulus is FR else cases.base_field()
  values = [v + k * modulus.value for v in few for k in range(multiple)] + [multiple * modulus.value - 1]
  assert max(values) < 1 << 32 * modulus.words
  return values


def samples(modulus, multiples, count=150, seed=0):
  """Operand tuples below multiples[k] p: pairs of extremes first, then edges against edges and random values."""
  generator = random.Random(seed)
  few = [edges(modulus, m) for m in multiples]
  top = [tuple(m * modulus.value - 1 for m in multiples), (0,) * len(multiples), tuple([1] * len(multiples))]
  mixed = [tuple(generator.choice(v) for v in few) for _ in range(count)]
  uniform = [tuple(generator.randrange(m * modulus.value) for m in multiples) for _ in range(count // 3)]
  return top + mixed + uniform


def execute(operation, *values):
  words = [(v >> 32 * i) & 0xffffffff for v in values for i in range(operation.modulus.words)]
  return sum(w << 32 * i for i, w in enumerate(run(operation.text, operation.num_outputs, words)))


def montgomery(modulus, total):
  return total * pow(1 << 32 * modulus.words, -1, modulus.value) % modulus.value


def test_rest_and_room_of_both_fields():
  assert (ptx.rest(FP), ptx.room(FP)) == (2, 9)
  assert (ptx.rest(FR), ptx.room(FR)) == (1, 2)


@BOTH
@pytest.mark.parametrize("pairs", [1, 2, 4])
def test_sum_of_products_of_values_at_rest(modulus, pairs):
  if modulus is FR and pairs > 1:
    pytest.skip("a row of two products overflows the words of Fr")
  operation, k = ptx.product(modulus, pairs), ptx.rest(modulus)
  assert ptx.product_bound(modulus, [(k, k)] * pairs)
  for values in samples(modulus, [k] * (2 * pairs)):
    got = execute(operation, *values)
    assert got == operation.evaluate(*values) and got < k * modulus.value
    assert got % modulus.value == montgomery(modulus, sum(a * b for a, b in zip(values[::2], values[1::2])))


LOOSE = [[(4, 2)], [(2, 4)], [(3, 3)], [(8, 1)], [(1, 9)], [(4, 2), (1, 1)], [(2, 2), (2, 2)], [(3, 2), (1, 2), (2, 2), (2, 2)]]
TOO_LARGE = [(FR, [(2, 1)]), (FR, [(1, 1), (1, 1)]), (FP, [(9, 1)]), (FP, [(4, 3)]), (FP, [(2, 10)]), (FP, [(2, 2)] * 5)]
LINEAR = [("add", lambda a, b: a + b), ("subtract", lambda a, b: a - b), ("negate", lambda a: -a), ("reduce", lambda a: a)]


@pytest.mark.parametrize("bounds", LOOSE)
def test_products_of_loose_values_at_the_proven_bounds(bounds):
  operation = ptx.product(FP, len(bounds))
  ptx.product_bound(FP, bounds)
  for values in samples(FP, [m for pair in bounds for m in pair], count=60):
    got = execute(operation, *values)
    assert got == operation.evaluate(*values) and got < 2 * FP.value


@pytest.mark.parametrize("modulus, bounds", TOO_LARGE)
def test_bounds_that_could_overflow_are_refused(modulus, bounds):
  with pytest.raises(ValueError):
    ptx.product_bound(modulus, bounds)


@BOTH
def test_square_is_the_product_with_itself(modulus):
  operation, k = ptx.square(modulus), ptx.rest(modulus)
  for a in edges(modulus) + [v for v, in samples(modulus, [k])]:
    assert execute(operation, a) == operation.evaluate(a) == ptx.product(modulus).evaluate(a, a)


def test_square_of_a_loose_value():
  for a, in samples(FP, [3]):
    got = execute(ptx.square(FP), a)
    assert got == ptx.square(FP).evaluate(a) < 2 * FP.value


@BOTH
@pytest.mark.parametrize("name, law", LINEAR)
def test_linear_operations(modulus, name, law):
  operation, p, k = getattr(ptx, name)(modulus), modulus.value, ptx.rest(modulus)
  limit = 1 if name == "reduce" else k
  for values in samples(modulus, [k] * operation.num_inputs) + [(v,) * operation.num_inputs for v in edges(modulus)]:
    got = execute(operation, *values)
    assert got == operation.evaluate(*values) and got < limit * p and got % p == law(*values) % p


def test_loose_addition_adds_bounds():
  for a, b in samples(FP, [5, 4]):
    assert execute(ptx.add_loose(FP), a, b) == a + b


@BOTH
def test_is_zero(modulus):
  operation, p = ptx.is_zero(modulus), modulus.value
  zeros = [k * p for k in range(ptx.rest(modulus))]
  near = [z ^ (1 << bit) for z in zeros for bit in range(32 * modulus.words) if z ^ (1 << bit) < ptx.rest(modulus) * p]
  for a in edges(modulus) + zeros + near:
    assert execute(operation, a) == operation.evaluate(a) == (a in zeros)


@BOTH
def test_products_are_multiply_adds(modulus):
  """The budget: N (2 N + 1) word products of two instructions (one for q), and for a square N (N + 1) / 2 + N^2 + N."""
  n = modulus.words
  count = lambda operation: sum(line.strip().startswith(("mad", "mul")) for line in operation.text.split(";"))
  assert count(ptx.product(modulus)) <= 2 * 2 * n * n + n
  assert count(ptx.square(modulus)) <= 2 * (n * (n + 1) // 2 + n * n) + n + 2
