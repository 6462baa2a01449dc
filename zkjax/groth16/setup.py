"""Keys from a circuit, for tests and benchmarks only: whoever runs this knows the trapdoor and can forge proofs.

Scalars of a small circuit are computed on Python integers, exactly and without compiling, those of a large one by one program on arrays.
The points are multiples of the two generators: the sum of one entry of a table for each byte of the scalar, for all scalars of a group in
one batch. On a GPU they stay there.
"""
import dataclasses
import functools
import secrets

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from zkjax.groth16.r1cs import matrix_vector
from zkjax.groth16.types import ProvingKey, SparseMatrix, VerifyingKey
from zkjax.ops import bls12_381
from zkjax.ops.bls12_381 import R
from zkjax.ops.curve import XYZZ, Affine
from zkjax.ops.field import Fp, Fp2, Fr
from zkjax.ops.int_curve import G1, G2
from zkjax.ops.msm import on_gpu, sums_of_entries
from zkjax.ops.ntt import Domain, intt

_WINDOWS = 32                                 # bytes of a scalar
_CHUNK = 4096                                 # points made by one call: all circuits share one compilation a group
_FEW_ROWS = {False: 1 << 17, True: 1 << 12}   # up to which Python integers are done before a program is compiled; on a GPU: True


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
    ProvingKey, Affine points: queries on the GPU where the kernels run, all else on the host.

  Raises:
    ValueError: constraints without C, another basis, or tau that is one of the evaluation points.

  Cost: for a small circuit about 3 us of Python a constraint or entry; 32 additions a point that is not infinity.
  """
  if constraints.c is None:
    raise ValueError("a setup needs the C matrix, which a zkey does not hold: read the circuit from its .r1cs file")
  if h_basis not in ("coset", "monomial"):
    raise ValueError(f'h_basis must be "coset" (snarkjs) or "monomial" (bellman, arkworks), got {h_basis!r}')
  domain = Domain((constraints.num_rows - 1).bit_length(), generator)
  toxic = ToxicWaste.random() if toxic is None else toxic
  make = _scalars if domain.size <= _FEW_ROWS[on_gpu()] else _scalars_on_arrays
  words = make(constraints, domain, toxic, h_basis)
  single = lambda *names: {name: _words([getattr(toxic, name)]) for name in names}
  g1 = _multiples(Fp, single("alpha", "beta", "delta") | words)
  g2 = _multiples(Fp2, single("beta", "gamma", "delta") | {"b": words["b"]})
  points = jax.device_get((g1["alpha"][0], g2["beta"][0], g2["gamma"][0], g2["delta"][0], g1["public"], g1["beta"][0], g1["delta"][0]))
  return ProvingKey(VerifyingKey(*points[:5]), *points[5:], g1["a"], g1["b"], g2["b"], g1["h"], g1["l"], constraints, domain, h_basis)


# Scalars

def lagrange(domain, point):
  """[L_i(point) for i < n], L_i(x) = (x^n - s^n) / (n s^n) * x_i / (x - x_i) with x_i = s w^i: 1 at x_i, 0 at the domain's other points.

  Raises ValueError where the point lies in the domain.
  """
  _check_outside(domain, point)
  elements, end = domain.elements(), pow(domain.shift, domain.size, R)
  factor = (pow(point, domain.size, R) - end) * pow(domain.size * end, -1, R) % R
  inverses = _inverses([(point - x) % R for x in elements])
  return [factor * x % R * inverse % R for x, inverse in zip(elements, inverses)]


def _check_outside(domain, point):
  if pow(point, domain.size, R) == pow(domain.shift, domain.size, R):
    raise ValueError("tau is one of the evaluation points, where the key would reveal it: draw another one")


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


def _scalars(constraints, domain, toxic, h_basis):
  """{query: plain uint32[8, n]} of what the generators are multiplied with."""
  basis = lagrange(domain, toxic.tau)

  def columns(matrix):
    sums = [0] * constraints.num_wires
    for row, wire, value in zip(np.asarray(matrix.rows).tolist(), np.asarray(matrix.wires).tolist(), matrix.values.to_ints()):
      sums[wire] += value * basis[row]
    return [v % R for v in sums]
  u, v, w = (columns(m) for m in (constraints.a, constraints.b, constraints.c))
  combined = [(toxic.beta * a + toxic.alpha * b + c) % R for a, b, c in zip(u, v, w)]
  h, inputs = _h_scalars(domain, toxic.tau, h_basis), constraints.num_public + 1
  over = lambda divisor, values: [value * pow(divisor, -1, R) % R for value in values]
  return {"a": _words(u), "b": _words(v), "public": _words(over(toxic.gamma, combined[:inputs])),
          "l": _words(over(toxic.delta, combined[inputs:])), "h": _words(over(toxic.delta, h))}


def _h_scalars(domain, tau, h_basis):
  """What the h query is made of, before the division by delta."""
  if h_basis == "coset":
    return [_even(domain, tau) * value % R for value in lagrange(domain.odd_coset(), tau)]
  value, out = (pow(tau, domain.size, R) - 1) % R, []
  for _ in range(domain.size - 1):
    out.append(value)
    value = value * tau % R
  return out


def _even(domain, tau):
  """The value at tau of the polynomial that is 0 on the even powers of the root of order 2n and 1 on the odd ones."""
  return (1 - pow(tau, domain.size, R)) * pow(2, -1, R) % R


def _words(values):
  """Plain uint32[8, n] of integers in [0, r)."""
  return np.frombuffer(b"".join(v.to_bytes(32, "little") for v in values), np.uint32).reshape((-1, 8)).T


def _scalars_on_arrays(constraints, domain, toxic, h_basis):
  """As `_scalars`. What is secret goes into the program as data, never as a constant of it: programs are kept on disk."""
  odd, tau = domain.odd_coset(), toxic.tau
  _check_outside(domain, tau)
  if h_basis == "coset":
    _check_outside(odd, tau)
  h_ratio, h_first = (tau * pow(odd.shift, -1, R), _even(domain, tau)) if h_basis == "coset" else (tau, pow(tau, domain.size, R) - 1)
  inverse = lambda v: pow(v, -1, R)
  factors = Fr.from_ints([toxic.alpha, toxic.beta, inverse(toxic.gamma), inverse(toxic.delta), h_first * inverse(toxic.delta)])
  tables = [_power_tables(ratio, domain.log2_size) for ratio in (tau, h_ratio)]
  return _scalar_program(constraints, factors, tables, domain, h_basis)


def _power_tables(ratio, bits):
  """(high, low): ratio^(i + j 2^l) = low[i] high[j] for i < 2^l, l half of `bits`."""
  low = (bits + 1) // 2
  powers = lambda base, count: Fr.from_ints([pow(base, k, R) for k in range(count)])
  return powers(pow(ratio, 1 << low, R), 1 << (bits - low)), powers(ratio, 1 << low)


@functools.partial(jax.jit, static_argnames=("domain", "h_basis"))
def _scalar_program(constraints, factors, tables, domain, h_basis):
  """L_i(s t) = 1/n sum_k t^k w^(-ik) on the coset s <w>: an inverse transform of powers. The products take the matrices' transposes."""
  alpha, beta, over_gamma, over_delta, h_factor = (factors[k] for k in range(5))
  powers, h_powers = ((high[:, None] * low[None]).reshape(-1) for high, low in tables)
  basis = intt(domain, powers)
  column = lambda m: matrix_vector(SparseMatrix(m.wires, m.rows, m.values), basis, constraints.num_wires)
  u, v, w = (column(m) for m in (constraints.a, constraints.b, constraints.c))
  combined, inputs = beta * u + alpha * v + w, constraints.num_public + 1
  h = intt(domain, h_powers) if h_basis == "coset" else h_powers[:-1]
  scalars = {"a": u, "b": v, "public": combined[:inputs] * over_gamma, "l": combined[inputs:] * over_delta, "h": h * h_factor}
  return {name: values.to_plain() for name, values in scalars.items()}


# Points

def generator_multiples(field, scalars):
  """Affine[n] of the generator of G1 (field Fp) or G2 (Fp2) times each of the integers in [0, r); zero gives infinity."""
  return _multiples(field, {"points": _words(scalars)})["points"]


def _multiples(field, scalars):
  """{name: Affine[n]} of the generator times each scalar of {name: plain uint32[8, n]}; zero gives infinity, (0, 0)."""
  library = jnp if any(isinstance(v, jax.Array) for v in scalars.values()) else np
  words = library.concatenate(list(scalars.values()), axis=1)
  points = sums_of_entries(_table(field), words)
  if points is None:
    points = _in_chunks(field, np.asarray(words))
  ends = np.cumsum([v.shape[1] for v in scalars.values()]).tolist()
  return {name: points[end - values.shape[1]:end] for (name, values), end in zip(scalars.items(), ends)}


def _in_chunks(field, words):
  """Affine[n] of the generator times each plain scalar of uint32[8, n]."""
  places = np.flatnonzero(words.any(axis=0))
  points = jax.tree.map(lambda leaf: np.zeros((leaf.shape[0], words.shape[1]), np.uint32), Affine.infinity(field))
  digits = np.ascontiguousarray(words[:, places].T).view(np.uint8)
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
