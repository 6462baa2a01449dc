"""The quotient: its defining equation, both bases, the vectors of an independent prover, and batches."""
import hashlib
import json
import pathlib

import cases
import jax
import numpy as np
import oracle
import pytest
from oracle import R

from zkjax.groth16.formats.circom import read_wtns
from zkjax.groth16.formats.snarkjs import read_zkey
from zkjax.groth16.qap import quotient
from zkjax.groth16.r1cs import evaluate
from zkjax.ops.field import Fr
from zkjax.ops.ntt import Domain

DATA = pathlib.Path(__file__).parent / "data"
CIRCUITS = pathlib.Path(__file__).resolve().parents[2] / "shared" / "circuits"
NAMES = ["mul", "chain10", "chain12", "edge_addonly", "edge_bits", "edge_linear", "edge_nopub", "edge_pow2exact", "edge_unused",
         "edge_zeroconstr", "merkle20_poseidon", "sha256_64"]


def satisfied(size, seed=1):
  """Evaluations of A, B and C = A B, edge values among them."""
  a = (cases.scalars() + cases.random_scalars(size, seed))[:size] if size > 8 else cases.random_scalars(size, seed)
  b = cases.random_scalars(size, seed + 1)
  return a, b, [x * y % R for x, y in zip(a, b)]


def run(vectors, domain, h_basis):
  return quotient(*map(Fr.from_ints, vectors), domain, h_basis).to_ints()


@pytest.mark.parametrize("log2_size, generator", [(1, 7), (3, 7), (3, 5)])
def test_monomial_coefficients_are_those_of_polynomial_division(log2_size, generator):
  domain, vectors = Domain(log2_size, generator), satisfied(1 << log2_size)
  expected, remainder = oracle.quotient(*vectors, domain.root)
  assert run(vectors, domain, "monomial") == expected and not any(remainder)


@pytest.mark.parametrize("log2_size", [1, 3])
def test_coset_values_are_those_of_the_numerator(log2_size):
  domain, vectors = Domain(log2_size), satisfied(1 << log2_size)
  a, b, c = (oracle.inverse_dft(v, domain.root) for v in vectors)
  at = oracle.evaluate_polynomial
  odd = [pow(oracle.root_of_unity(log2_size + 1, 5), 2 * i + 1, R) for i in range(domain.size)]
  assert run(vectors, domain, "coset") == [(at(a, x) * at(b, x) - at(c, x)) % R for x in odd]


def test_both_bases_are_one_polynomial():
  """On the odd coset X^n - 1 = -2: a b - c = -2 h."""
  domain, vectors = Domain(6), satisfied(64)
  h = run(vectors, domain, "monomial")
  assert run(vectors, domain, "coset") == [-2 * oracle.evaluate_polynomial(h, x) % R for x in domain.odd_coset().elements()]


def test_an_unsatisfied_system_has_no_polynomial_quotient():
  """The result is then not the quotient: (X^n - 1) h differs from a b - c at a random point."""
  domain, (a, b, c) = Domain(3), satisfied(8)
  c[5] = (c[5] + 1) % R
  h, x = run((a, b, c), domain, "monomial"), 0xdecade
  at = lambda values: oracle.evaluate_polynomial(oracle.inverse_dft(values, domain.root), x)
  assert (at(a) * at(b) - at(c) - oracle.evaluate_polynomial(h, x) * (pow(x, 8, R) - 1)) % R


def test_vmap_computes_each_partition():
  domain = Domain(3)
  systems = [satisfied(8, seed) for seed in (1, 5)]
  stacked = [Fr(np.stack([np.asarray(Fr.from_ints(s[k]).limbs) for s in systems])) for k in range(3)]
  for h_basis in ("coset", "monomial"):
    out = jax.vmap(lambda a, b, c: quotient(a, b, c, domain, h_basis))(*stacked)  # noqa: B023
    assert [Fr(out.limbs[k]).to_ints() for k in range(2)] == [run(s, domain, h_basis) for s in systems]


def digest(values):
  return hashlib.sha256(np.ascontiguousarray(np.asarray(values.to_plain()).T).tobytes()).hexdigest()


@pytest.mark.parametrize("name", NAMES)
def test_vectors_of_an_independent_prover(name):
  """Evaluations of A and B and the odd coset vector, as recorded from a prover that shares no code with this one."""
  folder = DATA / name if name == "mul" else CIRCUITS / name
  if not folder.exists():
    pytest.skip(f"../shared/circuits/{name} is not there")
  key, witness = read_zkey(folder / f"{name}.zkey", check="none"), read_wtns(folder / "witness.wtns")
  az, bz, cz = evaluate(key.constraints, witness, key.domain.size)
  recorded = json.loads((folder / "det_r0_s0/digests.json").read_text())
  assert digest(az) == recorded["sha256_A_evals_LE"]
  assert digest(bz) == recorded["sha256_B_evals_LE"]
  assert digest(quotient(az, bz, cz, key.domain, "coset")) == recorded["sha256_H_oddcoset_LE"]


def test_unknown_basis_is_refused():
  with pytest.raises(ValueError, match="h_basis"):
    run(satisfied(2), Domain(1), "lagrange")
