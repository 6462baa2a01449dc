"""The pairing: its laws, published vectors, and values of other implementations."""
import json
import math
import pathlib

import cases
import oracle
import pytest

from zkjax.groth16 import pairing as ate
from zkjax.groth16.pairing import PreparedG2, pairing, pairing_check, pairing_product, prepare_g2
from zkjax.ops.bls12_381 import G1_COFACTOR, G2_COFACTOR, P, R, X
from zkjax.ops.int_curve import G1, G2

SHARED = pathlib.Path(__file__).resolve().parents[2] / "shared"
CURVES = pytest.mark.parametrize("curve,reference", [(G1, oracle.g1), (G2, oracle.g2)], ids=["G1", "G2"])

g, h = oracle.G1, oracle.G2
e = pairing(g, h)
f = ate.miller_loop([(g, h)])                                # an element of Fp12 outside the cyclotomic subgroup


def shared(*parts):
  path = SHARED.joinpath(*parts)
  if not path.exists():
    pytest.skip(f"{'/'.join(('..', 'shared') + parts)} is not there")
  return path


def to_ints(value):
  return tuple(to_ints(v) for v in value) if isinstance(value, list) else int(value)


# The tower

def test_multiplication_is_polynomial_multiplication_modulo_w6_minus_xi():
  k = ate.frobenius(f)
  expected = [(0, 0)] * 6
  for i, a in enumerate(f):
    for j, b in enumerate(k):
      product = oracle.fp2.mul(a, b)
      product = oracle.fp2.mul(product, (1, 1)) if i + j >= 6 else product
      expected[(i + j) % 6] = oracle.fp2.add(expected[(i + j) % 6], product)
  assert ate.multiply(f, k) == tuple(expected)


def test_square_equals_multiplication_by_self():
  assert ate.square(f) == ate.multiply(f, f)


def test_inverse():
  assert ate.multiply(f, ate.inverse(f)) == ate.ONE


def test_frobenius_is_the_power_of_p():
  product = ate.ONE
  for bit in bin(P)[2:]:
    product = ate.square(product)
    product = ate.multiply(product, f) if bit == "1" else product
  assert ate.frobenius(f) == product


def test_six_frobenius_are_the_conjugation():
  assert ate.frobenius(f, 6) == ate.conjugate(f)


def test_cyclotomic_square_equals_square_in_gt():
  assert ate.cyclotomic_square(e) == ate.square(e)


@pytest.mark.parametrize("a", [0, 1, 2, 5, 1 << 64, -1, -6])
def test_power_is_a_homomorphism_in_the_exponent(a):
  assert ate.multiply(ate.power(e, a), ate.power(e, 3)) == ate.power(e, a + 3)


def test_exponent_of_the_final_exponentiation():
  hard, remainder = divmod(3 * (P**4 - P**2 + 1), R)
  assert remainder == 0 and hard == (X - 1)**2 * (X + P) * (X**2 + P**2 - 1) + 3
  assert (P**12 - 1) == (P**6 - 1) * (P**2 + 1) * (P**4 - P**2 + 1)


# The pairing

def test_value_has_order_r():
  assert e != ate.ONE and ate.power(e, R) == ate.ONE


@pytest.mark.parametrize("a,b", [(2, 3), (R - 1, 7), (2**128, 2**64 + 1), tuple(cases.random_scalars(2, seed=3))])
def test_bilinear(a, b):
  assert pairing(oracle.g1.multiply(g, a), oracle.g2.multiply(h, b)) == ate.power(e, a * b % R)


def test_additive_in_each_argument():
  p, q = cases.random_points(oracle.g1, 2)
  s, t = cases.random_points(oracle.g2, 2)
  assert ate.multiply(pairing(p, s), pairing(q, s)) == pairing(oracle.g1.add(p, q), s)
  assert ate.multiply(pairing(p, s), pairing(p, t)) == pairing(p, oracle.g2.add(s, t))


def test_infinity_pairs_to_one():
  assert pairing(None, h) == pairing(g, None) == pairing(None, None) == pairing_product([]) == ate.ONE
  assert prepare_g2(None) == PreparedG2(())


def test_product_is_the_product_of_pairings():
  pairs = list(zip(cases.random_points(oracle.g1, 3), cases.random_points(oracle.g2, 3)))
  product = ate.ONE
  for p, q in pairs:
    product = ate.multiply(product, pairing(p, q))
  assert pairing_product(pairs) == product


def test_prepared_points_give_the_same_value_any_number_of_times():
  lines = prepare_g2(h)
  assert len(lines.lines) == 63 + 5                          # |x| has 64 bits, six of them ones
  assert pairing(g, lines) == pairing(g, lines) == e
  assert pairing_product([(g, lines), (None, lines), (oracle.g1.double(g), lines)]) == ate.power(e, 3)


def test_check():
  negative = oracle.g1.neg(g)
  assert pairing_check([]) and pairing_check([(g, h), (negative, h)]) and not pairing_check([(g, h), (g, h)])


# Subgroups, on which the pairing relies

@CURVES
def test_subgroup_test_agrees_with_multiplication_by_r(curve, reference):
  outside = cases.off_subgroup(reference)
  sums = [reference.add(outside, p) for p in cases.points(reference)]
  for point in cases.points(reference) + sums + [reference.multiply(outside, R)]:
    assert curve.is_on_curve(point)
    assert bool(curve.is_in_subgroup(point)) == reference.in_subgroup(point)


@CURVES
def test_off_curve_is_noticed(curve, reference):
  assert not curve.is_on_curve(cases.off_curve(reference))


def test_cofactors_are_coprime():
  """The proof of the subgroup test by the endomorphism of G2 needs it, and that p - x = r (x - 1)^2 / 3."""
  assert math.gcd(G1_COFACTOR, G2_COFACTOR) == 1 and P - X == R * G1_COFACTOR


# Other implementations


def _eip2537_pairs(data):
  number = lambda i: int.from_bytes(data[64 * i:64 * i + 64], "big")
  none_if_zero = lambda point: None if point in ((0, 0), ((0, 0), (0, 0))) else point
  for i in range(0, len(data) // 64, 6):
    yield (none_if_zero((number(i), number(i + 1))),
           none_if_zero(((number(i + 2), number(i + 3)), (number(i + 4), number(i + 5)))))


def test_eip2537_vectors():
  vectors = json.loads(shared("vectors", "eip2537", "pairing_check_bls.json").read_text())
  assert len(vectors) == 15
  for vector in vectors:
    pairs = list(_eip2537_pairs(bytes.fromhex(vector["Input"])))
    for p, q in pairs:
      assert G1.is_on_curve(p) and G1.is_in_subgroup(p) and G2.is_on_curve(q) and G2.is_in_subgroup(q)
    assert pairing_check(pairs) == bool(int(vector["Expected"], 16)), vector["Name"]


def test_snarkjs_alphabeta_of_every_verifying_key():
  """vk_alphabeta_12 is 2 x 3 x 2: Fp12 over Fp6 over Fp2, the even and the odd coefficients of w."""
  paths = sorted(shared("circuits").glob("*/vkey.json"))
  assert paths
  for path in paths:
    key = json.loads(path.read_text())
    value = pairing(to_ints(key["vk_alpha_1"])[:2], to_ints(key["vk_beta_2"])[:2])
    assert (value[::2], value[1::2]) == to_ints(key["vk_alphabeta_12"]), path.parent.name


@pytest.mark.parametrize("seed", [4, 5])
def test_py_ecc_value_is_the_power_minus_a_third(seed):
  reference = pytest.importorskip("py_ecc.optimized_bls12_381")
  (p,), (q,) = cases.random_points(oracle.g1, 1, seed), cases.random_points(oracle.g2, 1, seed)
  fq, fq2 = reference.FQ, reference.FQ2
  theirs = reference.pairing((fq2(q[0]), fq2(q[1]), fq2.one()), (fq(p[0]), fq(p[1]), fq(1))) ** 3
  ours = [0] * 12                                            # Fp[w] / (w^12 - 2 w^6 + 2) with u = w^6 - 1
  for i, (c0, c1) in enumerate(ate.conjugate(pairing(p, q))):
    ours[i], ours[i + 6] = (c0 - c1) % P, c1
  assert ours == [int(c) for c in theirs.coeffs]


@pytest.mark.parametrize("a,b", [(1, 1), tuple(k >> 2 for k in cases.random_scalars(2, seed=6))])
def test_arkworks_value(a, b):
  ark = pytest.importorskip("py_arkworks_bls12381")
  scalar = lambda k: ark.Scalar.from_le_bytes(k.to_bytes(32, "little"))
  theirs = bytes.fromhex(str(ark.GT.pairing(ark.G1Point() * scalar(a), ark.G2Point() * scalar(b))))
  value = pairing(oracle.g1.multiply(g, a), oracle.g2.multiply(h, b))
  assert theirs == b"".join(c.to_bytes(48, "little") for half in (value[::2], value[1::2]) for pair in half for c in pair)
