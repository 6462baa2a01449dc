"""Sparse matrices on the device: sums of any length are exact, whatever the order of the entries."""
import pathlib
import random

import cases
import jax
import numpy as np
import oracle
import pytest
from oracle import R

from zkjax.groth16.formats.snarkjs import read_zkey
from zkjax.groth16.r1cs import check_satisfied, constraints_from_rows, evaluate, first_unsatisfied
from zkjax.groth16.types import Constraints, SparseMatrix, UnsatisfiedError
from zkjax.ops.field import Fr

MUL = pathlib.Path(__file__).parent / "data/mul/mul.zkey"


def random_rows(count, num_wires, seed):
  """Rows of 0 to 6 entries with edge coefficients."""
  generator, scalars = random.Random(seed), cases.scalars()
  return [{generator.randrange(num_wires): generator.choice(scalars) for _ in range(generator.randrange(7))} for _ in range(count)]


def system(count=20, num_wires=9, num_public=2):
  return [random_rows(count, num_wires, seed) for seed in (1, 2, 3)], num_wires, num_public


def witness_of(num_wires, seed=0):
  return [1] + [R - 1, 0, 1, R - 1][:num_wires - 1] + cases.random_scalars(max(num_wires - 5, 0), seed)


@pytest.mark.parametrize("size", [23, 32])
def test_evaluate_is_the_naive_product(size):
  rows, num_wires, num_public = system()
  constraints, witness = constraints_from_rows(*rows, num_wires, num_public), witness_of(num_wires)
  az, bz, cz = evaluate(constraints, Fr.from_ints(witness), size)
  naive = oracle.evaluate_r1cs(list(zip(*rows)), witness)
  padding = [0] * (size - len(rows[0]) - num_public - 1)
  assert az.to_ints() == naive[0] + witness[:num_public + 1] + padding
  assert [bz.to_ints(), cz.to_ints()] == [v + [0] * (num_public + 1) + padding for v in naive[1:]]


def sparse(entries):
  rows, wires, values = zip(*entries)
  return SparseMatrix(np.array(rows, np.int32), np.array(wires, np.int32), Fr.from_ints(values))


def test_entries_in_any_order_add_up():
  """A zkey promises neither order nor uniqueness."""
  a = sparse([(3, 0, 5), (0, 1, R - 1), (3, 2, 7), (0, 1, R - 1), (3, 0, R - 4)])
  b = sparse([(1, 1, 1), (0, 0, 9), (1, 1, 1), (1, 1, R - 2)])
  witness = [1, 10, 100]
  az, bz, cz = evaluate(Constraints(a, b, None, 4, 3, 0), Fr.from_ints(witness), 4)
  assert az.to_ints() == [R - 20, 0, 0, 701] and bz.to_ints() == [9, 0, 0, 0]
  assert cz.to_ints() == [9 * (R - 20) % R, 0, 0, 0]          # C is not known: C w := (A w)(B w)


@pytest.mark.parametrize("known", [True, False])
def test_stacked_matrices_give_the_same_vectors(known):
  """As a GPU's prover multiplies them: with C, and where it is not known."""
  rows, num_wires, num_public = system()
  constraints, witness = constraints_from_rows(*rows, num_wires, num_public), Fr.from_ints(witness_of(num_wires))
  if not known:
    constraints = Constraints(constraints.a, constraints.b, None, constraints.num_rows, num_wires, num_public)
  stacked = constraints.stacked(32)
  assert stacked.num_matrices == 2 + known and int(stacked.matrix.rows.max()) >= 32 * (1 + known)
  for one, other in zip(evaluate(stacked, witness, 32), evaluate(constraints, witness, 32), strict=True):
    np.testing.assert_array_equal(np.asarray(one.limbs), np.asarray(other.limbs))


@pytest.mark.parametrize("length", [1, 2, 3, 300, 5000])
def test_long_rows_of_the_largest_terms_are_exact(length):
  """Every term r - 1: the carries of the words are as large as they get for this length."""
  a = sparse([(0, 1, 1)] * length + [(1, 0, 1)])
  az, _, _ = evaluate(Constraints(a, sparse([(0, 0, 1)]), None, 2, 2, 0), Fr.from_ints([1, R - 1]), 2)
  assert az.to_ints() == [-length % R, 1]


def test_empty_matrices_are_zero():
  none = SparseMatrix(np.zeros(0, np.int32), np.zeros(0, np.int32), Fr.zeros((0,)))
  az, bz, cz = evaluate(Constraints(none, none, none, 1, 2, 0), Fr.from_ints([1, 5]), 2)
  assert az.to_ints() == bz.to_ints() == cz.to_ints() == [0, 0]


def test_vmap_evaluates_each_partition():
  rows, num_wires, num_public = system()
  constraints = constraints_from_rows(*rows, num_wires, num_public)
  witnesses = [Fr.from_ints(witness_of(num_wires, seed)) for seed in range(2)]
  stacked = Fr(np.stack([np.asarray(w.limbs) for w in witnesses]))
  together = jax.vmap(lambda w: evaluate(constraints, w, 32))(stacked)
  for k, witness in enumerate(witnesses):
    for batch, single in zip(together, evaluate(constraints, witness, 32)):
      np.testing.assert_array_equal(np.asarray(batch.limbs[k]), np.asarray(single.limbs))


# Satisfaction: wire 1 = wire 2 * wire 3, wire 4 = wire 3 + 1

MULTIPLIER = ([{2: 1}, {3: 1, 0: 1}], [{3: 1}, {0: 1}], [{1: 1}, {4: 1}], 5, 1)


def test_a_satisfying_witness_passes():
  constraints = constraints_from_rows(*MULTIPLIER)
  assert first_unsatisfied(constraints, Fr.from_ints([1, 33, 3, 11, 12])) is None
  check_satisfied(constraints, Fr.from_ints([1, 33, 3, 11, 12]))


@pytest.mark.parametrize("witness, index", [([1, 34, 3, 11, 12], 0), ([1, 33, 3, 11, 13], 1), ([1, 0, 3, 11, 0], 0)])
def test_the_first_violated_constraint_is_named_without_values(witness, index):
  constraints = constraints_from_rows(*MULTIPLIER)
  assert first_unsatisfied(constraints, Fr.from_ints(witness)) == index == oracle.first_unsatisfied(list(zip(*MULTIPLIER[:3])), witness)
  with pytest.raises(UnsatisfiedError, match=f"constraint {index} .*of 2$") as caught:
    check_satisfied(constraints, Fr.from_ints(witness))
  assert caught.value.constraint == index and not any(str(v) in str(caught.value) for v in (34, 33, 11, 12, 13))


# Refused

@pytest.mark.parametrize("arguments, match", [
    (([{}], [{}], [], 2, 0), "1 rows of A, 1 rows of B, 0 rows of C"),
    (([{2: 1}], [{}], [{}], 2, 0), "row 0 of A names wire 2"),
    (([{}], [{-1: 1}], [{}], 2, 0), "row 0 of B names wire -1"),
    (([{}], [{}], [{}], 2, 2), "num_public = 2"),
    (([{}], [{}], [{}], 2, -1), "num_public = -1"),
])
def test_malformed_systems_are_refused(arguments, match):
  with pytest.raises(ValueError, match=match):
    constraints_from_rows(*arguments)


def test_a_domain_that_is_too_small_is_refused():
  with pytest.raises(ValueError, match="4 rows do not fit"):
    evaluate(constraints_from_rows(*MULTIPLIER), Fr.from_ints([1] * 5), 2)


def test_checking_needs_c_and_a_witness_of_the_circuit():
  with pytest.raises(ValueError, match="r1cs file"):
    first_unsatisfied(read_zkey(MUL).constraints, Fr.from_ints([1, 33, 3, 11]))
  with pytest.raises(ValueError, match="another circuit"):
    first_unsatisfied(constraints_from_rows(*MULTIPLIER), Fr.from_ints([1, 33]))
