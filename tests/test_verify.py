"""Verification: what is true, what is false, and what is refused."""
import json
import pathlib
import subprocess
import sys

import cases
import numpy as np
import oracle
import pytest

from zkjax.groth16.types import Proof, VerifyingKey
from zkjax.groth16.verify import PreparedVerifyingKey, _linear_combination, prepare, verify, verify_batch
from zkjax.ops.bls12_381 import P, R
from zkjax.ops.curve import Affine
from zkjax.ops.field import Fp, Fp2

g1, g2 = oracle.g1, oracle.g2
EXAMPLE = pathlib.Path(__file__).resolve().parents[1] / "examples" / "data"
CIRCUITS = pathlib.Path(__file__).resolve().parents[2] / "shared" / "circuits"
FOLDERS = sorted(path.parent for path in CIRCUITS.glob("*/vkey.json"))


# A key with a known trapdoor, whose simulated proofs are true: A B = alpha beta + sum_i a_i ic_i + C delta in the exponents, gamma = 1.

ALPHA, BETA, GAMMA, DELTA = cases.random_scalars(4, seed=10)
IC = cases.random_scalars(3, seed=11)
PUBLIC = [5, R - 1]

g1_point = lambda k: Affine.from_ints(Fp, g1.multiply(oracle.G1, k % R))
g2_point = lambda k: Affine.from_ints(Fp2, g2.multiply(oracle.G2, k % R))
g1_affine = lambda point: Affine.from_ints(Fp, point)
g2_affine = lambda point: Affine.from_ints(Fp2, point)


def make_key(**changes):
  fields = dict(
      alpha_g1=g1_point(ALPHA), beta_g2=g2_point(BETA), gamma_g2=g2_point(GAMMA), delta_g2=g2_point(DELTA),
      public_query=Affine.from_ints(Fp, [g1.multiply(oracle.G1, k) for k in IC]))
  return VerifyingKey(**(fields | changes))


def simulate(public, a, b):
  """A proof of any statement from the trapdoor (Groth16, section 3.2): c = (a b - alpha beta - gamma sum_i a_i ic_i) / delta."""
  inputs = sum(k * v for k, v in zip(IC, [1, *public]))
  c = (a * b - ALPHA * BETA - GAMMA * inputs) * pow(DELTA, -1, R)
  return Proof(g1_point(a), g2_point(b), g1_point(c))


KEY = make_key()
PREPARED = prepare(KEY)
PROOF = simulate(PUBLIC, 3, 4)


def replaced(proof, **changes):
  return Proof(**({"a": proof.a, "b": proof.b, "c": proof.c} | changes))


# Proofs of snarkjs and of an independent prover

def to_ints(value):
  return tuple(to_ints(v) for v in value) if isinstance(value, list) else int(value)


def json_point(value):
  x, y, z = to_ints(value)
  return None if z in (0, (0, 0)) else (x, y)


def load_key(folder):
  key = json.loads((folder / "vkey.json").read_text())
  return VerifyingKey(
      g1_affine(json_point(key["vk_alpha_1"])), g2_affine(json_point(key["vk_beta_2"])), g2_affine(json_point(key["vk_gamma_2"])),
      g2_affine(json_point(key["vk_delta_2"])), Affine.from_ints(Fp, [json_point(p) for p in key["IC"]]))


def load_proof(path):
  proof = json.loads(path.read_text())
  return Proof(g1_affine(json_point(proof["pi_a"])), g2_affine(json_point(proof["pi_b"])), g1_affine(json_point(proof["pi_c"])))


def load_public(folder):
  return [int(v) for v in json.loads((folder / "public.json").read_text())]


needs_circuits = pytest.mark.skipif(not FOLDERS, reason="../shared/circuits is not there")


@pytest.mark.parametrize("folder", [EXAMPLE] + FOLDERS, ids=lambda folder: folder.name)
def test_proofs_of_other_provers_are_true(folder):
  key, public = prepare(load_key(folder)), load_public(folder)
  paths = [folder / "proof.json", *sorted(folder.glob("det_*/proof.json"))]
  for path in paths:
    assert verify(key, load_proof(path), public), path
  for i in range(len(public)):
    assert not verify(key, load_proof(paths[0]), public[:i] + [(public[i] + 1) % R] + public[i + 1:])
  assert verify_batch(key, [load_proof(path) for path in paths], [public] * len(paths))


@needs_circuits
@pytest.mark.parametrize("name,message", [
    ("proof_A_not_in_subgroup", "proof.a is on the curve but not in G1"),
    ("proof_A_not_on_curve", "proof.a is not on the curve of G1"),
    ("proof_B_not_in_subgroup", "proof.b is on the curve but not in G2"),
])
def test_malformed_proofs_are_refused(name, message):
  proof = load_proof(CIRCUITS / "rejected" / f"{name}.json")
  with pytest.raises(ValueError, match=message):
    verify(load_key(CIRCUITS / "mul"), proof, load_public(CIRCUITS / "mul"))
  with pytest.raises(ValueError, match=r"proofs\[1\]" + message[len("proof"):]):
    good = load_proof(CIRCUITS / "mul" / "proof.json")
    verify_batch(load_key(CIRCUITS / "mul"), [good, proof], [load_public(CIRCUITS / "mul")] * 2)


@needs_circuits
def test_groth16_is_malleable():
  assert verify(load_key(CIRCUITS / "mul"), load_proof(CIRCUITS / "rejected" / "proof_scaled.json"), load_public(CIRCUITS / "mul"))


@needs_circuits
def test_key_without_contribution_is_refused():
  path = CIRCUITS / "rejected" / "mul_uncontributed_vkey.json"
  gamma, delta = (json_point(json.loads(path.read_text())[name]) for name in ("vk_gamma_2", "vk_delta_2"))
  assert gamma == delta
  with pytest.raises(ValueError, match="proofs can be forged"):
    prepare(make_key(gamma_g2=g2_affine(gamma), delta_g2=g2_affine(delta)))


def test_forged_proof_for_a_key_without_contribution():
  """With gamma = delta, (alpha, beta, -sum_i a_i public_query_i) is true for any a_i: no trapdoor and no witness needed."""
  key = prepare(make_key(delta_g2=KEY.gamma_g2), allow_uncontributed=True)
  a, b, public = g1_point(ALPHA), g2_point(BETA), [7, 8]
  inputs = g1.msm(KEY.public_query.to_ints(), [1, *public])
  assert verify(key, Proof(a, b, g1_affine(g1.neg(inputs))), public)


# True and false

@pytest.mark.parametrize("key", [KEY, PREPARED], ids=["key", "prepared"])
def test_simulated_proof_is_true(key):
  assert verify(key, PROOF, PUBLIC) is True and verify(key, PROOF, tuple(PUBLIC)) is True


@pytest.mark.parametrize("public", [[0, 0], [R - 1, R - 1], [5, 2**255 % R], [1, 2]])
def test_edge_values_of_public_inputs(public):
  assert verify(PREPARED, simulate(public, 8, 9), public)
  assert not verify(PREPARED, PROOF, public)


def test_other_points_are_false():
  a, b, c = PROOF.a, PROOF.b, PROOF.c
  assert not verify(PREPARED, replaced(PROOF, a=c, c=a), PUBLIC)
  assert not verify(PREPARED, replaced(PROOF, b=g2_point(5)), PUBLIC)
  assert not verify(PREPARED, replaced(PROOF, a=g1_affine(g1.neg(a.to_ints()))), PUBLIC)
  assert verify(PREPARED, replaced(PROOF, a=g1_affine(g1.neg(a.to_ints())), b=g2_affine(g2.neg(b.to_ints()))), PUBLIC)


@pytest.mark.parametrize("changes", [{"a": g1_affine(None)}, {"b": g2_affine(None)}, {"c": g1_affine(None)},
                                     {"a": g1_affine(None), "b": g2_affine(None), "c": g1_affine(None)}])
def test_infinity_is_a_point_like_any_other(changes):
  assert verify(PREPARED, replaced(PROOF, **changes), PUBLIC) is False


def test_infinity_is_true_where_the_equation_holds():
  proof = simulate(PUBLIC, 0, 4)
  assert proof.a.to_ints() is None and verify(PREPARED, proof, PUBLIC)


def test_no_public_input():
  key = make_key(public_query=Affine.from_ints(Fp, [g1.multiply(oracle.G1, IC[0])]))
  assert verify(key, simulate([], 6, 7), []) and not verify(key, PROOF, [])


def test_infinity_in_the_public_query_ignores_that_input():
  points = [g1.multiply(oracle.G1, IC[0]), g1.multiply(oracle.G1, IC[1]), None]
  key = make_key(public_query=Affine.from_ints(Fp, points))
  assert verify(key, simulate([5, 0], 3, 4), [5, 1234])


# Batches

def batch(count):
  publics = [[j, 7 * j] for j in range(count)]
  return [simulate(public, 3 + j, 11 + j) for j, public in enumerate(publics)], publics


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_batch_of_true_proofs(count):
  proofs, publics = batch(count)
  assert verify_batch(KEY, proofs, publics) is True


@pytest.mark.parametrize("position", [0, 2])
def test_batch_with_one_false_proof(position):
  proofs, publics = batch(3)
  assert not verify_batch(PREPARED, proofs, publics[:position] + [[1, 1]] + publics[position + 1:])
  proofs[position] = replaced(proofs[position], c=g1_point(1))
  assert not verify_batch(PREPARED, proofs, publics)


def test_errors_that_cancel_in_the_plain_product_are_noticed():
  """C_0 + D and C_1 - D: the product of the two equations holds, neither equation does."""
  proofs, publics = batch(2)
  shifted = [replaced(p, c=g1_affine(g1.add(p.c.to_ints(), d))) for p, d in zip(proofs, (oracle.G1, g1.neg(oracle.G1)))]
  assert not verify_batch(PREPARED, shifted, publics)
  assert not verify_batch(PREPARED, proofs, publics[::-1])


def test_batch_lengths_must_agree():
  proofs, publics = batch(2)
  with pytest.raises(ValueError, match="got 2 proofs and 1 lists of public inputs"):
    verify_batch(PREPARED, proofs, publics[:1])


# What is refused

@pytest.mark.parametrize("public,message", [
    ([5], "public must have 2 values.*got 1"),
    ([1, *PUBLIC], "public must have 2 values.*got 3"),
    ([5, R], r"public\[1\] must be in \[0, r\)"),
    ([-1, 5], r"public\[0\] must be in \[0, r\)"),
    ([5, True], r"public\[1\] must be an int, got bool"),
    ([5.0, 1], r"public\[0\] must be an int, got float"),
    (["5", 1], r"public\[0\] must be an int, got str"),
    ([np.int64(5), 1], r"public\[0\] must be an int, got int64"),
    ("51", "public must be a list or tuple"),
    (None, "public must be a list or tuple"),
    (np.array([5, 1]), "public must be a list or tuple"),
])
def test_public_inputs_are_checked(public, message):
  with pytest.raises(ValueError, match=message):
    verify(PREPARED, PROOF, public)
  with pytest.raises(ValueError, match=message.replace("public", r"publics\[0\]", 1)):
    verify_batch(PREPARED, [PROOF], [public])


@pytest.mark.parametrize("changes,message", [
    ({"a": g1_affine(cases.off_subgroup(g1))}, "proof.a is on the curve but not in G1"),
    ({"c": g1_affine(cases.off_subgroup(g1))}, "proof.c is on the curve but not in G1"),
    ({"b": g2_affine(cases.off_subgroup(g2))}, "proof.b is on the curve but not in G2"),
    ({"a": g1_affine(cases.off_curve(g1))}, "proof.a is not on the curve of G1"),
    ({"b": g2_affine(cases.off_curve(g2))}, "proof.b is not on the curve of G2"),
    ({"c": g1_affine((0, 1))}, "proof.c is not on the curve of G1"),
    ({"a": g2_point(3)}, "proof.a must be Affine over Fp "),
    ({"b": g1_point(3)}, "proof.b must be Affine over Fp2"),
    ({"a": Affine.from_ints(Fp, [oracle.G1, oracle.G1])}, "proof.a must be one point, got a batch of 2"),
    ({"a": (1, 2)}, "proof.a must be Affine"),
])
def test_proof_points_are_checked(changes, message):
  with pytest.raises(ValueError, match=message):
    verify(PREPARED, replaced(PROOF, **changes), PUBLIC)


def plus_modulus(limbs):
  """The same residue, not canonical: value + p still fits into 384 bits."""
  value = int.from_bytes(np.asarray(limbs).astype("<u4").tobytes(), "little") + P
  return np.frombuffer(value.to_bytes(48, "little"), "<u4").astype(np.uint32)


def test_limbs_that_are_not_canonical_are_refused():
  a, b = PROOF.a, PROOF.b
  with pytest.raises(ValueError, match="proof.a has a coordinate that is not canonical"):
    verify(PREPARED, replaced(PROOF, a=Affine(Fp(plus_modulus(a.x.limbs)), a.y)), PUBLIC)
  with pytest.raises(ValueError, match="proof.b has a coordinate that is not canonical"):
    verify(PREPARED, replaced(PROOF, b=Affine(b.x, Fp2(b.y.c0, Fp(plus_modulus(b.y.c1.limbs))))), PUBLIC)
  with pytest.raises(ValueError, match="vk.alpha_g1 has a coordinate that is not canonical"):
    prepare(make_key(alpha_g1=Affine(KEY.alpha_g1.x, Fp(plus_modulus(KEY.alpha_g1.y.limbs)))))


@pytest.mark.parametrize("changes,message", [
    ({"alpha_g1": g1_affine(cases.off_subgroup(g1))}, "vk.alpha_g1 is on the curve but not in G1"),
    ({"beta_g2": g2_affine(cases.off_subgroup(g2))}, "vk.beta_g2 is on the curve but not in G2"),
    ({"gamma_g2": g2_affine(cases.off_curve(g2))}, "vk.gamma_g2 is not on the curve of G2"),
    ({"delta_g2": g2_affine(None)}, "vk.delta_g2 is infinity"),
    ({"alpha_g1": g1_affine(None)}, "vk.alpha_g1 is infinity"),
    ({"delta_g2": g2_point(GAMMA)}, "vk.gamma_g2 and vk.delta_g2 are equal"),
    ({"public_query": Affine.from_ints(Fp, [oracle.G1, cases.off_subgroup(g1)])}, r"vk.public_query\[1\] is on the curve but not in G1"),
    ({"public_query": g1_point(3)}, "vk.public_query must be a batch"),
])
def test_key_points_are_checked(changes, message):
  with pytest.raises(ValueError, match=message):
    prepare(make_key(**changes))


def test_other_types_are_refused():
  with pytest.raises(ValueError, match="vk must be a VerifyingKey or the result of prepare"):
    verify({"protocol": "groth16"}, PROOF, PUBLIC)
  with pytest.raises(ValueError, match="proof must be a Proof, got tuple"):
    verify(PREPARED, (PROOF.a, PROOF.b, PROOF.c), PUBLIC)


def test_prepared_key_knows_the_number_of_inputs():
  assert isinstance(PREPARED, PreparedVerifyingKey) and PREPARED.num_public == 2


# The combination of the public inputs

@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 16, 40])
def test_linear_combination_equals_the_naive_sum(count):
  points, scalars = cases.random_points(g1, count), cases.random_scalars(count, seed=count)
  assert _linear_combination(points, scalars) == g1.msm(points, scalars)


def test_linear_combination_on_edge_values():
  points = [point for point in cases.points(g1) for _ in range(8)]
  scalars = cases.scalars()[:len(points)]
  assert _linear_combination(points, scalars) == g1.msm(points, scalars)
  assert _linear_combination(points, [0] * len(points)) is None
  assert _linear_combination([oracle.G1, g1.neg(oracle.G1)], [5, 5]) is None


# Budget

def test_verification_compiles_nothing():
  """In a fresh process, because another test may have compiled what this one would."""
  program = """
import jax
compiled = []
jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: compiled.append(name) if "compile" in name else None)
import test_verify as t
t.verify(t.KEY, t.PROOF, t.PUBLIC)
assert not compiled, compiled
jax.jit(lambda x: x + 1)(1)
assert compiled
"""
  subprocess.run([sys.executable, "-c", program], check=True, cwd=pathlib.Path(__file__).parent)
