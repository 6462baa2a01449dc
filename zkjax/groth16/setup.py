"""Keys from a circuit, for tests and benchmarks only: whoever runs this knows the trapdoor and can forge proofs.

Scalars are computed on Python integers, exactly and without compiling. The points are multiples of the two generators: the sum of one entry
of a table for each byte of the scalar, for all scalars of a group in one batch.
"""
import dataclasses
import functools
import secrets

import jax
import numpy as np
from jax import lax

from zkjax.groth16.types import ProvingKey, VerifyingKey
from zkjax.ops import bls12_381
from zkjax.ops.bls12_381 import R
from zkjax.ops.curve import XYZZ, Affine
from zkjax.ops.field import Fp, Fp2
from zkjax.ops.int_curve import G1, G2
from zkjax.ops.msm import sums_of_entries
from zkjax.ops.ntt import Domain

_WINDOWS = 32                                 # bytes of a scalar
_CHUNK = 4096                                 # points made by one call: all circuits share one compilation a group


@dataclasses.dataclass(frozen=True, repr=False)
class ToxicWaste:
  """The trapdoor of a key: integers in [1, r). Never printed. gamma = delta would let anybody forge proofs, so it is refused."""
  tau: int
  alpha: int
  beta: int
  gamma: int
  delta: int

  def __post_init__(self):
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if not isinstance(value, int) or not 0 < value < R:
        raise ValueError(f"{field.name} must be an integer in [1, r); draw it with ToxicWaste.random()")
    if self.gamma == self.delta:
      raise ValueError("gamma and delta must differ: if they are equal, terms can move from C to the public inputs, and proofs be forged")

  @classmethod
  def random(cls):
    """Uniform and distinct values from the operating system."""
    draw = lambda: 1 + secrets.randbelow(R - 1)
    gamma = delta = draw()
    while gamma == delta:
      delta = draw()
    return cls(draw(), draw(), draw(), gamma, delta)


def setup(constraints, toxic=None, h_basis="coset", generator=bls12_381.SNARKJS_GENERATOR):
  """Returns a ProvingKey (its verifying key is `.vk`) of a circuit, FOR TESTS: the caller of this function can forge proofs.

  With u_i, v_i, w_i the polynomials that take the columns i of A, B, C on the domain (Groth, eprint 2016/260, section 3.2), each query is a
  list of scalars times a generator: u_i(tau), v_i(tau), (beta u_i + alpha v_i + w_i)(tau) over gamma or delta, and for h either
  tau^j (tau^n - 1) / delta, j < n - 1 ("monomial"), or L_(2j+1)(tau) / delta, j < n, of the 2n-th roots of unity ("coset").

  Args:
    constraints: Constraints with C, the input rows included; see `constraints_from_rows` and `CircomR1cs.constraints`.
    toxic: ToxicWaste, or None to draw one.
    h_basis: "coset" as snarkjs or "monomial" as bellman and arkworks.
    generator: the non-residue behind the roots of unity: 5 for snarkjs, 7 for bellman and arkworks.

  Returns:
    ProvingKey on the host, Affine points.

  Raises:
    ValueError: constraints without C, another basis, or tau that is one of the evaluation points.

  Cost: about 3 us of Python a constraint or entry, 32 additions a point that is not infinity.
  """
  if constraints.c is None:
    raise ValueError("a setup needs the C matrix, which a zkey does not hold: read the circuit from its .r1cs file")
  if h_basis not in ("coset", "monomial"):
    raise ValueError(f'h_basis must be "coset" (snarkjs) or "monomial" (bellman, arkworks), got {h_basis!r}')
  domain = Domain((constraints.num_rows - 1).bit_length(), generator)
  toxic = ToxicWaste.random() if toxic is None else toxic
  u, v, combined = _wire_scalars(constraints, domain, toxic)
  num_inputs = constraints.num_public + 1
  over = lambda divisor, values: [value * pow(divisor, -1, R) % R for value in values]
  g1 = _multiples(Fp, {
      "alpha": [toxic.alpha], "beta": [toxic.beta], "delta": [toxic.delta], "a": u, "b": v,
      "public": over(toxic.gamma, combined[:num_inputs]), "l": over(toxic.delta, combined[num_inputs:]),
      "h": over(toxic.delta, _h_scalars(domain, toxic.tau, h_basis))})
  g2 = _multiples(Fp2, {"beta": [toxic.beta], "gamma": [toxic.gamma], "delta": [toxic.delta], "b": v})
  vk = VerifyingKey(g1["alpha"][0], g2["beta"][0], g2["gamma"][0], g2["delta"][0], g1["public"])
  return ProvingKey(vk, g1["beta"][0], g1["delta"][0], g1["a"], g1["b"], g2["b"], g1["h"], g1["l"], constraints, domain, h_basis)


# Scalars

def lagrange(domain, point):
  """[L_i(point) for i < n], L_i(x) = (x^n - s^n) / (n s^n) * x_i / (x - x_i) with x_i = s w^i: 1 at x_i, 0 at the domain's other points.

  Raises ValueError where the point lies in the domain.
  """
  elements, end = domain.elements(), pow(domain.shift, domain.size, R)
  factor = (pow(point, domain.size, R) - end) * pow(domain.size * end, -1, R) % R
  if factor == 0:
    raise ValueError("tau is one of the evaluation points, where the key would reveal it: draw another one")
  inverses = _inverses([(point - x) % R for x in elements])
  return [factor * x % R * inverse % R for x, inverse in zip(elements, inverses)]


def _inverses(values):
  """1 / v for non-zero values, by one inversion (Montgomery's trick)."""
  prefixes, total = [], 1
  for v in values:
    prefixes.append(total)
    total = total * v % R
  inverse, out = pow(total, -1, R), [0] * len(values)
  for i in reversed(range(len(values))):
    out[i], inverse = prefixes[i] * inverse % R, inverse * values[i] % R
  return out


def _wire_scalars(constraints, domain, toxic):
  """u_i(tau), v_i(tau) and (beta u_i + alpha v_i + w_i)(tau) for every wire i."""
  basis = lagrange(domain, toxic.tau)

  def columns(matrix):
    sums = [0] * constraints.num_wires
    for row, wire, value in zip(np.asarray(matrix.rows).tolist(), np.asarray(matrix.wires).tolist(), matrix.values.to_ints()):
      sums[wire] += value * basis[row]
    return [v % R for v in sums]
  u, v, w = (columns(m) for m in (constraints.a, constraints.b, constraints.c))
  return u, v, [(toxic.beta * a + toxic.alpha * b + c) % R for a, b, c in zip(u, v, w)]


def _h_scalars(domain, tau, h_basis):
  """What the h query is made of, before the division by delta."""
  if h_basis == "coset":
    even = (1 - pow(tau, domain.size, R)) * pow(2, -1, R) % R        # 0 on the even powers of the root of order 2n, 1 on the odd ones
    return [even * value % R for value in lagrange(domain.odd_coset(), tau)]
  value, out = (pow(tau, domain.size, R) - 1) % R, []
  for _ in range(domain.size - 1):
    out.append(value)
    value = value * tau % R
  return out


# Points

def generator_multiples(field, scalars):
  """Affine[n] of the generator of G1 (field Fp) or G2 (Fp2) times each of the integers in [0, r); zero gives infinity."""
  return _multiples(field, {"points": scalars})["points"]


def _multiples(field, scalars):
  """{name: Affine[len]} of the generator times each scalar of {name: integers}; zero gives infinity, (0, 0)."""
  flat = [s for values in scalars.values() for s in values]
  points = sums_of_entries(_table(field), flat)
  if points is None:
    points = _in_chunks(field, flat)
  ends = np.cumsum([len(values) for values in scalars.values()]).tolist()
  return {name: points[end - len(values):end] for (name, values), end in zip(scalars.items(), ends)}


def _in_chunks(field, flat):
  """Affine[n] of the generator times each integer."""
  places = [i for i, s in enumerate(flat) if s]
  points = jax.tree.map(lambda leaf: np.zeros((leaf.shape[0], len(flat)), np.uint32), Affine.infinity(field))
  digits = np.frombuffer(b"".join(flat[i].to_bytes(_WINDOWS, "little") for i in places), np.uint8).reshape((-1, _WINDOWS))
  for start in range(0, len(places), _CHUNK):
    chunk = digits[start:start + _CHUNK]
    made = _sum_of_entries(_table(field), np.pad(chunk, ((0, _CHUNK - len(chunk)), (0, 0))).T.astype(np.int32))
    for whole, part in zip(jax.tree.leaves(points), jax.tree.leaves(made)):
      whole[:, places[start:start + _CHUNK]] = np.asarray(part)[:, :len(chunk)]
  return points


@jax.jit
def _sum_of_entries(table, digits):
  """sum_w table[w, digits[w, lane]] for leaves [32, limbs, 256] and int32[32, lanes]. Infinite sums and entries are right too."""
  def step(total, window):
    entries, digit = window
    return total.add_mixed(jax.tree.map(lambda v: v[:, digit], entries)), None
  return lax.scan(step, XYZZ.infinity(type(table.x), digits.shape[1:]), (table, digits))[0].to_affine()


@functools.lru_cache(maxsize=2)
def _table(field):
  """Affine with leaves [32, limbs, 256]: entry d of window w is d 2^(8 w) times the generator."""
  curve = G2 if field is Fp2 else G1
  base, windows = curve.to_jacobian(curve.generator), []
  for _ in range(_WINDOWS):
    entries = [curve.to_jacobian(None)]
    for _ in range(256):
      entries.append(curve.jacobian_add(entries[-1], base))
    base = entries.pop()
    windows.append(Affine.from_ints(field, [curve.to_affine(p) for p in entries]))
  return jax.tree.map(lambda *leaves: np.stack(leaves), *windows)
