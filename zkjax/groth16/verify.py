"""Verification of Groth16 proofs, one or many, on Python integers: milliseconds, no compilation, no device.

A proof (A, B, C) for public inputs a_1, ..., a_l is true when, with a_0 = 1 (Groth, eprint 2016/260, section 3.2),

  e(A, B) = e(alpha, beta) e(sum_i a_i public_query_i, gamma) e(C, delta).

False means a well-formed false proof. Whatever is not a proof, a key or a public input at all raises ValueError: limbs that are not
canonical, a point off its curve or outside the subgroup of order r (a small-order part in A or C may pass the equation: two proofs for
one), a wrong number of public inputs or a value outside [0, r) (a and a + r give the same equation: two statements for one proof).
"""
import dataclasses
import secrets
from collections.abc import Sequence

import jax
import numpy as np

from zkjax.groth16.pairing import PreparedG2, pairing, pairing_product, power, prepare_g2
from zkjax.groth16.types import Proof, VerifyingKey
from zkjax.ops.bls12_381 import R
from zkjax.ops.curve import Affine
from zkjax.ops.field import Fp, Fp2
from zkjax.ops.int_curve import G1, G2

BATCH_COEFFICIENT_BITS = 128                                 # a false batch passes with probability about 2^-128


@dataclasses.dataclass(frozen=True)
class PreparedVerifyingKey:
  """A checked verifying key with everything that does not depend on the proof. See `prepare`."""
  alpha_beta: tuple
  gamma: PreparedG2
  delta: PreparedG2
  public_query: tuple

  @property
  def num_public(self):
    """The number of public inputs, without the constant 1."""
    return len(self.public_query) - 1


def prepare(vk, *, allow_uncontributed=False):
  """Returns the PreparedVerifyingKey of a VerifyingKey: the points checked once, e(alpha, beta) and the lines of gamma and delta.

  Args:
    vk: VerifyingKey.
    allow_uncontributed: accept gamma = delta, the mark of a key without a phase-2 contribution, for which anybody can move terms
      between C and the public inputs and so forge proofs.

  Returns:
    PreparedVerifyingKey, accepted by `verify` and `verify_batch` in place of `vk`.

  Raises:
    ValueError: a point is off its curve or subgroup; alpha, beta, gamma or delta is infinity; or gamma = delta.

  Cost: one pairing, two line precomputations, one subgroup test a point: about 30 ms + 1 ms a public input.
  """
  if not isinstance(vk, VerifyingKey):
    raise ValueError(f"vk must be a VerifyingKey or the result of prepare(), got {type(vk).__name__}; load it with groth16.formats")
  alpha = _point("vk.alpha_g1", vk.alpha_g1, Fp)
  beta, gamma, delta = (_point(f"vk.{name}", getattr(vk, name), Fp2) for name in ("beta_g2", "gamma_g2", "delta_g2"))
  for name, point in (("alpha_g1", alpha), ("beta_g2", beta), ("gamma_g2", gamma), ("delta_g2", delta)):
    if point is None:
      raise ValueError(f"vk.{name} is infinity: such a key accepts forged proofs; take the key from a finished ceremony")
  if gamma == delta and not allow_uncontributed:
    raise ValueError("vk.gamma_g2 and vk.delta_g2 are equal, so proofs can be forged; contribute to phase 2 and export the key again")
  query = _points("vk.public_query", vk.public_query, Fp)
  if not isinstance(query, list) or not query:
    raise ValueError("vk.public_query must be a batch of num_public + 1 points, got a single point or none")
  return PreparedVerifyingKey(pairing(alpha, beta), prepare_g2(gamma), prepare_g2(delta), tuple(query))


def verify(vk, proof, public):
  """Returns whether `proof` is true for the public inputs: e(A, B) e(-sum_i a_i public_query_i, gamma) e(-C, delta) = e(alpha, beta).

  Args:
    vk: VerifyingKey, or the PreparedVerifyingKey that `prepare` makes of it (faster from the second proof on).
    proof: Proof. Infinity is a point like any other.
    public: sequence of num_public ints in [0, r), without the constant 1.

  Returns:
    True, or False for a well-formed false proof.

  Raises:
    ValueError: anything that is not well-formed, see the module's text.

  Cost: three Miller loops that share their squarings, one final exponentiation: about 30 ms prepared, twice that otherwise.
  """
  vk = _prepared(vk)
  a, b, c = _proof_points("proof", proof)
  public = _public_inputs("public", public, vk.num_public)
  inputs = _linear_combination(vk.public_query, [1, *public])
  return pairing_product([(a, b), (G1.negate(inputs), vk.gamma), (G1.negate(c), vk.delta)]) == vk.alpha_beta


def verify_batch(vk, proofs, publics):
  """Returns whether all proofs are true; a false batch passes with probability about 2^-128.

  With random z_j (Bellare, Garay, Rabin, Eurocrypt 1998) the product of the equations to the powers z_j is one equation,

    prod_j e([z_j]A_j, B_j) e(-sum_i (sum_j z_j a_ij) public_query_i, gamma) e(-sum_j [z_j]C_j, delta) = e(alpha, beta)^(sum_j z_j).

  Args:
    vk: VerifyingKey or PreparedVerifyingKey.
    proofs: sequence of Proof.
    publics: sequence, as long, of sequences of num_public ints in [0, r).

  Returns:
    True, or False if some proof is false (`verify` tells which). True for no proofs.

  Raises:
    ValueError: as `verify`; or the two sequences differ in length.

  Cost: per proof one Miller loop, three subgroup tests and a 128-bit multiple in G1, about 12 ms; one final exponentiation in all.
  """
  vk = _prepared(vk)
  if len(proofs) != len(publics):
    raise ValueError(f"got {len(proofs)} proofs and {len(publics)} lists of public inputs; give one list for each proof")
  points = [_proof_points(f"proofs[{j}]", proof) for j, proof in enumerate(proofs)]
  rows = [[1, *_public_inputs(f"publics[{j}]", public, vk.num_public)] for j, public in enumerate(publics)]
  z = [secrets.randbits(BATCH_COEFFICIENT_BITS) for _ in points]
  scalars = [sum(z_j * row[i] for z_j, row in zip(z, rows)) % R for i in range(len(vk.public_query))]
  pairs = [(G1.multiply(a, z_j), b) for z_j, (a, b, _) in zip(z, points)]
  pairs.append((G1.negate(_linear_combination(vk.public_query, scalars)), vk.gamma))
  pairs.append((G1.negate(_linear_combination([c for _, _, c in points], z)), vk.delta))
  return pairing_product(pairs) == power(vk.alpha_beta, sum(z))


def _prepared(vk):
  return vk if isinstance(vk, PreparedVerifyingKey) else prepare(vk)


def _proof_points(name, proof):
  if not isinstance(proof, Proof):
    raise ValueError(f"{name} must be a Proof, got {type(proof).__name__}; load it with groth16.formats")
  return _point(f"{name}.a", proof.a, Fp), _point(f"{name}.b", proof.b, Fp2), _point(f"{name}.c", proof.c, Fp)


def _point(name, affine, field):
  point = _points(name, affine, field)
  if isinstance(point, list):
    raise ValueError(f"{name} must be one point, got a batch of {len(point)}; take one element of the batch")
  return point


def _points(name, affine, field):
  """The checked points of an Affine as Python ints: canonical, on the curve, in the subgroup."""
  group = "G1" if field is Fp else "G2"
  if not isinstance(affine, Affine) or not isinstance(affine.x, field) or not isinstance(affine.y, field):
    raise ValueError(f"{name} must be Affine over {field.__name__} ({group}), got {type(affine).__name__}")
  points = affine.to_ints()
  leaves = zip(jax.tree.leaves(affine), jax.tree.leaves(Affine.from_ints(field, points)))
  if not all(np.array_equal(np.asarray(got), np.asarray(canonical)) for got, canonical in leaves):
    raise ValueError(f"{name} has a coordinate that is not canonical, limbs >= p; reduce it, or treat the input as malformed")
  curve = G1 if field is Fp else G2
  for i, point in enumerate(points if isinstance(points, list) else [points]):
    place = f"{name}[{i}]" if isinstance(points, list) else name
    if not curve.is_on_curve(point):
      raise ValueError(f"{place} is not on the curve of {group}: got {point}; the proof or key is malformed, refuse it")
    if not curve.is_in_subgroup(point):
      raise ValueError(f"{place} is on the curve but not in {group}, the subgroup of order r: got {point}; malformed, refuse it")
  return points


def _public_inputs(name, public, num_public):
  if not isinstance(public, Sequence) or isinstance(public, (str, bytes)):
    raise ValueError(f"{name} must be a list or tuple of Python ints, got {type(public).__name__}; convert it (arrays: .tolist())")
  if len(public) != num_public:
    raise ValueError(f"{name} must have {num_public} values, one for each public input without the constant 1, got {len(public)}")
  for i, value in enumerate(public):
    if not isinstance(value, int) or isinstance(value, bool):
      raise ValueError(f"{name}[{i}] must be an int, got {type(value).__name__}; convert it with int()")
    if not 0 <= value < R:
      raise ValueError(f"{name}[{i}] must be in [0, r), got {value}; the prover and the verifier must agree on the reduced value")
  return public


def _linear_combination(points, scalars):
  """sum_i [scalars_i]points_i by buckets (Pippenger 1976): c-bit digits, one bucket a digit, sum_d d bucket_d by running sums.

  Cost: about 255 / c (num_points + 2^c) additions; c minimises it, and c = 1 is double-and-add.
  """
  length = max((s.bit_length() for s in scalars), default=0)
  c = min(range(1, 17), key=lambda c: -(-length // c) * (len(points) + 2**c))
  infinity = G1.to_jacobian(None)
  total, bases = infinity, [G1.to_jacobian(p) for p in points]
  for shift in reversed(range(0, length, c)):
    for _ in range(c):
      total = G1.jacobian_double(total)
    buckets = [infinity] * 2**c
    for base, scalar in zip(bases, scalars):
      digit = scalar >> shift & (2**c - 1)
      buckets[digit] = G1.jacobian_add(buckets[digit], base) if digit else infinity
    running = infinity
    for bucket in buckets[:0:-1]:
      running = G1.jacobian_add(running, bucket)
      total = G1.jacobian_add(total, running)
  return G1.to_affine(total)
