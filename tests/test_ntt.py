"""Transforms: the laws of a discrete Fourier transform, the oracle at small sizes, cosets of both ecosystems, batches, orders."""
import random

import cases
import jax
import numpy as np
import oracle
import pytest
from counting import count_equations
from oracle import R

from zkjax.ops.cpu import ntt as portable
from zkjax.ops.field import Fr
from zkjax.ops.ntt import Domain, extend, intt, ntt

GENERATORS = (5, 7)
COMPILATIONS = []
jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: "backend_compile" in name and COMPILATIONS.append(name))


def values(count, seed=0):
  """Edge values first, then random ones, in a random order."""
  out = (cases.scalars() + cases.random_scalars(count, seed))[:count] if seed else cases.random_scalars(count, seed)
  random.Random(seed).shuffle(out)
  return out


def to_plain_bytes(ints):
  return b"".join(v.to_bytes(32, "little") for v in ints)


# Domains

@pytest.mark.parametrize("generator", GENERATORS)
def test_roots_have_exactly_their_order(generator):
  for log2_size in range(33):
    root = Domain(log2_size, generator).root
    assert pow(root, 1 << log2_size, R) == 1 and (log2_size == 0 or pow(root, 1 << log2_size - 1, R) == R - 1)
    assert root == oracle.root_of_unity(log2_size, generator)


def test_generators_agree_up_to_four_points_only():
  assert [Domain(k, 5).root == Domain(k, 7).root for k in range(5)] == [True, True, True, False, False]


@pytest.mark.parametrize("log2_size", [0, 1, 5, 31])
def test_odd_coset_is_the_odd_powers_of_the_double_root(log2_size):
  domain = Domain(log2_size)
  odd = domain.odd_coset()
  assert odd.shift == Domain(log2_size + 1).root and odd.vanishing == R - 2
  if log2_size < 10:
    assert odd.elements() == [pow(odd.shift, 2 * i + 1, R) for i in range(domain.size)]


def test_odd_coset_of_the_largest_domain_is_shifted_by_the_square_of_the_generator():
  assert Domain(32).odd_coset().shift == 25


@pytest.mark.parametrize("generator", GENERATORS)
def test_inverse_vanishing_is_one_over_the_vanishing_polynomial(generator):
  coset = Domain(4, generator).coset(generator)
  assert all((pow(x, 16, R) - 1) * coset.inverse_vanishing % R == 1 for x in coset.elements())


def test_inverse_vanishing_is_refused_on_the_subgroup():
  with pytest.raises(ValueError, match="use a coset"):
    Domain(4).inverse_vanishing  # noqa: B018


@pytest.mark.parametrize("arguments, match", [((33,), "log2_size"), ((-1,), "log2_size"), ((4, 4), "non-residue"), ((4, 5, 0), "shift"),
                                              ((4, 5, R), "shift")])
def test_impossible_domains_are_refused(arguments, match):
  with pytest.raises(ValueError, match=match):
    Domain(*arguments)


def test_domains_are_hashable_and_equal_by_value():
  assert Domain(5) == Domain(5, 5, 1) and hash(Domain(5)) == hash(Domain(5, 5, 1)) and Domain(5) != Domain(5).odd_coset()


# Transforms

def check_against_oracle(domain, seed):
  coefficients = values(domain.size, seed)
  out = ntt(domain, Fr.from_ints(coefficients))
  assert out.to_ints() == oracle.dft(coefficients, domain.root, domain.shift)
  assert intt(domain, out).to_ints() == coefficients


@pytest.mark.parametrize("log2_size", range(7))
def test_ntt_is_the_naive_transform(log2_size):
  for seed, generator in enumerate(GENERATORS):
    if log2_size > 2 or seed == 0:            # equal domains below
      check_against_oracle(Domain(log2_size, generator), seed)


@pytest.mark.parametrize("log2_size", [0, 1, 2, 3, 6])
def test_ntt_on_a_coset_is_the_naive_transform(log2_size):
  check_against_oracle(Domain(log2_size).odd_coset(), 1)


def test_ntt_on_the_coset_of_the_generator_is_the_naive_transform():
  check_against_oracle(Domain(6, 7).coset(7), 1)


@pytest.mark.parametrize("log2_size", [9, 12])
def test_large_transforms_evaluate_the_polynomial(log2_size):
  domain = Domain(log2_size).odd_coset()
  coefficients = values(domain.size, 1)
  out = ntt(domain, Fr.from_ints(coefficients))
  ints = out.to_ints()
  for k in (0, 1, 2, domain.size // 2, domain.size - 2, domain.size - 1):
    assert ints[k] == oracle.evaluate_polynomial(coefficients, domain.shift * pow(domain.root, k, R))
  assert intt(domain, out).to_ints() == coefficients


def test_the_largest_size_of_the_test_circuits():
  """2^16 once: at a few points, and there and back."""
  domain = Domain(16)
  coefficients = values(domain.size, 1)
  out = ntt(domain, Fr.from_ints(coefficients))
  for k in (0, 1, 40000):
    assert out[k].to_ints() == oracle.evaluate_polynomial(coefficients, pow(domain.root, k, R))
  np.testing.assert_array_equal(np.asarray(intt(domain, out).limbs), np.asarray(Fr.from_ints(coefficients).limbs))


def test_transform_of_the_extremes():
  """All r - 1, all zero, and one r - 1: the sums that grow most between reductions."""
  domain = Domain(6)
  for coefficients in ([R - 1] * 64, [0] * 64, [0] * 63 + [R - 1]):
    assert ntt(domain, Fr.from_ints(coefficients)).to_ints() == oracle.dft(coefficients, domain.root)


def test_ntt_is_linear():
  domain = Domain(6)
  a, b = Fr.from_ints(values(64, 1)), Fr.from_ints(values(64, 2))
  factor = Fr.from_ints([12345])
  assert ntt(domain, a * factor + b).to_ints() == (ntt(domain, a) * factor + ntt(domain, b)).to_ints()


def test_products_of_evaluations_are_products_of_polynomials():
  domain = Domain(6)
  a, b = values(32, 1), values(32, 2)
  evaluations = ntt(domain, Fr.from_ints(a + [0] * 32)) * ntt(domain, Fr.from_ints(b + [0] * 32))
  assert intt(domain, evaluations).to_ints() == oracle.multiply_polynomials(a, b) + [0]


def test_bit_reversed_order_permutes_and_chains():
  domain = Domain(6)
  coefficients = Fr.from_ints(values(64, 1))
  natural, reordered = ntt(domain, coefficients).to_ints(), ntt(domain, coefficients, order="bit_reversed")
  assert reordered.to_ints() == [natural[int(f"{k:06b}"[::-1], 2)] for k in range(64)]
  assert intt(domain, reordered, order="bit_reversed").to_ints() == coefficients.to_ints()


def test_vmap_transforms_each_partition():
  domain = Domain(6).odd_coset()
  rows = [values(64, seed) for seed in range(1, 4)]
  batch = Fr(np.stack([np.asarray(Fr.from_ints(row).limbs) for row in rows]))
  out = jax.vmap(lambda v: ntt(domain, v))(batch)
  for k, row in enumerate(rows):
    assert Fr(out.limbs[k]).to_ints() == oracle.dft(row, domain.root, domain.shift)
  nested = jax.vmap(jax.vmap(lambda v: intt(domain, v)))(Fr(out.limbs.reshape(1, 3, 8, 64)))
  assert [Fr(nested.limbs[0, k]).to_ints() for k in range(3)] == rows


def test_one_compilation_serves_all_domains_of_a_size():
  vector = Fr.from_ints(values(8))
  ntt(Domain(3), vector)
  before = len(COMPILATIONS)
  for domain in (Domain(3, 5, 1), Domain(3, 7), Domain(3).odd_coset(), Domain(3, 7).coset(7)):
    ntt(domain, vector)
  assert len(COMPILATIONS) == before


@pytest.mark.parametrize("log2_size", [5, 9])
def test_blocks_of_columns_make_the_same_as_all_columns_at_once(monkeypatch, log2_size):
  """Blocks of few lanes, so that small transforms have many, against one block: with cosets, scales and ratios, of several vectors."""
  rows = Fr(np.stack([np.asarray(Fr.from_ints(values(1 << log2_size, seed)).limbs) for seed in (1, 2)]))
  plans = [portable.plan(log2_size, Domain(log2_size).root, *more) for more in ((), (7,), (7, 11), (7, 11, 13), (1, None, 13), (7, 1, 1))]
  whole = [np.asarray(portable.transform(rows.limbs, plan)) for plan in plans]
  monkeypatch.setattr(portable, "LANES", 4)
  in_blocks = jax.jit(lambda words, plan: portable.transform.__wrapped__(words, plan))
  for plan, expected in zip(plans, whole):
    np.testing.assert_array_equal(np.asarray(in_blocks(rows.limbs, plan)), expected)


@pytest.mark.parametrize("log2_size", [0, 1, 3, 6])
def test_extend_is_a_transform_of_the_inverse_transform(log2_size):
  """From a domain and from a coset, of one vector and of two."""
  domain = Domain(log2_size)
  rows = [Fr.from_ints(values(domain.size, seed)) for seed in (1, 2)]
  for source, target in ((domain, domain.odd_coset()), (domain.coset(7), domain), (domain.odd_coset(), domain.coset(5))):
    expected = [ntt(target, intt(source, row)).to_ints() for row in rows]
    assert extend(source, target, rows[0]).to_ints() == expected[0]
    both = jax.vmap(lambda v, source=source, target=target: extend(source, target, v))(Fr(np.stack([row.limbs for row in rows])))
    assert [Fr(limbs).to_ints() for limbs in both.limbs] == expected


def test_bounds_hold_up_to_the_largest_domain():
  """They are checked while tracing, and grow with every stage."""
  shape = jax.ShapeDtypeStruct((1, 8, 1 << 28), np.uint32)
  table, lanes = np.zeros((1 << 14, 9, 1), np.uint32), np.zeros((9, 1 << 14), np.uint32)
  plan = portable.Plan(table, table, np.zeros((14, 9, 1 << 14), np.uint32), portable.Factors(lanes, table[0]))
  assert jax.eval_shape(portable.transform, shape, plan).shape == shape.shape
  rows = np.zeros((4, 9, 8), np.uint32)
  with jax.enable_x64(True):
    for stages in (32, 36):                   # of 2^32 points, and of more than there can be
      columns = jax.make_jaxpr(lambda x, stages=stages: portable._transform_columns(x, 1 + portable.GROWTH * (stages - 2), table[:4], 0))
      if stages == 32:
        columns(rows)
      else:
        with pytest.raises(ValueError, match="a butterfly grows"):
          columns(rows)


@pytest.mark.parametrize("log2_size", [12, 20])
def test_the_graph_is_small_at_any_size(log2_size):
  """Compile time follows the number of equations, and constants travel with the program: neither may grow with n."""
  domain, shape = Domain(log2_size), Fr(jax.ShapeDtypeStruct((8, 1 << log2_size), np.uint32))
  count = lambda function: count_equations(jax.make_jaxpr(function)(shape).jaxpr)
  assert count(lambda v: ntt(domain, v)) < 1_950
  assert count(lambda v: extend(domain, domain.odd_coset(), v)) < 2_250             # one program for both transforms
  assert count(lambda v: intt(domain.odd_coset(), v)) < 2_300
  assert len(jax.jit(lambda v: ntt(domain, v)).lower(shape).as_text()) < 1_500_000


# Refused

@pytest.mark.parametrize("transform", [ntt, intt])
def test_wrong_arguments_are_refused(transform):
  with pytest.raises(ValueError, match="8 points.*shape \\(4,\\)"):
    transform(Domain(3), Fr.from_ints([1, 2, 3, 4]))
  with pytest.raises(ValueError, match="order"):
    transform(Domain(2), Fr.from_ints([1, 2, 3, 4]), order="reversed")
