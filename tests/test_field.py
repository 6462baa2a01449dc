"""Fields: the laws on edge values, the oracle, shapes, jit and vmap, budgets of products and of traces."""
import functools
import operator

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from counting import count_products
from oracle import P, R

from zkjax.ops import field
from zkjax.ops.field import Fp, Fp2, Fr, batch_inverse, concatenate, products, stack

ORACLE = {Fr: oracle.fr, Fp: oracle.fp, Fp2: oracle.fp2}
EDGES = {Fr: cases.scalar_field()[::2], Fp: cases.base_field()[::2], Fp2: cases.quadratic_field()}
FIELDS = pytest.mark.parametrize("f", [Fr, Fp, Fp2], ids=["Fr", "Fp", "Fp2"])
PRIME_FIELDS = pytest.mark.parametrize("f", [Fr, Fp], ids=["Fr", "Fp"])
TRACES = []
jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: "jaxpr_trace" in name and TRACES.append(name))


def random_values(f, count, seed=0):
  if f is Fp2:
    return list(zip(cases.random_elements(count, seed), cases.random_elements(count, seed + 1)))
  return (cases.random_scalars if f is Fr else cases.random_elements)(count, seed)


def edges(f):
  """(integers, elements): edge values in a batch of one size for all tests of a field, so that each operation compiles once."""
  return EDGES[f], f.from_ints(EDGES[f])


def shifted(values):
  return values[1:] + values[:1]


# Conversions

@FIELDS
def test_from_ints_and_to_ints_are_inverse(f):
  values, x = edges(f)
  assert x.to_ints() == values and x.shape == (len(values),)
  assert f.from_ints(values[3]).to_ints() == values[3] and f.from_ints(values[3]).shape == ()


@PRIME_FIELDS
def test_ints_are_reduced_and_nested(f):
  assert f.from_ints([[-1, f.modulus], [f.modulus + 5, 2 * f.modulus - 1]]).to_ints() == [[f.modulus - 1, 0], [5, f.modulus - 1]]
  assert f.from_ints([]).to_ints() == [] and f.from_ints([]).shape == (0,)


@PRIME_FIELDS
def test_limbs_are_montgomery(f):
  words = np.asarray(f.from_ints(3).limbs)
  assert words.dtype == np.uint32 and sum(int(v) << 32 * i for i, v in enumerate(words)) == 3 * 2**(32 * f.num_limbs) % f.modulus
  assert f.modulus == (R if f is Fr else P)


def test_conversions_of_integers_do_not_compile():
  before = len(TRACES)
  assert isinstance(Fp2.from_ints([(1, 2)]).c0.limbs, np.ndarray)
  assert Fp2.from_ints([(1, 2)] * 777).to_ints() == [(1, 2)] * 777
  assert len(TRACES) == before


@PRIME_FIELDS
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (2, 3)])
def test_plain(f, shape):
  values = np.array(random_values(f, int(np.prod(shape)))).astype(object).reshape(shape)
  x = f.from_ints(values)
  plain = x.to_plain()
  assert plain.shape == (f.num_limbs,) + shape
  assert np.array_equal(sum((row.astype(object) << 32 * i for i, row in enumerate(plain)), np.zeros(shape, object)), values)
  assert np.array_equal(f.from_plain(plain).limbs, x.limbs)


@PRIME_FIELDS
def test_plain_in_chunks_never_compiles_for_a_length(f):
  values = random_values(f, 5000)
  x = f.from_ints(values)
  plain = x.to_plain()
  before = len(TRACES)
  assert isinstance(plain, np.ndarray) and np.array_equal(f.from_plain(plain[:, :4999]).limbs, x.limbs[:, :4999])
  assert len(TRACES) == before
  assert [sum(int(v) << 32 * i for i, v in enumerate(lane)) for lane in plain.T[::97]] == values[::97]
  traced = jax.jit(f.from_plain)(plain[:, :9])
  assert np.array_equal(traced.limbs, x.limbs[:, :9]) and np.array_equal(jax.jit(f.to_plain)(traced), plain[:, :9])


def test_bits():
  values, x = edges(Fr)
  powers = np.array([1 << i for i in range(255)], object)[:, None]
  assert (x.bits().astype(object) * powers).sum(axis=0).tolist() == values
  assert np.array_equal(jax.jit(Fr.bits)(x), x.bits())


# Arithmetic

@FIELDS
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_operators_equal_the_oracle(f, name):
  """Every edge value against every other."""
  values, _ = edges(f)
  pairs = [(a, b) for a in values for b in values]
  got = getattr(operator, name)(*(f.from_ints([p[k] for p in pairs]) for k in (0, 1)))
  assert got.to_ints() == [getattr(ORACLE[f], name)(a, b) for a, b in pairs]


@FIELDS
def test_laws(f):
  _, x = edges(f)
  values, y = edges(f)
  y = f.from_ints(shifted(values))
  z = f.from_ints(shifted(shifted(values)))
  same = lambda a, b: bool(np.all(a.equals(b)))
  zero, one = f.zeros(x.shape), f.ones(x.shape)
  assert same(x + y, y + x) and same(x * y, y * x)
  assert same((x + y) + z, x + (y + z)) and same((x * y) * z, x * (y * z)) and same(x * (y + z), x * y + x * z)
  assert same(x + zero, x) and same(x * one, x) and same(x - x, zero) and same(x + -x, zero) and same((-x) + x, zero)
  assert same(x.double(), x + x) and same(x.square(), x * x) and same(x - y, x + -y)


@FIELDS
def test_inverse(f):
  values, x = edges(f)
  assert x.inverse().to_ints() == [ORACLE[f].inverse(v) for v in values]
  assert batch_inverse(x).to_ints() == x.inverse().to_ints()


@FIELDS
def test_power(f):
  values, x = edges(f)
  def power(v, exponent):
    return functools.reduce(ORACLE[f].mul, [v] * exponent, ORACLE[f].one)
  for exponent in (0, 1, 2, 3, 10):
    assert x.pow(exponent).to_ints() == [power(v, exponent) for v in values]
  group = f.order - 1
  assert np.all(x.pow(group).equals(f.zeros(()).select(x.is_zero(), f.ones(())))) and np.all(x.pow(group + 1).equals(x))
  assert np.all(x.pow(5 * group + 2).equals(x.square()))
  with pytest.raises(ValueError, match="use inverse"):
    x.pow(-1)


def test_one_compilation_serves_every_exponent():
  _, x = edges(Fr)
  x.pow(5)
  before = len(TRACES)
  x.pow(R - 2), x.pow(0), x.pow(1 << 254)
  assert len(TRACES) == before


@PRIME_FIELDS
@pytest.mark.parametrize("count", [0, 1, 2, 17, 40, 1200])
def test_batch_inverse(f, count):
  values = random_values(f, count)
  for i in (0, count // 2, count - 1):
    if count > 1:
      values[i] = 0
  assert batch_inverse(f.from_ints(values)).to_ints() == [ORACLE[f].inverse(v) for v in values]


def test_batch_inverse_of_other_shapes():
  values = np.array(random_values(Fr, 40)).astype(object)
  rows = Fr.from_ints(values.reshape(2, 20))
  expected = [ORACLE[Fr].inverse(v) for v in values]
  assert sum(batch_inverse(rows).to_ints(), []) == expected
  assert batch_inverse(Fr.from_ints(values[0])).to_ints() == expected[0]


def test_conjugate_norm_and_scale():
  values, x = edges(Fp2)
  assert x.conjugate().to_ints() == [(a, -b % P) for a, b in values]
  assert x.norm().to_ints() == [(a * a + b * b) % P for a, b in values]
  assert x.scale(x.c1).to_ints() == [(a * b % P, b * b % P) for a, b in values]


@FIELDS
def test_products_are_the_products(f):
  _, x = edges(f)
  y, one = f.from_ints(shifted(EDGES[f])), f.ones(())
  got = products((x, y), (y, y), (x, one))
  assert all(np.all(a.equals(b)) for a, b in zip(got, (x * y, y * y, x), strict=True))


@FIELDS
def test_comparisons(f):
  values, x = edges(f)
  assert np.asarray(x.is_zero()).tolist() == [v == ORACLE[f].zero for v in values]
  assert np.all(x.equals(x)) and np.asarray(x.equals(x[0])).tolist() == [v == values[0] for v in values]


def test_other_fields_do_not_mix():
  for name in ("add", "sub", "mul"):
    with pytest.raises(TypeError):
      getattr(operator, name)(Fr.ones(()), Fp.ones(()))


# Batches

@pytest.mark.parametrize("count", [0, 1, 2, 5, 300])
def test_sizes(count):
  """300 lanes go through a product in blocks."""
  a, b = random_values(Fr, count), random_values(Fr, count, 9)
  x, y = Fr.from_ints(a), Fr.from_ints(b)
  assert (x * y - x).to_ints() == [(u * v - u) % R for u, v in zip(a, b)]


@FIELDS
def test_a_long_batch_goes_in_blocks(f):
  """One lane more than whole blocks: the last block overlaps."""
  few = random_values(f, 7)
  count = field._MAX_STRAIGHT_LANES + 129
  x = f.from_ints(few)[np.arange(count) % 7]
  y = f.from_ints(shifted(few))[np.arange(count) % 7]
  got, expected = x * y, [ORACLE[f].mul(a, b) for a, b in zip(few, shifted(few))]
  assert got[:7].to_ints() == expected and np.all(got.equals(got[:7][np.arange(count) % 7]))


def test_shapes():
  x = Fr.from_ints([[1, 2, 3], [4, 5, 6]])
  assert x.shape == (2, 3) and x[1].to_ints() == [4, 5, 6] and x[1, 2].to_ints() == 6 and x[:, ::2].to_ints() == [[1, 3], [4, 6]]
  assert x[..., 0].to_ints() == [1, 4] and x[:, jnp.array([2, 0])].to_ints() == [[3, 1], [6, 4]]
  assert x.reshape((3, 2)).to_ints() == [[1, 2], [3, 4], [5, 6]] and x.reshape(-1).shape == (6,)
  assert x[0].broadcast_to((2, 3)).to_ints() == [[1, 2, 3]] * 2
  assert stack([x[0], x[1]]).to_ints() == x.to_ints() and stack([x[0], x[1]], axis=-1).to_ints() == [[1, 4], [2, 5], [3, 6]]
  assert concatenate([x, x], axis=-1).shape == (2, 6) and concatenate([x, x]).shape == (4, 3)
  assert Fr.zeros(3).to_ints() == [0, 0, 0] and Fr.ones((1, 2)).to_ints() == [[1, 1]] and Fp2.ones(()).to_ints() == (1, 0)


def test_batches_broadcast():
  x = Fr.from_ints([[1, 2, 3], [4, 5, 6]])
  assert (x * Fr.from_ints(2)).to_ints() == [[2, 4, 6], [8, 10, 12]] and (x + x[0]).to_ints() == [[2, 4, 6], [5, 7, 9]]
  assert x[0].select([[True], [False]], x).to_ints() == [[1, 2, 3], [4, 5, 6]]
  assert x.select(np.array([True, False, True]), Fr.zeros(())).to_ints() == [[1, 0, 3], [4, 0, 6]]


# Transformations

@FIELDS
def test_jit(f):
  values, x = edges(f)
  y = f.from_ints(shifted(values))
  got = jax.jit(lambda x, y: ((x * y - x).square() + y).select(x.is_zero(), -y))(x, y)
  assert np.all(got.equals(((x * y - x) * (x * y - x) + y).select(x.is_zero(), -y)))


@FIELDS
def test_vmap_over_a_leading_axis_of_the_leaves(f):
  rows = [f.from_ints(random_values(f, 5, seed)) for seed in (1, 2, 3)]
  lifted = jax.tree.map(lambda *v: jnp.stack(v), *rows)        # leaves [3, limbs, 5]
  fn = lambda x: (batch_inverse(x) * x.double() - x, x.pow(3), x.is_zero())
  got = jax.vmap(fn)(lifted)
  for i, row in enumerate(rows):
    for a, b in zip(jax.tree.leaves(jax.tree.map(lambda v, i=i: v[i], got)), jax.tree.leaves(fn(row)), strict=True):
      assert np.array_equal(a, b)
  constant = rows[0]
  mixed = jax.vmap(lambda x, y: x * y, in_axes=(0, None))(lifted, constant)
  assert np.array_equal(jax.tree.leaves(mixed)[0][1], jax.tree.leaves(rows[1] * constant)[0])


def test_inside_a_loop():
  x = Fp.from_ints(random_values(Fp, 5))
  got = jax.lax.fori_loop(0, 10, lambda i, y: y * x, jax.tree.map(jnp.asarray, x))
  assert np.all(got.equals(x.pow(11)))


# Budgets

def test_products_make_one_multiplication(monkeypatch):
  x, y = Fr.ones((5,)), Fp2.ones((5,))
  assert count_products(monkeypatch, lambda a: products((a, a), (a, a), (a, a)), x) == [15]
  assert count_products(monkeypatch, lambda a: products((a, a), (a, a)), y) == [10]
  assert count_products(monkeypatch, lambda a: a._times(a), y) == [15]     # Karatsuba


def test_equal_shapes_trace_once():
  operations = lambda x: (x * x, x + x, x - x, -x, x.equals(x), x.is_zero(), batch_inverse(x), products((x, x), (x, x)))
  operations(Fr.from_ints([1, 2, 3]))
  before = len(TRACES)
  operations(Fr.from_ints([4, 5, 6]))
  assert len(TRACES) == before
