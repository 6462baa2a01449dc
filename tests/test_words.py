"""Modular arithmetic on words against Python integers, on operands chosen for their carries."""
import cases
import jax
import numpy as np
import pytest

from zkjax.ops import limbs, words
from zkjax.ops.limbs import FP, FR

MODULI = pytest.mark.parametrize("m", [FR, FP], ids=["Fr", "Fp"])


def to_words(m, ints):
  return np.array([[v >> 32 * i & 0xffffffff for v in ints] for i in range(m.words)], np.uint32).reshape((m.words, len(ints)))


def to_ints(array):
  return [sum(int(v) << 32 * i for i, v in enumerate(lane)) for lane in np.asarray(array).T]


def edge_pairs(m):
  ints = (cases.scalar_field if m is FR else cases.base_field)()
  return [(x, y) for x in ints for y in ints]


@MODULI
@pytest.mark.parametrize("name,expected", [
    ("add", lambda m, x, y: (x + y) % m.value),
    ("sub", lambda m, x, y: (x - y) % m.value),
    ("mul", lambda m, x, y: x * y * pow(2, -32 * m.words, m.value) % m.value),
])
def test_every_pair_of_edge_values(m, name, expected):
  pairs = edge_pairs(m)
  a, b = (to_words(m, [p[k] for p in pairs]) for k in (0, 1))
  got = jax.jit(getattr(words, name), static_argnums=0)(m, a, b)
  assert got.dtype == np.uint32 and to_ints(got) == [expected(m, x, y) for x, y in pairs]


@MODULI
def test_agrees_with_the_unrolled_product(m):
  rng = np.random.default_rng(0)
  a, b = (rng.integers(0, 1 << 32, (m.words, 3, 64), dtype=np.uint32) for _ in range(2))
  for v in (a, b):
    v[-1] %= m.value >> 32 * (m.words - 1)
  products = (jax.jit(f, static_argnums=0)(m, a, b) for f in (words.mul, limbs.mul))
  assert np.array_equal(*map(np.asarray, products))


@MODULI
def test_carries_run_through_all_words(m):
  """A borrow or carry that starts in the lowest word and ends in the highest."""
  top = 1 << 32 * (m.words - 1)
  a, b = to_words(m, [top, 0, top - 1]), to_words(m, [1, m.value - 1, 1])
  assert to_ints(words.sub(m, a, b)) == [top - 1, 1, top - 2]
  assert to_ints(words.add(m, a, b)) == [top + 1, m.value - 1, top]


@MODULI
def test_size_of_the_programs(m):
  """Compile time follows it: a product is two loops and not a thousand operations."""
  a = np.zeros((m.words, 8), np.uint32)
  count = lambda name: jax.jit(getattr(words, name), static_argnums=0).lower(m, a, a).as_text().count(" = stablehlo.")
  assert count("add") < 80 and count("sub") < 80 and count("mul") < 350
