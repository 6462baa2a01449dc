"""Keys made from a circuit: every point against the naive computation, both bases, and what is refused."""
import importlib
import json
import pathlib

import numpy as np
import oracle
import pytest
from oracle import R

from zkjax.groth16.formats.snarkjs import read_zkey
from zkjax.groth16.r1cs import constraints_from_rows
from zkjax.groth16.setup import ToxicWaste, lagrange, setup
from zkjax.ops.ntt import Domain

making = importlib.import_module("zkjax.groth16.setup")          # the package exports a function of that name
DATA = pathlib.Path(__file__).parent / "data"
TOXIC = ToxicWaste(tau=0x1234567890abcdef << 100, alpha=R - 3, beta=77, gamma=1 << 200, delta=0xabcdef)
# wire 1 = wire 2 * wire 3, wire 4 = (wire 3 - 1)^2; wire 5 is used nowhere
A_ROWS, B_ROWS, C_ROWS = [{2: 1}, {3: 1, 0: -1}], [{3: 1}, {3: 1, 0: R - 1}], [{1: 1}, {4: 1}]
NUM_WIRES, NUM_PUBLIC = 6, 1


def circuit():
  return constraints_from_rows(A_ROWS, B_ROWS, C_ROWS, NUM_WIRES, NUM_PUBLIC)


def naive_lagrange(points, x):
  """[L_i(x)] as the product of (x - x_j) / (x_i - x_j)."""
  out = []
  for xi in points:
    value = 1
    for xj in points:
      if xj != xi:
        value = value * (x - xj) * pow(xi - xj, -1, R) % R
    out.append(value)
  return out


def naive_scalars(generator):
  """u_i(tau), v_i(tau), w_i(tau) straight from the definition; the input rows are a 1 of A for wire s in row num_constraints + s."""
  size = 4
  root = oracle.root_of_unity(2, generator)
  basis = naive_lagrange([pow(root, i, R) for i in range(size)], TOXIC.tau)
  a_rows = A_ROWS + [{s: 1} for s in range(NUM_PUBLIC + 1)]
  column = lambda rows, wire: sum(row.get(wire, 0) * basis[i] for i, row in enumerate(rows)) % R
  return [[column(rows, wire) for wire in range(NUM_WIRES)] for rows in (a_rows, B_ROWS, C_ROWS)]


def expected(curve, scalars):
  return [curve.multiply(curve.generator, s % R) for s in scalars]


@pytest.mark.parametrize("h_basis, generator", [("coset", 5), ("monomial", 7)])
def test_every_point_is_the_naive_multiple_of_the_generator(h_basis, generator):
  key = setup(circuit(), TOXIC, h_basis, generator)
  t, n = TOXIC, 4
  u, v, w = naive_scalars(generator)
  combined = [(t.beta * a + t.alpha * b + c) % R for a, b, c in zip(u, v, w)]
  over = lambda values, divisor: [value * pow(divisor, -1, R) for value in values]
  if h_basis == "coset":
    double_root = oracle.root_of_unity(3, generator)
    h = naive_lagrange([pow(double_root, i, R) for i in range(2 * n)], t.tau)[1::2]
  else:
    h = [pow(t.tau, j, R) * (pow(t.tau, n, R) - 1) for j in range(n - 1)]
  g1, g2 = oracle.g1, oracle.g2
  assert [key.vk.alpha_g1.to_ints(), key.beta_g1.to_ints(), key.delta_g1.to_ints()] == expected(g1, [t.alpha, t.beta, t.delta])
  assert [key.vk.beta_g2.to_ints(), key.vk.gamma_g2.to_ints(), key.vk.delta_g2.to_ints()] == expected(g2, [t.beta, t.gamma, t.delta])
  assert key.a_query.to_ints() == expected(g1, u)
  assert key.b_g1_query.to_ints() == expected(g1, v)
  assert key.b_g2_query.to_ints() == expected(g2, v)
  assert key.vk.public_query.to_ints() == expected(g1, over(combined[:NUM_PUBLIC + 1], t.gamma))
  assert key.l_query.to_ints() == expected(g1, over(combined[NUM_PUBLIC + 1:], t.delta))
  assert key.h_query.to_ints() == expected(g1, over(h, t.delta))
  assert (key.domain, key.h_basis, key.num_wires, key.num_public) == (Domain(2, generator), h_basis, NUM_WIRES, NUM_PUBLIC)


@pytest.mark.parametrize("h_basis, generator", [("coset", 5), ("monomial", 7)])
def test_scalars_on_arrays_are_those_on_integers(h_basis, generator):
  domain = Domain(2, generator)
  made = [make(circuit(), domain, TOXIC, h_basis) for make in (making._scalars, making._scalars_on_arrays)]
  assert made[0].keys() == made[1].keys()
  for name, words in made[0].items():
    assert np.array_equal(words, made[1][name]), name


def test_large_circuits_are_set_up_on_arrays(monkeypatch):
  small = setup(circuit(), TOXIC)
  monkeypatch.setattr(making, "_FEW_ROWS", {False: 1})
  monkeypatch.setattr(making, "_scalars", None)
  large = setup(circuit(), TOXIC)
  for name in ("a_query", "b_g1_query", "b_g2_query", "h_query", "l_query"):
    assert getattr(large, name).to_ints() == getattr(small, name).to_ints(), name
  for h_basis, tau in (("coset", oracle.root_of_unity(3, 5)), ("monomial", oracle.root_of_unity(2, 5))):
    with pytest.raises(ValueError, match="draw another"):
      setup(circuit(), ToxicWaste(tau, 1, 2, 3, 4), h_basis)


def test_unused_private_wires_have_points_at_infinity():
  key = setup(circuit(), TOXIC)
  assert key.a_query.to_ints()[5] is None and key.b_g2_query.to_ints()[5] is None and key.l_query.to_ints()[-1] is None


def test_queries_of_two_bases_give_the_same_multiple_of_h():
  """sum_i (a b - c)(odd_i) L_(2i+1)(tau) = h(tau) (tau^n - 1) for every h of degree <= n - 2: scalars only."""
  domain, tau, h = Domain(2), TOXIC.tau, [3, 1, 4]
  odd = domain.odd_coset()
  values = [-2 * oracle.evaluate_polynomial(h, x) for x in odd.elements()]
  factor = (1 - pow(tau, 4, R)) * pow(2, -1, R)
  total = sum(v * factor * basis for v, basis in zip(values, lagrange(odd, tau)))
  assert (total - oracle.evaluate_polynomial(h, tau) * (pow(tau, 4, R) - 1)) % R == 0


def test_lagrange_basis_on_a_coset_interpolates():
  domain = Domain(3, 7).coset(7)
  assert lagrange(domain, 12345) == naive_lagrange(domain.elements(), 12345)


def test_random_setups_have_the_shape_of_a_ceremony_and_differ():
  """The layout of a zkey that snarkjs made from the same circuit."""
  zkey = read_zkey(DATA / "mul/mul.zkey")
  circuit_of_mul = constraints_from_rows([{2: -1}], [{3: 1}], [{1: -1}], 4, 1)
  keys = [setup(circuit_of_mul) for _ in range(2)]
  for key in keys:
    assert (key.domain, key.h_basis) == (zkey.domain, zkey.h_basis)
    for name in ("a_query", "b_g1_query", "b_g2_query", "h_query", "l_query"):
      ours, theirs = getattr(key, name).to_ints(), getattr(zkey, name).to_ints()
      assert [p is None for p in ours] == [p is None for p in theirs], name
    assert len(key.vk.public_query.to_ints()) == len(zkey.vk.public_query.to_ints())
  assert keys[0].vk.alpha_g1.to_ints() != keys[1].vk.alpha_g1.to_ints()
  entries = lambda c: sorted(zip(np.asarray(c.a.rows).tolist(), np.asarray(c.a.wires).tolist(), c.a.values.to_ints()))
  assert entries(circuit_of_mul) == entries(zkey.constraints)
  assert json.loads((DATA / "mul/vkey.json").read_text())["nPublic"] == keys[0].num_public


# Refused

@pytest.mark.parametrize("change, match", [
    ({"tau": 0}, "tau must be"), ({"alpha": R}, "alpha must be"), ({"beta": -1}, "beta must be"), ({"delta": 1.0}, "delta must be"),
    ({"gamma": 0xabcdef}, "gamma and delta must differ"),
])
def test_toxic_waste_out_of_range_is_refused(change, match):
  values = dict(tau=TOXIC.tau, alpha=TOXIC.alpha, beta=TOXIC.beta, gamma=TOXIC.gamma, delta=TOXIC.delta)
  with pytest.raises(ValueError, match=match):
    ToxicWaste(**{**values, **change})


@pytest.mark.parametrize("h_basis, tau", [("coset", 1), ("coset", oracle.root_of_unity(2, 5)), ("coset", oracle.root_of_unity(3, 5)),
                                          ("monomial", oracle.root_of_unity(2, 5))])
def test_tau_among_the_evaluation_points_is_refused(h_basis, tau):
  with pytest.raises(ValueError, match="draw another"):
    setup(circuit(), ToxicWaste(tau, 1, 2, 3, 4), h_basis)


def test_constraints_without_c_are_refused():
  with pytest.raises(ValueError, match="r1cs file"):
    setup(read_zkey(DATA / "mul/mul.zkey").constraints)


def test_unknown_basis_is_refused():
  with pytest.raises(ValueError, match="h_basis"):
    setup(circuit(), TOXIC, "lagrange")


def test_the_trapdoor_is_never_printed():
  assert str(TOXIC.tau) not in repr(TOXIC) and hex(TOXIC.beta) not in repr(TOXIC)
