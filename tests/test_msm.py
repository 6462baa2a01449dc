"""Multi-scalar multiplication: the portable program by its laws and against the oracle, the public function on others' vectors."""
import json
import pathlib

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from counting import count_equations
from oracle import R

from zkjax.ops import msm as msm_module
from zkjax.ops.curve import XYZZ, Affine
from zkjax.ops.field import Fp, Fp2, Fr
from zkjax.ops.int_curve import G1
from zkjax.ops.msm import FixedBases, MsmConfig, msm

VECTORS = pathlib.Path(__file__).resolve().parents[2] / "shared" / "vectors" / "eip2537"
FIELDS = pytest.mark.parametrize("field", [Fp, Fp2], ids=["G1", "G2"])
PORTABLE = MsmConfig(backend="portable")
COUNT = 17                                   # one shape for most cases: it is compiled once


def reference(field):
  return oracle.g1 if field is Fp else oracle.g2


def points_of(field, points):
  return Affine.from_ints(field, points)


def to_int_point(total):
  """An XYZZ point as the oracle writes points."""
  total = jax.tree.map(np.asarray, total)
  f = oracle.fp if total.field is Fp else oracle.fp2
  x, y, zz, zzz = (v.to_ints() for v in (total.x, total.y, total.zz, total.zzz))
  return None if zz in (0, (0, 0)) else (f.mul(x, f.inverse(zz)), f.mul(y, f.inverse(zzz)))


def total_of(field, points, scalars, config=PORTABLE):
  return to_int_point(msm(points_of(field, points), Fr.from_ints(scalars), config))


def logs_and_points(field, count):
  """Points with known logarithms: sums over tables of 8, which are quick for the oracle."""
  curve, logs = reference(field), cases.random_scalars(24, seed=11)
  table, out = [curve.multiply(curve.generator, k) for k in logs], []
  for i in range(count):
    chosen = [i % 8, 8 + i // 8 % 8, 16 + i // 64 % 8]
    out.append((sum(logs[j] for j in chosen) % R, curve.add(curve.add(table[chosen[0]], table[chosen[1]]), table[chosen[2]])))
  return [k for k, _ in out], [p for _, p in out]


# The portable program against the oracle

@pytest.mark.parametrize("field,count", [(Fp, 0), (Fp, 1), (Fp, 3), (Fp, 8), (Fp, COUNT), (Fp2, 0), (Fp2, 1), (Fp2, COUNT)])
def test_sum_of_random_points(field, count):
  points, scalars = cases.random_points(reference(field), count, seed=count), cases.random_scalars(count, seed=count)
  assert total_of(field, points, scalars) == reference(field).msm(points, scalars)


@FIELDS
def test_edge_scalars(field):
  points, scalars = cases.random_points(reference(field), COUNT), cases.scalars()
  for start in range(0, len(scalars), COUNT):
    chosen = (scalars[start:] + scalars)[:COUNT]
    assert total_of(field, points, chosen) == reference(field).msm(points, chosen)


@FIELDS
@pytest.mark.parametrize("scalar", [0, 1, 2, R - 1, 1 << 254])
def test_equal_scalars(field, scalar):
  points = cases.random_points(reference(field), COUNT)
  assert total_of(field, points, [scalar] * COUNT) == reference(field).msm(points, [scalar] * COUNT)


@FIELDS
def test_infinite_equal_and_opposite_points(field):
  curve = reference(field)

  def expected(points, scalars):
    merged = {p: sum(k for q, k in zip(points, scalars) if p == q) % R for p in points}
    return curve.msm(merged.keys(), merged.values())
  special = (cases.points(curve) * 2)[:COUNT]
  p, q = cases.random_points(curve, 2, seed=3)
  pairs = ([p, curve.neg(p)] * COUNT)[:COUNT]
  for points in (special, [p] * COUNT, pairs, [None] * COUNT, ([p, q, None] * COUNT)[:COUNT]):
    for scalars in (cases.random_scalars(COUNT, seed=4), [1] * COUNT, [R - 1] * COUNT, ([1, R - 1, 2] * COUNT)[:COUNT]):
      assert total_of(field, points, scalars) == expected(points, scalars)


@pytest.mark.parametrize("name,scalars", [
    ("random", cases.random_scalars(300, seed=12)), ("one bucket a window", cases.random_scalars(1, seed=13) * 300),
    ("one bucket", [1 << 254] * 300), ("bits", [i % 2 for i in range(300)]), ("minus one", [R - 1] * 300), ("zero", [0] * 300)])
def test_distributions_of_scalars(name, scalars):
  """300 points, so that buckets have several pieces."""
  logs, points = logs_and_points(Fp, 300)
  assert total_of(Fp, points, scalars) == oracle.g1.multiply(oracle.G1, sum(a * k for a, k in zip(logs, scalars)) % R)


@pytest.mark.parametrize("bits,lanes", [(4, 128), (11, 48)])
def test_the_result_does_not_depend_on_the_config(bits, lanes):
  config = MsmConfig(window_bits=bits, backend="portable", block_lanes=lanes)
  points, scalars = cases.random_points(oracle.g1, 3), [R - 1, 1 << 254, cases.random_scalars(1)[0]]
  assert total_of(Fp, points, scalars, config) == oracle.g1.msm(points, scalars)


@pytest.mark.parametrize("bits", range(2, 17))
def test_digits_are_those_of_the_host(bits):
  words = Fr.from_ints(cases.scalars()).to_plain()
  places = [w * bits for w in range(msm_module.digits.num_windows(bits) + 1)]
  assert (np.asarray(jax.jit(msm_module._digits, static_argnums=1)(words, bits)) == msm_module.digits.signed_digits(words, places)).all()


# Laws

def test_linear_in_the_scalars():
  points, a, b = cases.random_points(oracle.g1, COUNT), cases.random_scalars(COUNT, seed=5), cases.random_scalars(COUNT, seed=6)
  left = oracle.g1.add(total_of(Fp, points, a), total_of(Fp, points, b))
  assert left == total_of(Fp, points, [(x + y) % R for x, y in zip(a, b)])
  assert oracle.g1.multiply(total_of(Fp, points, a), 5) == total_of(Fp, points, [5 * x % R for x in a])


def test_independent_of_the_order():
  points, scalars = cases.random_points(oracle.g1, COUNT), cases.random_scalars(COUNT, seed=7)
  assert total_of(Fp, points, scalars) == total_of(Fp, points[::-1], scalars[::-1])


def test_opposite_points_with_opposite_scalars():
  points, scalars = cases.random_points(oracle.g1, COUNT), cases.random_scalars(COUNT, seed=8)
  assert total_of(Fp, points, scalars) == total_of(Fp, [oracle.g1.neg(p) for p in points], [-k % R for k in scalars])


# jit and vmap

def stacked(trees):
  return jax.tree.map(lambda *v: jnp.stack([jnp.asarray(a) for a in v]), *trees)


def partition(tree, i):
  return jax.tree.map(lambda v: v[i], tree)


def test_inside_jit():
  points, scalars = cases.random_points(oracle.g1, COUNT), cases.random_scalars(COUNT)
  total = jax.jit(msm)(points_of(Fp, points), Fr.from_ints(scalars))
  assert isinstance(total, XYZZ) and to_int_point(total) == oracle.g1.msm(points, scalars)


@pytest.mark.parametrize("shared", [True, False], ids=["shared points", "points of their own"])
def test_vmap_over_partitions(shared):
  scalars = [cases.random_scalars(5, seed=9), [0] * 5, [1, R - 1, 1, 1, 0]]
  points = [cases.random_points(oracle.g1, 5, seed=0 if shared else i) for i in range(3)]
  bases = points_of(Fp, points[0]) if shared else stacked([points_of(Fp, p) for p in points])
  totals = jax.jit(jax.vmap(msm, in_axes=(None if shared else 0, 0)))(bases, stacked([Fr.from_ints(k) for k in scalars]))
  assert totals.x.limbs.shape == (3, 12)
  assert [to_int_point(partition(totals, i)) for i in range(3)] == [oracle.g1.msm(p, k) for p, k in zip(points, scalars)]


def test_nested_vmap():
  """Outside over points and scalars, inside over scalars."""
  points = [cases.random_points(oracle.g1, 2, seed=i) for i in range(2)]
  scalars = [[cases.random_scalars(2, seed=2 * i + j) for j in range(2)] for i in range(2)]
  bases, exponents = stacked([points_of(Fp, p) for p in points]), stacked([stacked(map(Fr.from_ints, row)) for row in scalars])
  totals = jax.jit(jax.vmap(jax.vmap(msm, in_axes=(None, 0))))(bases, exponents)
  for i in range(2):
    assert [to_int_point(partition(partition(totals, i), j)) for j in range(2)] == [oracle.g1.msm(points[i], k) for k in scalars[i]]


def test_vmap_in_g2():
  points, scalars = cases.random_points(oracle.g2, 2), [cases.random_scalars(2, seed=i) for i in range(2)]
  totals = jax.vmap(msm, in_axes=(None, 0))(points_of(Fp2, points), stacked([Fr.from_ints(k) for k in scalars]))
  assert [to_int_point(partition(totals, i)) for i in range(2)] == [oracle.g2.msm(points, k) for k in scalars]


# Budgets

@pytest.mark.parametrize("field,budget", [(Fp, 8500), (Fp2, 9700)], ids=["G1", "G2"])
def test_equations_stay_few_whatever_the_number_of_points(field, budget):
  """Compile time follows their number: one addition is nearly all of it."""
  def equations(count):
    arguments = points_of(field, [None] * count), Fr.from_ints([0] * count)
    return count_equations(jax.make_jaxpr(lambda *a: msm(*a, PORTABLE))(*arguments).jaxpr)
  small, large = equations(COUNT), equations(2000)
  assert 5000 < small <= budget and large - small <= 100


def test_one_trace_serves_all_values(monkeypatch):
  traces = []
  program = msm_module._sums
  monkeypatch.setattr(msm_module, "_sums", lambda *a: traces.append(a) or program(*a))
  compiled = jax.jit(msm)
  for scalar in (0, 1, R - 1):
    jax.eval_shape(compiled, points_of(Fp, [oracle.G1] * 6), Fr.from_ints([scalar] * 6))
  assert len(traces) == 1


# The public function

def test_concrete_arrays_on_the_cpu_take_the_fast_path(monkeypatch):
  monkeypatch.setattr(msm_module, "_in_graph", None)
  points, scalars = cases.random_points(oracle.g1, COUNT), cases.random_scalars(COUNT)
  expected = oracle.g1.msm(points, scalars)
  assert total_of(Fp, points, scalars, MsmConfig()) == expected
  on_device = jax.tree.map(jnp.asarray, (points_of(Fp, points), Fr.from_ints(scalars)))
  assert to_int_point(msm(*on_device)) == expected
  assert FixedBases.prepare(on_device[0]).msm(np.asarray(on_device[1].to_plain())) == expected


@FIELDS
def test_infinite_sums_on_the_fast_path(field):
  generator = reference(field).generator
  assert total_of(field, [], [], MsmConfig()) is None
  assert total_of(field, [generator] * 2, [1, R - 1], MsmConfig()) is None


def test_wrong_arguments():
  points, scalars = points_of(Fp, [oracle.G1] * 2), Fr.from_ints([1, 2])
  with pytest.raises(ValueError, match="expected Affine"):
    msm(points, scalars[:1])
  with pytest.raises(ValueError, match="jax.vmap"):
    msm(points.reshape((1, 2)), scalars.reshape((1, 2)))
  with pytest.raises(ValueError, match="window_bits"):
    msm(points, scalars, MsmConfig(window_bits=17))
  with pytest.raises(ValueError, match="backend"):
    msm(points, scalars, MsmConfig(backend="tpu"))
  with pytest.raises(ValueError, match="block_lanes"):
    msm(points, scalars, MsmConfig(block_lanes=0))
  with pytest.raises(ValueError, match="concrete arrays"):
    jax.jit(lambda p, k: msm(p, k, MsmConfig(backend="cpu")))(points, scalars)


# Other implementations

def decode_eip2537(data):
  """(x, y) of 64 bytes each, big-endian; zeros for infinity."""
  x, y = (int.from_bytes(data[i:i + 64], "big") for i in (0, 64))
  return None if x == y == 0 else (x, y)


@pytest.mark.parametrize("bits", [None, 4])
def test_eip2537_vectors(bits):
  """Scalars there are any 256-bit numbers, to be reduced as the points have order r. 128 lengths, and the CPU path compiles for none."""
  path = VECTORS / "msm_G1_bls.json"
  if not path.exists():
    pytest.skip(f"{path} is not there")
  for case in json.loads(path.read_text()):
    data = bytes.fromhex(case["Input"])
    pairs = [data[i:i + 160] for i in range(0, len(data), 160)]
    points, scalars = map(list, zip(*((decode_eip2537(pair[:128]), int.from_bytes(pair[128:], "big") % R) for pair in pairs)))
    total = total_of(Fp, points, scalars, MsmConfig(window_bits=bits))
    assert total == decode_eip2537(bytes.fromhex(case["Expected"])), case["Name"]


def test_arkworks_multiexp():
  ark = pytest.importorskip("py_arkworks_bls12381")
  points, scalars = [G1.multiply(G1.generator, k) for k in cases.random_scalars(500, seed=14)], cases.random_scalars(500, seed=15)
  theirs = ark.G1Point.multiexp_unchecked(
      [ark.G1Point.from_xy_bytes_unchecked_be(b"".join(c.to_bytes(48, "big") for c in p)) for p in points],
      [ark.Scalar.from_le_bytes(k.to_bytes(32, "little")) for k in scalars])
  total = total_of(Fp, points, scalars, MsmConfig())
  assert b"".join(c.to_bytes(48, "big") for c in total) == bytes(theirs.to_xy_bytes_be())
