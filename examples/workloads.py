"""What examples/benchmark.py times: for each operation the input, a function to run, and a check of its result against plain integers."""
import dataclasses
import pathlib
import secrets
from collections.abc import Callable

import jax
import numpy as np

from zkjax import groth16
from zkjax.groth16.qap import quotient
from zkjax.groth16.setup import ToxicWaste, generator_multiples
from zkjax.groth16.types import Constraints, SparseMatrix
from zkjax.ops.bls12_381 import R
from zkjax.ops.cpu import affine
from zkjax.ops.field import Fp, Fp2, Fr
from zkjax.ops.int_curve import G1, G2
from zkjax.ops.limbs import FP, FR
from zkjax.ops.msm import FixedBases, msm, on_gpu
from zkjax.ops.ntt import Domain, intt, ntt

OPERATIONS = ["fr_mul", "fp_mul", "g1_add", "g2_add", "ntt", "intt", "quotient", "msm_g1", "msm_g2", "setup", "prove"]
_CHECKED = 3                                  # elements that are compared with plain integers, where comparing all would take long


@dataclasses.dataclass(frozen=True, repr=False)
class Work:
  """`run` returns a finished or a pending result, `is_right` checks it. multiply_adds: of 32-bit words in a run, None where not counted."""
  name: str
  log2_size: int
  count: int
  run: Callable
  is_right: Callable
  multiply_adds: int | None = None
  extra: dict = dataclasses.field(default_factory=dict)   # what a peer needs


def make(op, log2_size, *, batch, fixed, scalars, files):
  """The Work of one operation of OPERATIONS. files: (zkey, wtns) or (None, None), for prove."""
  size = 1 << log2_size
  if op in ("fr_mul", "fp_mul"):
    return _products(op, Fr if op == "fr_mul" else Fp, log2_size, size)
  if op in ("g1_add", "g2_add"):
    degree = 1 if op == "g1_add" else 2
    return additions_on_gpu(op, degree, log2_size) if on_gpu() else _additions(op, degree)
  if op in ("ntt", "intt"):
    return _transform(op, log2_size, batch)
  if op == "quotient":
    return _quotient(log2_size, batch)
  if op in ("msm_g1", "msm_g2"):
    return _msm(op, log2_size, fixed, scalars)
  if op == "setup":
    return make_keys(log2_size)
  return _prove(log2_size, batch, *files)


def uniform(field, *shape):
  """Random elements, from the operating system's generator."""
  data = secrets.token_bytes(4 * field.num_limbs * int(np.prod(shape)))
  words = np.frombuffer(data, np.uint32).reshape((field.num_limbs,) + shape).copy()
  words[-1] %= field.modulus >> (32 * (field.num_limbs - 1))      # any top word below the modulus' own makes the element canonical
  return field(words)


def _multiply_adds(modulus):
  """Of one Montgomery product on 32-bit words: words^2 for the product, words^2 + words for the reduction."""
  return 2 * modulus.words**2 + modulus.words


def addition_multiply_adds(degree):
  """Of one XYZZ += affine on a GPU, EFD madd-2008-s: six products, two squares, and two products that share a reduction."""
  words = FP.words
  wide, reduction, square = words**2, words**2 + words, words * (words + 1) // 2
  if degree == 1:
    return 6 * (wide + reduction) + 2 * (square + reduction) + 2 * wide + reduction
  return 6 * (4 * wide + 2 * reduction) + 2 * 2 * (wide + reduction) + 8 * wide + 2 * reduction


def _sample(size):
  return [secrets.randbelow(size) for _ in range(min(_CHECKED, size))]


def _products(op, field, log2_size, size):
  a, b = uniform(field, size), uniform(field, size)
  run = jax.jit(lambda a, b: a * b)
  on_device = jax.device_put((a, b))

  def is_right(c):
    return all(c[i].to_ints() == a[i].to_ints() * b[i].to_ints() % field.modulus for i in _sample(size))
  return Work(op, log2_size, size, lambda: run(*on_device), is_right, size * _multiply_adds(FR if field is Fr else FP))


def _additions(op, degree):
  """One full call of the batched affine addition of the CPU path: ROWS * LANES sums with one shared inversion."""
  words, count = affine.point_limbs(degree), affine.ROWS * affine.LANES
  points = np.random.default_rng().integers(0, 1 << FP.bits, (2, affine.ROWS, words, affine.LANES), dtype=np.uint32)
  points.reshape(2, affine.ROWS, 2, FP.num, -1)[:, :, :, -1] &= 0xffff         # residues, not points: the formula is the same
  run = affine.batch_add(degree)
  acc, entries = jax.device_put(points[0]), points[1]
  state = [jax.device_put(np.zeros_like(points[0])), jax.device_put(np.zeros((affine.ROWS, words // 2, affine.LANES), np.uint32))]

  def add():
    state[0], state[1], bad = run(acc, entries, state[0], state[1], np.int32(affine.ROWS))
    return state[0], bad

  def is_right(result):
    field = (G1, G2)[degree - 1].field
    out = np.asarray(result[0])
    inverse = pow(FP.radix, -1, FP.value)

    def coordinates(array, row, lane):
      limbs = array[row, :, lane].reshape(2, FP.num, degree)
      x, y = (tuple(FP.join(v[:, k]) * inverse % FP.value for k in range(degree)) for v in limbs)
      return (x, y) if degree == 2 else (*x, *y)

    def right(row, lane):
      (x1, y1), (x2, y2) = (coordinates(v, row, lane) for v in points)
      slope = field.mul(field.sub(y2, y1), field.inverse(field.sub(x2, x1)))
      x3 = field.sub(field.sub(field.square(slope), x1), x2)
      return coordinates(out, row, lane) == (x3, field.sub(field.mul(slope, field.sub(x1, x3)), y1))
    return not result[1] and all(right(*divmod(i, affine.LANES)) for i in _sample(count))
  return Work(op, count.bit_length() - 1, count, add, is_right)


def additions_on_gpu(op, degree, log2_size, length=64, log2_points=16):
  """2^log2_size entries, points taken at random, added to XYZZ sums, `length` of them by a thread: the first of a sum is no addition."""
  from zkjax.ops.gpu import fixed, msm, msm_kernels
  curve, pieces = (G1, G2)[degree - 1], max(2, (1 << log2_size) // length)
  logs = plain_ints(uniform(Fr, 1 << log2_points).limbs)
  rows = msm.point_rows(generator_multiples((Fp, Fp2)[degree - 1], logs))
  entries = np.random.default_rng().integers(0, 1 << log2_points, pieces * length, dtype=np.uint32)
  begin, count = np.arange(pieces, dtype=np.uint32) * np.uint32(length), np.full(pieces, length, np.uint32)
  add = jax.jit(lambda *v: msm_kernels.accumulate(degree, None, *v, pieces - 1))
  arguments = jax.device_put((begin, count, entries, rows))

  def is_right(out):
    total = lambda t: sum(logs[i] for i in entries[t * length:(t + 1) * length].tolist()) % R
    return all(fixed.affine(np.asarray(out[0][t]), degree) == curve.multiply(curve.generator, total(t)) for t in _sample(pieces - 1))
  num = pieces * (length - 1)
  return Work(op, log2_size, num, lambda: add(*arguments), is_right, num * addition_multiply_adds(degree))


def plain_ints(words):
  """The integers of plain uint32[8, n]."""
  data = np.ascontiguousarray(words.T).tobytes()
  return [int.from_bytes(data[i:i + 32], "little") for i in range(0, len(data), 32)]


def make_keys(log2_size):
  """The keys of a squaring chain, checked at a random wire and at a random point of the h query."""
  constraints, _ = squarings(log2_size)
  toxic, domain, count = ToxicWaste.random(), Domain(log2_size), constraints.num_rows - 3

  def lagrange(domain, i):
    x, end = domain.shift * pow(domain.root, i, R) % R, pow(domain.shift, domain.size, R)
    return (pow(toxic.tau, domain.size, R) - end) * pow(domain.size * end, -1, R) * x * pow(toxic.tau - x, -1, R) % R

  def is_right(key):
    row, place, over_delta = 1 + secrets.randbelow(count - 1), secrets.randbelow(domain.size), pow(toxic.delta, -1, R)
    wire = int(constraints.b.wires[row])      # the result of the row before, and squared in this one
    u, w = lagrange(domain, row), lagrange(domain, row - 1)
    h = (1 - pow(toxic.tau, domain.size, R)) * pow(2, -1, R) * lagrange(domain.odd_coset(), place)
    l = (toxic.beta * u + toxic.alpha * u + w) * over_delta
    wanted = [(key.a_query, wire, u, G1), (key.b_g1_query, wire, u, G1), (key.b_g2_query, wire, u, G2), (key.l_query, wire - 3, l, G1),
              (key.h_query, place, h * over_delta, G1)]
    point = lambda query, i: jax.tree.map(np.asarray, query[i]).to_ints()
    return all(point(query, i) == curve.multiply(curve.generator, scalar % R) for query, i, scalar, curve in wanted)
  return Work("setup", log2_size, constraints.num_rows, lambda: groth16.setup(constraints, toxic), is_right)


def value_at(coefficients, x):
  """The value of a polynomial mod r."""
  total = 0
  for c in reversed(coefficients):
    total = (total * x + c) % R
  return total


def _batched(values, batch):
  return Fr(values.limbs.reshape(Fr.num_limbs, batch, -1).transpose(1, 0, 2))


def _transform(op, log2_size, batch):
  domain, size = Domain(log2_size), 1 << log2_size
  values = _batched(uniform(Fr, batch * size), batch)
  transform = ntt if op == "ntt" else intt
  run = jax.jit(jax.vmap(lambda v: transform(domain, v)))
  on_device = jax.device_put(values)

  def is_right(out):
    given, made = (Fr(np.asarray(v.limbs)[-1]) for v in (values, out))
    coefficients, evaluations = (given, made) if op == "ntt" else (made, given)
    coefficients = coefficients.to_ints()
    return all(value_at(coefficients, pow(domain.root, k, R)) == evaluations[k].to_ints() for k in _sample(size))
  products = batch * (size // 2) * log2_size
  return Work(op, log2_size, batch * size, lambda: run(on_device), is_right, products * _multiply_adds(FR))


def _quotient(log2_size, batch):
  """The monomial form, which can be checked at a random point: h(z) (z^n - 1) = a(z) b(z) - c(z), with c = a b on the domain."""
  domain, size = Domain(log2_size), 1 << log2_size
  a, b = (_batched(uniform(Fr, batch * size), batch) for _ in range(2))
  a, b = jax.device_put((a, b))
  c = jax.jit(jax.vmap(lambda a, b: a * b))(a, b)
  run = jax.jit(jax.vmap(lambda a, b, c: quotient(a, b, c, domain, "monomial")))

  def is_right(h):
    z = secrets.randbelow(R)
    at = lambda v: value_at(intt(domain, Fr(v.limbs[-1])).to_ints(), z)
    return value_at(Fr(h.limbs[-1]).to_ints(), z) * (pow(z, size, R) - 1) % R == (at(a) * at(b) - at(c)) % R
  return Work("quotient", log2_size, batch * size, lambda: run(a, b, c), is_right, 7 * batch * (size // 2) * log2_size * _multiply_adds(FR))


def _msm(op, log2_size, fixed, kind):
  """Points are random multiples of the generator, so that the sum is known: (sum of scalar * multiple) * generator."""
  size = 1 << log2_size
  field, curve = (Fp, G1) if op == "msm_g1" else (Fp2, G2)
  logs = [secrets.randbelow(R) for _ in range(size)]
  points = generator_multiples(field, logs)
  numbers = [secrets.randbelow(R) for _ in range(size)]
  if kind == "equal":
    numbers = numbers[:1] * size
  if kind == "bits":
    numbers = [v if secrets.randbelow(10) == 0 else secrets.randbelow(2) for v in numbers]
  scalars = np.asarray(Fr.from_ints(numbers).to_plain())
  multiply_adds = None
  if on_gpu() and not fixed:
    values, on_device = Fr.from_plain(scalars), jax.device_put(points)
    run = lambda: jax.tree.map(np.asarray, msm(on_device, values).to_affine()).to_ints()
  elif fixed:
    bases = FixedBases.prepare(points)
    run = lambda: bases.msm(scalars)
    if on_gpu() and kind == "uniform":
      multiply_adds = bases.prepared.plan.num_windows * size * addition_multiply_adds(1 if op == "msm_g1" else 2)
  else:
    run = lambda: FixedBases.prepare(points).msm(scalars)
  expected = curve.multiply(curve.generator, sum(k * v for k, v in zip(logs, numbers)) % R)
  name = f"{op}_{'fixed' if fixed else 'variable'}_{kind}"
  extra = {"curve": curve, "logs": logs, "scalars": numbers}
  return Work(name, log2_size, size, run, lambda total: total == expected, multiply_adds, extra)


def _prove(log2_size, batch, zkey, wtns):
  if (zkey is None) != (wtns is None):
    raise ValueError("--zkey and --wtns belong together: give both, or none for a squaring chain of --log2_size")
  if zkey:
    key, witness, name = groth16.read_zkey(zkey), groth16.read_wtns(wtns), pathlib.Path(zkey).stem
  else:
    key, witness, name = *squaring_chain(log2_size), "chain"
  verifying = groth16.prepare(key.vk)
  public = groth16.public_inputs(key, witness)
  run = (lambda: [groth16.prove(key, witness)]) if batch == 1 else (lambda: groth16.prove_batch(key, [witness] * batch))
  return Work(f"prove_{name}", key.domain.log2_size, batch, run, lambda proofs: all(groth16.verify(verifying, p, public) for p in proofs),
              extra={"zkey": zkey, "wtns": wtns})


def squaring_chain(log2_size):
  """A key and a witness for y = x^(2^m) with x and y public, where m squarings and the three input rows fill 2^log2_size rows exactly."""
  constraints, witness = squarings(log2_size)
  return groth16.setup(constraints), witness


def squarings(log2_size):
  """The circuit and the witness of `squaring_chain`, made as arrays: `constraints_from_rows` takes a minute of a million rows."""
  if log2_size < 2:
    raise ValueError("a squaring chain needs --log2_size of at least 2")
  count = (1 << log2_size) - 3
  wires = np.concatenate([[2], np.arange(3, count + 2), [1]])      # x, the values between, y

  def matrix(columns, inputs=0):
    columns = np.concatenate([columns, np.arange(inputs)]).astype(np.int32)
    return SparseMatrix(np.arange(len(columns), dtype=np.int32), columns, jax.tree.map(np.array, Fr.ones((len(columns),))))
  constraints = Constraints(matrix(wires[:-1], 3), matrix(wires[:-1]), matrix(wires[1:]), count + 3, count + 2, 2)
  values, x = [1] + [0] * (count + 1), secrets.randbelow(R)
  for wire in wires.tolist():
    values[wire] = x
    x = x * x % R
  return constraints, Fr.from_ints(values)
