"""What examples/benchmark.py times: for each operation the input, a function to run, and a check of its result against plain integers."""
import dataclasses
import pathlib
import secrets
from collections.abc import Callable

import jax
import numpy as np

from zkjax import groth16
from zkjax.groth16.qap import quotient
from zkjax.groth16.setup import generator_multiples
from zkjax.groth16.types import Constraints, SparseMatrix
from zkjax.ops.bls12_381 import R
from zkjax.ops.cpu import affine
from zkjax.ops.field import Fp, Fp2, Fr
from zkjax.ops.int_curve import G1, G2
from zkjax.ops.limbs import FP, FR
from zkjax.ops.msm import FixedBases
from zkjax.ops.ntt import Domain, intt, ntt

OPERATIONS = ["fr_mul", "fp_mul", "g1_add", "g2_add", "ntt", "intt", "quotient", "msm_g1", "msm_g2", "prove"]
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
    return _additions(op, 1 if op == "g1_add" else 2)
  if op in ("ntt", "intt"):
    return _transform(op, log2_size, batch)
  if op == "quotient":
    return _quotient(log2_size, batch)
  if op in ("msm_g1", "msm_g2"):
    return _msm(op, log2_size, fixed, scalars)
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
  bases = FixedBases.prepare(points)
  run = (lambda: bases.msm(scalars)) if fixed else (lambda: FixedBases.prepare(points).msm(scalars))
  expected = curve.multiply(curve.generator, sum(k * v for k, v in zip(logs, numbers)) % R)
  name = f"{op}_{'fixed' if fixed else 'variable'}_{kind}"
  return Work(name, log2_size, size, run, lambda total: total == expected, extra={"curve": curve, "logs": logs, "scalars": numbers})


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
  if log2_size < 2:
    raise ValueError("a squaring chain needs --log2_size of at least 2")
  constraints, witness = squarings(log2_size)
  return groth16.setup(constraints), witness


def squarings(log2_size):
  """The circuit and the witness of `squaring_chain`, made as arrays: `constraints_from_rows` takes a minute of a million rows."""
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
