"""Points of G1 and G2: the group law on its special cases in every coordinate system, the oracle, foreign vectors, checks, budgets."""
import json
import pathlib

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from counting import count_products
from oracle import P, R

from zkjax.ops import curve, field
from zkjax.ops.bls12_381 import G1_COFACTOR, G2_COFACTOR
from zkjax.ops.curve import XYZZ, Affine, Jacobian, is_in_subgroup, is_on_curve
from zkjax.ops.field import Fp, Fp2, Fr

REJECTED = pathlib.Path(__file__).parent / "data" / "rejected"
ORACLE = {Fp: oracle.g1, Fp2: oracle.g2}
PAIRS = {f: cases.point_pairs(o) for f, o in ORACLE.items()}
LANES = len(PAIRS[Fp])                                       # every test fills up to one size, so that a formula compiles once
GROUPS = pytest.mark.parametrize("f", [Fp, Fp2], ids=["G1", "G2"])
SYSTEMS = pytest.mark.parametrize("system", [XYZZ, Jacobian])
TRACES = []
jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: "jaxpr_trace" in name and TRACES.append(name))


def batch(f, points):
  """Affine[LANES], filled up with infinity."""
  assert len(points) <= LANES
  return Affine.from_ints(f, points + [None] * (LANES - len(points)))


def lift(system, points):
  return points.to_xyzz() if system is XYZZ else points.to_jacobian()


def scaled(system, points):
  """The same points with coordinates that are not normalised: doubled, then halved by adding -P."""
  return lift(system, points).double().add_mixed(points.negate())


def to_ints(points, count=LANES):
  return points.to_affine().to_ints()[:count]


@pytest.fixture(scope="module")
def pairs():
  return {f: tuple(batch(f, [pair[k] for pair in PAIRS[f]]) for k in (0, 1)) for f in (Fp, Fp2)}


# Conversions

@GROUPS
def test_integers_and_back(f):
  points = cases.points(ORACLE[f])
  x = Affine.from_ints(f, points)
  assert x.to_ints() == points and x.shape == (len(points),) and x.field is f
  assert [Affine.from_ints(f, p).to_ints() for p in points[:2]] == points[:2] and Affine.from_ints(f, []).to_ints() == []
  assert Affine.generator(f).to_ints() == ORACLE[f].generator and Affine.infinity(f, (2,)).to_ints() == [None, None]
  assert np.asarray(x.is_infinity()).tolist() == [p is None for p in points] and x[1].to_ints() == points[1]


@GROUPS
@SYSTEMS
def test_coordinates_of_a_point_are_not_unique_but_the_point_is(f, system, pairs):
  p = pairs[f][0]
  assert to_ints(lift(system, p)) == to_ints(scaled(system, p)) == p.to_ints()
  assert np.all(scaled(system, p).equals(lift(system, p)))
  assert to_ints(system.infinity(f, (LANES,))) == [None] * LANES


@GROUPS
def test_systems_convert_into_each_other(f, pairs):
  p = pairs[f][0]
  xyzz = scaled(XYZZ, p)
  jacobian = xyzz.to_jacobian()
  assert to_ints(jacobian) == p.to_ints() and np.all(jacobian.to_xyzz().equals(xyzz))


# The group law

@GROUPS
@SYSTEMS
def test_addition_equals_the_oracle_on_all_special_cases(f, system, pairs):
  p, q = pairs[f]
  expected = [ORACLE[f].add(*pair) for pair in PAIRS[f]]
  assert to_ints(lift(system, p).add_mixed(q)) == expected
  assert to_ints(scaled(system, p).add_mixed(q)) == expected
  assert to_ints(scaled(system, p).add(lift(system, q))) == expected
  assert to_ints(scaled(system, p).add(scaled(system, q))) == expected


@GROUPS
@SYSTEMS
def test_double_equals_add_self(f, system, pairs):
  p = scaled(system, pairs[f][0])
  assert to_ints(p.double()) == to_ints(p.add(p)) == [ORACLE[f].double(a) for a, _ in PAIRS[f]]


@GROUPS
@SYSTEMS
def test_negative_is_the_inverse(f, system, pairs):
  p = scaled(system, pairs[f][0])
  assert np.all(p.add(p.negate()).is_infinity()) and to_ints(p.negate()) == [ORACLE[f].neg(a) for a, _ in PAIRS[f]]
  assert pairs[f][0].negate().to_ints() == to_ints(p.negate())


@GROUPS
def test_addition_is_associative_and_commutative(f, pairs):
  p, q = (scaled(XYZZ, v) for v in pairs[f])
  s = p.double()
  assert np.all(p.add(q).equals(q.add(p))) and np.all(p.add(q).add(s).equals(p.add(q.add(s))))


@GROUPS
def test_equality(f, pairs):
  p, q = pairs[f]
  expected = [a == b for a, b in PAIRS[f]]
  assert np.asarray(p.equals(q)).tolist() == expected
  assert np.asarray(scaled(XYZZ, p).equals(scaled(XYZZ, q))).tolist() == expected


@GROUPS
def test_points_outside_the_subgroup_add_alike(f):
  outside = cases.off_subgroup(ORACLE[f])
  points = [outside, ORACLE[f].neg(outside), ORACLE[f].double(outside), ORACLE[f].generator]
  x = batch(f, [a for a in points for _ in range(3)])
  y = batch(f, [b for _ in points for b in points[:3]])
  assert to_ints(x.to_xyzz().add_mixed(y)) == [ORACLE[f].add(a, b) for a, b in zip(x.to_ints(), y.to_ints())]


@pytest.mark.parametrize("count", [0, 1, 4])
def test_sizes(count):
  points = cases.random_points(oracle.g1, count)
  assert Affine.from_ints(Fp, points).to_xyzz().double().to_affine().to_ints() == [oracle.g1.double(p) for p in points]


def test_a_long_batch_goes_in_blocks(pairs):
  p, q = pairs[Fp]
  indices = np.arange(field._MAX_STRAIGHT_LANES + 131) % LANES
  got = p[indices].to_xyzz().add_mixed(q[indices])
  few = p.to_xyzz().add_mixed(q)
  assert np.all(got.equals(few[indices]))


def test_one_point_without_a_batch():
  assert Affine.generator(Fp).to_xyzz().double().to_affine().to_ints() == oracle.g1.double(oracle.G1)


# Multiples

SCALARS = ([0, 1, 2, 3, R - 1, (R - 1) // 2, 2**254, int("01" * 32, 16)] + cases.random_scalars(LANES))[:LANES]


@GROUPS
def test_multiply_by_field_elements(f, pairs):
  points = [a for a, _ in PAIRS[f]]
  assert to_ints(pairs[f][0].multiply(Fr.from_ints(SCALARS))) == [ORACLE[f].multiply(p, k) for p, k in zip(points, SCALARS)]


def test_multiply_every_system(pairs):
  p, k = pairs[Fp][0], Fr.from_ints(SCALARS)
  expected = p.multiply(k)
  assert np.all(scaled(XYZZ, p).multiply(k).equals(expected))
  jacobian = scaled(Jacobian, p).multiply(k)
  assert isinstance(jacobian, Jacobian) and np.all(jacobian.to_xyzz().equals(expected))


def test_multiply_by_integers(pairs):
  points = [a for a, _ in PAIRS[Fp]]
  for k in (0, 1, -1, 5, R, R + 2, G1_COFACTOR):
    assert to_ints(pairs[Fp][0].multiply(k)) == [oracle.g1.multiply(p, k) for p in points]


def test_integers_are_not_reduced():
  """Off the subgroup, R is not zero."""
  outside = cases.off_subgroup(oracle.g1)
  assert to_ints(batch(Fp, [outside]).multiply(R), 1) == [oracle.g1.multiply(outside, R)] != [None]


def test_jit_and_vmap(pairs):
  """Leaves [2, limbs, LANES]: two partitions of one formula."""
  p, q = pairs[Fp]
  k = Fr.from_ints(SCALARS)
  stacked = lambda *trees: jax.tree.map(lambda *v: jnp.stack(v), *trees)
  fn = lambda p, q, k: p.multiply(k).add_mixed(q)
  got = jax.jit(jax.vmap(fn))(stacked(p, q), stacked(q, p), stacked(k, k))
  for i, (a, b) in enumerate(((p, q), (q, p))):
    expected = a.multiply(k).add_mixed(b)
    assert np.all(jax.tree.map(lambda v, i=i: v[i], got).equals(expected))


# Checks

def small_order(f):
  """A point of order 3 in E(Fp), x = 0; a point of order 13 in the twist."""
  if f is Fp:
    return (0, 2)
  point = oracle.g2.multiply(cases.off_subgroup(oracle.g2), R * G2_COFACTOR // 13**2)      # E[13] is the square of a cyclic group
  assert point is not None and oracle.g2.multiply(point, 13) is None
  return point


@GROUPS
def test_checks(f):
  o = ORACLE[f]
  outside, small = cases.off_subgroup(o), small_order(f)
  inside = cases.points(o)
  off_subgroup = [outside, small, o.neg(small), o.add(small, o.generator), o.add(outside, o.generator), o.multiply(outside, R)]
  x, y = o.generator
  off_curve = [cases.off_curve(o), (x, x), (o.field.zero, x), (x, o.field.zero), (o.field.one, o.field.zero)]
  points = Affine.from_ints(f, inside + off_subgroup + off_curve)
  assert is_on_curve(points).tolist() == [True] * len(inside + off_subgroup) + [False] * len(off_curve)
  assert is_in_subgroup(points).tolist() == [True] * len(inside) + [False] * len(off_subgroup + off_curve)


@GROUPS
def test_checks_of_any_batch(f):
  point = Affine.generator(f)
  for shape in ((), (0,), (1,), (2, 3)):
    repeated = point.broadcast_to(shape)
    assert is_on_curve(repeated).shape == is_in_subgroup(repeated).shape == shape
    assert np.all(is_on_curve(repeated)) and np.all(is_in_subgroup(repeated))


def test_a_new_length_never_compiles():
  points = Affine.generator(Fp).broadcast_to((5,))
  is_on_curve(points), is_in_subgroup(points)
  before = len(TRACES)
  many = jax.tree.map(np.asarray, Affine.generator(Fp).broadcast_to((curve._CURVE_LANES + 1,)))
  assert np.all(is_on_curve(many)) and np.all(is_in_subgroup(many[:curve._SUBGROUP_LANES + 1]))
  assert len(TRACES) == before


def test_checks_notice_one_bad_point_in_any_block():
  count = 2 * curve._CURVE_LANES + 5
  points = Affine.generator(Fp).broadcast_to((count,))
  for bad in (0, curve._CURVE_LANES, count - 1):
    y = np.array(points.y.limbs)
    y[0, bad] ^= 1
    assert np.flatnonzero(~is_on_curve(Affine(points.x, Fp(y)))).tolist() == [bad]


def test_checks_inside_jit(pairs):
  assert np.all(jax.jit(is_on_curve)(pairs[Fp][0]))


@pytest.mark.parametrize("name,member,f,on_curve", [
    ("proof_A_not_in_subgroup.json", "pi_a", Fp, True), ("proof_B_not_in_subgroup.json", "pi_b", Fp2, True),
    ("proof_A_not_on_curve.json", "pi_a", Fp, False)])
def test_rejected_proofs(name, member, f, on_curve):
  x, y, _ = json.loads((REJECTED / name).read_text())[member]
  number = (lambda v: tuple(map(int, v))) if f is Fp2 else int
  point = Affine.from_ints(f, (number(x), number(y)))
  assert bool(is_on_curve(point)) == on_curve and not is_in_subgroup(point)


# Other implementations

def eip2537_point(f, data):
  numbers = [int.from_bytes(data[i:i + 64], "big") for i in range(0, len(data), 64)]
  point = tuple(numbers) if f is Fp else (tuple(numbers[:2]), tuple(numbers[2:]))
  return None if not any(numbers) else point


@GROUPS
def test_eip2537_addition(f, shared):
  group, size = ("G1", 128) if f is Fp else ("G2", 256)
  vectors = json.loads(shared("vectors", "eip2537", f"add_{group}_bls.json").read_text())
  data = [bytes.fromhex(v["Input"]) for v in vectors]
  assert len(data) == 9 and all(len(d) == 2 * size for d in data)
  x, y = (batch(f, [eip2537_point(f, d[k * size:(k + 1) * size]) for d in data]) for k in (0, 1))
  expected = [eip2537_point(f, bytes.fromhex(v["Expected"])) for v in vectors]
  assert to_ints(x.to_xyzz().add_mixed(y), len(data)) == expected and to_ints(x.to_jacobian().add(y.to_jacobian()), len(data)) == expected


@GROUPS
def test_eip2537_multiplication(f, shared):
  group, size = ("G1", 128) if f is Fp else ("G2", 256)
  vectors = json.loads(shared("vectors", "eip2537", f"mul_{group}_bls.json").read_text())
  data = [bytes.fromhex(v["Input"]) for v in vectors]
  assert len(data) == 11 and all(len(d) == size + 32 for d in data)
  x = batch(f, [eip2537_point(f, d[:size]) for d in data])
  k = [int.from_bytes(d[size:], "big") for d in data] + [0] * (LANES - len(data))      # up to 2^256, points of order r
  assert to_ints(x.multiply(Fr.from_ints(k)), len(data)) == [eip2537_point(f, bytes.fromhex(v["Expected"])) for v in vectors]


@GROUPS
def test_py_ecc(f, pairs):
  reference = pytest.importorskip("py_ecc.optimized_bls12_381")
  element = reference.FQ if f is Fp else lambda v: reference.FQ2(list(v))
  back = (lambda v: v.n) if f is Fp else lambda v: tuple(int(c) for c in v.coeffs)
  points = cases.random_points(ORACLE[f], 3, seed=7)
  theirs = [(element(x), element(y), element(1 if f is Fp else (1, 0))) for x, y in points]
  to_affine = lambda p: tuple(map(back, reference.normalize(p)))
  x, y = batch(f, points), batch(f, points[1:] + points[:1])
  assert to_ints(x.to_xyzz().add_mixed(y), 3) == [to_affine(reference.add(a, b)) for a, b in zip(theirs, theirs[1:] + theirs[:1])]
  k = cases.random_scalars(LANES, seed=8)
  assert to_ints(x.multiply(Fr.from_ints(k)), 3) == [to_affine(reference.multiply(a, b)) for a, b in zip(theirs, k)]


@GROUPS
def test_arkworks(f):
  ark = pytest.importorskip("py_arkworks_bls12381")
  k = cases.random_scalars(LANES, seed=9)
  g = batch(f, [ORACLE[f].generator] * LANES)
  generator = (ark.G1Point if f is Fp else ark.G2Point)()
  theirs = [bytes((generator * ark.Scalar.from_le_bytes(v.to_bytes(32, "little"))).to_compressed_bytes()) for v in k]
  ours = to_ints(g.multiply(Fr.from_ints(k)))
  for data, (x, y) in zip(theirs, ours):
    words = (x,) if f is Fp else (x[1], x[0])
    sign = y if f is Fp else y[1] or y[0]
    expected = bytearray(b"".join(v.to_bytes(48, "big") for v in words))
    expected[0] |= 0x80 | (0x20 if sign > (P - 1) // 2 else 0)
    assert data == bytes(expected)


# Budgets

@GROUPS
@pytest.mark.parametrize("system,name,calls,number", [
    (XYZZ, "add", 4, 15), (XYZZ, "add_mixed", 4, 11), (XYZZ, "double", 3, 9),
    (Jacobian, "add", 5, 17), (Jacobian, "add_mixed", 5, 12), (Jacobian, "double", 3, 7)])
def test_products_of_a_formula(monkeypatch, f, system, name, calls, number):
  """The multiplications of a formula, and the products in them: the EFD's, and one for completeness."""
  formula = getattr(curve, f"_{system.__name__.lower()}_{name}").__wrapped__
  p = system.infinity(f, (1,))
  arguments = {"add": (p, p), "add_mixed": (p, Affine.infinity(f, (1,))), "double": (p,)}[name]
  sizes = count_products(monkeypatch, formula, *arguments)
  assert (len(sizes), sum(sizes)) == (calls, number)


def test_equal_shapes_trace_once(pairs):
  p, q = pairs[Fp]
  operations = lambda p, q: (p.to_xyzz().add_mixed(q).to_affine(), p.to_xyzz().double(), p.multiply(Fr.from_ints(SCALARS)), p.multiply(-3))
  operations(p, q)
  before = len(TRACES)
  operations(q, p)
  q.multiply(-12345)
  assert len(TRACES) == before
