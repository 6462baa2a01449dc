"""Multi-scalar multiplication on the CPU: batched affine additions, plans, and whole sums of points with known logarithms."""
import collections
import concurrent.futures
import itertools
import random

import cases
import jax
import numpy as np
import oracle
import pytest
from counting import count_equations
from oracle import P, R

from zkjax.ops import bls12_381
from zkjax.ops.cpu import affine, inversion
from zkjax.ops.cpu import digits as digits_module
from zkjax.ops.cpu import msm as cpu_msm
from zkjax.ops.curve import Affine
from zkjax.ops.field import Fp, Fp2
from zkjax.ops.int_curve import G1, G2
from zkjax.ops.limbs import FP
from zkjax.ops.msm import FixedBases

GROUPS = pytest.mark.parametrize("curve", [G1, G2], ids=["G1", "G2"])
BLOCK = affine.ROWS * affine.LANES
NUM_POINTS = {1: 5000, 2: 600}
SQUARE = bls12_381.X**2
ORDER_THREE = (0, 2)                         # on the curve, outside the subgroup


def degree(curve):
  return 1 if curve is G1 else 2


def to_affine(curve, points):
  return Affine.from_ints(Fp if curve is G1 else Fp2, points)


def to_words(scalars):
  """Plain uint32[8, n]."""
  return np.frombuffer(b"".join(k.to_bytes(32, "little") for k in scalars), np.uint32).reshape(-1, 8).T


@pytest.fixture(scope="module")
def table():
  """(logarithms, points): random points of one group. Each is the sum of one entry of each of three tables: cheap to make and, unlike
  an arithmetic progression, without short relations that would make sums of few of them meet."""
  def make(curve):
    generator, size = random.Random(1), 24
    logs = [[generator.randrange(R) for _ in range(size)] for _ in range(3)]
    points = [[curve.multiply(curve.generator, k) for k in part] for part in logs]
    chosen = generator.sample(list(itertools.product(range(size), repeat=3)), NUM_POINTS[degree(curve)])
    pairs = {ij: curve.add(points[0][ij[0]], points[1][ij[1]]) for ij in {c[:2] for c in chosen}}
    return [sum(part[i] for part, i in zip(logs, c)) % R for c in chosen], [curve.add(pairs[c[:2]], points[2][c[2]]) for c in chosen]
  made = {}
  return lambda curve: made[curve] if curve in made else made.setdefault(curve, make(curve))


@pytest.fixture
def states(monkeypatch):
  """The `_Sums` that sums make, in order."""
  made = []

  class Recorded(cpu_msm._Sums):
    def __init__(self, *args):
      super().__init__(*args)
      made.append(self)
  monkeypatch.setattr(cpu_msm, "_Sums", Recorded)
  return made


# Batched additions

def to_limbs(curve, points):
  """Rows of inner limbs, zero for infinity."""
  finite = [p for p in points if p is not None]
  rows = np.zeros((len(points), affine.point_limbs(degree(curve))), np.uint32)
  rows[[i for i, p in enumerate(points) if p is not None]] = cpu_msm.prepare(to_affine(curve, finite)).rows[:, ::2].reshape(len(finite), -1)
  return rows


def from_limbs(curve, rows):
  inverse = pow(FP.radix, -1, P)
  components = rows.reshape(len(rows), 2, FP.num, degree(curve)).swapaxes(2, 3).reshape(len(rows), 2 * degree(curve), FP.num)
  coordinates = [[FP.join(c) * inverse % P for c in row] for row in components]
  point = lambda c: (c[0], c[1]) if curve is G1 else ((c[0], c[1]), (c[2], c[3]))
  return [point(c) if any(c) else None for c in coordinates]


def add_pairs(curve, left, right, complete):
  """(sums, bad) of two lists of points that fill whole rows of lanes."""
  rows, limbs = len(left) // affine.LANES, affine.point_limbs(degree(curve))
  assert len(left) == len(right) == rows * affine.LANES

  def lanes(points):
    out = np.zeros((affine.ROWS, limbs, affine.LANES), np.uint32)
    out[:rows] = to_limbs(curve, points).reshape(rows, affine.LANES, limbs).transpose(0, 2, 1)
    return out
  buffers = [jax.device_put(np.zeros((affine.ROWS, size, affine.LANES), np.uint32)) for size in (limbs, limbs // 2)]
  out, _, bad = affine.batch_add(degree(curve), complete)(lanes(left), lanes(right), *buffers, np.int32(rows))
  return from_limbs(curve, np.asarray(out)[:rows].transpose(0, 2, 1).reshape(-1, limbs)), bool(bad)


def two_rows(table, curve):
  points = table(curve)[1]
  return points[:2 * affine.LANES], points[2 * affine.LANES:4 * affine.LANES]


def special_pairs(curve):
  """Every case of the group law; in G1 with points of order three too, which double to their negatives and have x = 0."""
  t = ORDER_THREE
  if curve is G2:
    return cases.point_pairs(oracle.g2)
  return cases.point_pairs(oracle.g1) + [(t, t), (t, G1.negate(t)), (t, None), (None, t)]


@GROUPS
def test_fast_addition_adds_distinct_points(table, curve):
  left, right = two_rows(table, curve)
  sums, bad = add_pairs(curve, left, right, complete=False)
  assert sums == [curve.add(p, q) for p, q in zip(left, right)] and not bad


@GROUPS
def test_fast_addition_reports_equal_x(table, curve):
  left, right = two_rows(table, curve)
  for lane, other in ((0, lambda p: p), (affine.LANES - 1, curve.negate), (2 * affine.LANES - 1, lambda p: p)):
    assert add_pairs(curve, left, right[:lane] + [other(left[lane])] + right[lane + 1:], complete=False)[1]
  assert add_pairs(curve, [None] + left[1:], [None] + right[1:], complete=False)[1]


@GROUPS
def test_complete_addition_adds_any_points(table, curve):
  left, right = two_rows(table, curve)
  special = special_pairs(curve)
  lanes = random.Random(2).sample(range(len(left)), 3 * len(special))
  for lane, (p, q) in zip(lanes, 3 * special):
    left, right = left[:lane] + [p] + left[lane + 1:], right[:lane] + [q] + right[lane + 1:]
  sums, bad = add_pairs(curve, left, right, complete=True)
  assert sums == [curve.add(p, q) for p, q in zip(left, right)] and not bad


@GROUPS
def test_complete_addition_of_special_pairs_alone(curve):
  left, right = zip(*(special_pairs(curve) * affine.LANES)[:affine.LANES])
  assert add_pairs(curve, left, right, complete=True)[0] == [curve.add(p, q) for p, q in zip(left, right)]


# Inverses and products

def test_inverses():
  """Of edge values, multiples of p away from canonical ones, and random ones, all lanes at once."""
  special = [1, 2, P - 1, P + 1, 2 * P - 1, FP.radix % P, (1 << 380) + 1, P // 2]
  values = special + [random.Random(3).randrange(1, 9 * P // 4) for _ in range(affine.LANES - len(special))]
  limbs = np.asarray(jax.jit(inversion.inverse)(np.array([FP.split(v) for v in values], np.uint32).T))
  assert limbs.max() <= FP.mask + 1
  for v, column in zip(values, limbs.T):
    assert FP.join(column) * v % P == FP.radix**2 % P and FP.join(column) < 2 * P


def test_inverses_take_their_largest_limbs():
  """Low limbs of 2^28, one over the mask."""
  values = np.full((FP.num, affine.LANES), FP.mask + 1, np.uint32)
  values[-1] = np.arange(1, affine.LANES + 1)
  limbs = np.asarray(jax.jit(inversion.inverse)(values))
  assert all(FP.join(a) * FP.join(b) % P == FP.radix**2 % P for a, b in zip(values.T, limbs.T))


def test_division_steps_end_in_time():
  """As many batches as the bound of `_inverses` counts with, on integers: Python's own gcd takes no such steps."""
  for v in [1, 2, P - 1, P + 1, 9 * P // 4, (1 << 383) - 1, 1 << 382] + [random.Random(4).randrange(1, 9 * P // 4) for _ in range(50)]:
    delta, f, g, steps = 1, P, v, 0
    while g:
      delta, f, g = (2 - delta, g, (g - f) // 2) if delta > 0 and g & 1 else (2 + delta, f, (g + (g & 1) * f) // 2)
      steps += 1
    assert abs(f) == 1 and steps <= 883 <= inversion.BATCHES * FP.bits


@pytest.mark.parametrize("count", [1, affine.PRODUCTS])
def test_products_with_one_factor(count):
  values = [0, 1, P - 1, 2 * P - 1][:count] + [random.Random(5).randrange(2 * P) for _ in range(count - 4)]
  limbs = np.array([FP.split(v) for v in values], np.uint32).T
  for factor in (0, 1, P - 1, G1.cube_root):
    assert [FP.join(c) % P for c in affine.products(limbs, factor).T] == [v * factor % P for v in values]


@GROUPS
def test_cube_roots(curve):
  point = curve.multiply(curve.generator, 12345)
  x = point[0] * curve.cube_root % P if curve is G1 else tuple(v * curve.cube_root % P for v in point[0])
  assert curve.multiply(point, SQUARE) == curve.negate((x, point[1]))


@GROUPS
def test_subgroup_combinations(table, curve):
  points = table(curve)[1][:5] + [None]
  for scalars in ([0, 1, R - 1, SQUARE, SQUARE - 1, 5], cases.random_scalars(6, seed=12)):
    terms = list(zip(scalars, points))
    assert curve.subgroup_combination(terms) == curve.combination(terms) == curve.sum(curve.multiply(p, k) for k, p in terms if p)
  assert curve.subgroup_combination([]) is None


# Plans

@GROUPS
@pytest.mark.parametrize("count", [0, 1, 5, 40])
def test_codes_name_points_and_their_multiples(table, curve, count):
  """4 i + 2 j + s is point i times (x^2)^j, negative for s = 1."""
  points = [p for q in table(curve)[1][:count] for p in (None, q)] + [None]
  bases = cpu_msm.prepare(to_affine(curve, points))
  assert bases.num_scalars == len(points) and list(bases.kept) == list(range(1, len(points) - 1, 2))
  taken = np.zeros((2, 4 * count, affine.point_limbs(degree(curve)) // 2), np.uint32)
  cpu_msm._Points.of_bases(bases).take(np.arange(4 * count, dtype=np.int32), taken)
  multiples = [curve.multiply(q, k) for q in points if q for k in (1, -1, SQUARE, -SQUARE)]
  assert from_limbs(curve, np.concatenate(taken, axis=1)) == multiples


@GROUPS
def test_inner_form_of_any_coordinates(curve):
  """Right at the edges of the estimated quotient, and small enough for `affine`: carried limbs, positive ones below (1 + 2^-39) p."""
  edges = [0, 1, P - 1, P // 2] + [k * P // (1 << FP.shift) + d for k in (1, 2, 255) for d in (0, 1)]
  values = edges + [random.Random(0).randrange(P) for _ in range(5000)]
  coordinates = np.array(values[:len(values) // 4 * 4], object).reshape(-1, 2, degree(curve))
  words = np.array([[v >> 32 * i & 0xffffffff for v in row for i in range(12)] for row in coordinates.reshape(len(coordinates), -1)])
  made = cpu_msm._coordinates(words.astype(np.uint32), degree(curve))
  assert max(v.max() for v in made) <= FP.mask
  weights = np.array([1 << FP.bits * k for k in range(FP.num)], object)[:, None, None]
  x, y, negative = ((v.astype(object) * weights).sum(axis=0).T for v in made)
  inner = coordinates * (1 << FP.shift) % P
  assert (x % P == inner[:, 0]).all() and (y % P == inner[:, 1]).all() and max(x.max(), y.max()) < P + (P >> 39)
  assert (negative == 2 * P - y).all()


def test_prepare_takes_more_points_than_a_block(table):
  points = table(G1)[1][:300]
  words = to_affine(G1, points)
  repeats = affine.PRODUCTS // 300 + 1
  bases = cpu_msm.prepare(jax.tree.map(lambda v: np.tile(v, repeats), words))
  expected = cpu_msm.prepare(words).rows
  assert len(bases.kept) == 300 * repeats and (bases.rows.reshape(repeats, -1) == expected.reshape(-1)).all()


def test_an_offset_shifts_the_scalars(table):
  logs, points = (v[:4] for v in table(G1))
  scalars = cases.random_scalars(7, seed=3)
  total = FixedBases.prepare(to_affine(G1, points), offset=3).msm(to_words(scalars))
  assert total == G1.multiply(G1.generator, sum(k * a for k, a in zip(scalars[3:], logs)) % R)


@pytest.mark.parametrize("bits", range(2, 17))
def test_signed_digits_reconstruct_scalars(bits):
  scalars = cases.scalars() + cases.random_scalars(50) + [R - 1 - (1 << bits * k) for k in range(1, 255 // bits)]
  digits = digits_module.signed_digits(to_words(scalars), range(0, 255 + bits + 1, bits)[:digits_module.num_windows(bits) + 1])
  assert digits.shape == (digits_module.num_windows(bits), len(scalars)) and abs(digits).max() <= 1 << (bits - 1)
  assert [sum(int(d) << bits * w for w, d in enumerate(column)) for column in digits.T] == scalars


def from_words(words):
  return [int.from_bytes(column.tobytes(), "little") for column in np.ascontiguousarray(words.T)]


def test_halves():
  """Also where the estimated quotient is too small: at multiples of x^2, for every size of the quotient."""
  multiples = [k * SQUARE + d for k in [1, 2, 3, SQUARE - 2] + [1 << b for b in range(126)] for d in (-1, 0, 1, SQUARE - 1)]
  scalars = cases.scalars() + multiples + cases.random_scalars(digits_module._HALVED + 1000)
  halved = from_words(digits_module.halves(to_words(scalars)))
  assert halved[::2] == [k % SQUARE for k in scalars] and halved[1::2] == [k // SQUARE for k in scalars]


@pytest.mark.parametrize("bits", range(2, 17))
def test_signed_digits_of_halves(bits):
  numbers = [0, 1, SQUARE - 1, SQUARE - 2, 1 << 127, (1 << 127) - 1] + [k % SQUARE for k in cases.random_scalars(50)]
  places = digits_module.window_places(bits)
  widths = np.diff(places)
  assert len(widths) == 128 // bits + 1 and places[0] == 0 and places[-1] == 129 and widths.max() <= bits and np.ptp(widths) <= 1
  digits = digits_module.signed_digits(to_words(numbers)[:4], places)
  assert digits.shape == (len(widths), len(numbers)) and (abs(digits).max(axis=1) <= 1 << widths - 1).all()
  assert [sum(int(d) << place for place, d in zip(places, column)) for column in digits.T] == numbers


@pytest.mark.parametrize("windows", [range(19), range(9), range(9, 19), range(3, 4), range(0)], ids=str)
def test_buckets_hold_each_digit_once(windows):
  digits = digits_module.signed_digits(digits_module.halves(to_words(cases.scalars())), digits_module.window_places(7))
  assert len(digits) == 19
  buckets = digits_module.buckets(digits, 7, windows)
  assert (np.diff(buckets.keys) > 0).all() and (buckets.counts > 0).all()
  entries = zip(np.repeat(buckets.keys, buckets.counts), buckets.codes)
  found = {(int(key) >> 7, int(code) >> 1): (-1 if code & 1 else 1) * (int(key) & 127) for key, code in entries}
  assert found == {(w, i): int(d) for (w, i), d in np.ndenumerate(digits) if d and w in windows}


@pytest.mark.parametrize("scalars", [cases.random_scalars(40, seed=3), [k % 2 for k in range(40)]], ids=["random", "bits"])
def test_buckets_of_chosen_scalars(scalars):
  """Codes count the chosen ones. Queries with the same finite points share them."""
  words, chosen = digits_module.Scalars(to_words(scalars)), np.array([0, 2, 3, 17, 39], np.int32)
  some = words.buckets(7, range(19), chosen)
  expected = digits_module.Scalars(to_words([scalars[i] for i in chosen])).buckets(7, range(19), np.arange(5))
  assert all((a == b).all() for a, b in zip(some, expected))
  assert words.buckets(7, range(19), chosen.copy()) is some
  assert words.buckets(7, range(19), chosen[1:]) is not some


# Whole sums

def check(curve, logs, points, scalars, bits=None):
  """The sum is the generator times the inner product of scalars and logarithms; infinity has logarithm 0."""
  total = FixedBases.prepare(to_affine(curve, points))
  total = cpu_msm.msm(total.prepared, to_words(scalars), bits)
  assert total == curve.multiply(curve.generator, sum(k * a for k, a in zip(scalars, logs, strict=True)) % R)


@GROUPS
@pytest.mark.parametrize("count", [0, 1, 2, 5, 33])
@pytest.mark.parametrize("bits", [None, 5])
def test_small_sums(table, curve, count, bits):
  logs, points = (v[:count] for v in table(curve))
  check(curve, logs, points, cases.random_scalars(count, seed=4), bits)


@pytest.mark.parametrize("bits", range(2, 17))
def test_every_window_width(table, bits):
  scalars = [0, 1, 2, R - 1, R - 2, (R - 1) // 2, 1 << 254, (1 << 254) - 1, 1 << bits, (1 << bits) - 1]
  scalars += cases.random_scalars(30, seed=bits)
  logs, points = (v[:40] for v in table(G1))
  check(G1, logs, points, scalars, bits)


@GROUPS
@pytest.mark.parametrize("bits", [3, 8])
def test_edge_scalars(table, curve, bits):
  scalars = cases.scalars()
  logs, points = (v[:len(scalars)] for v in table(curve))
  check(curve, logs, points, scalars, bits)


SCALARS = {
    "random": lambda n: cases.random_scalars(n, seed=5),
    "equal": lambda n: cases.random_scalars(1, seed=6) * n,
    "zero": lambda n: [0] * n,
    "one": lambda n: [1] * n,
    "minus one": lambda n: [R - 1] * n,
    "bits": lambda n: [random.Random(i).randrange(2) for i in range(n)],
    "mostly bits": lambda n: [k if i % 10 == 0 else i % 2 for i, k in enumerate(cases.random_scalars(n, seed=7))],
    "one bucket of the last window": lambda n: [1 << 254] * n,
    "small": lambda n: [i % 37 for i in range(n)],
}


@pytest.mark.parametrize("curve,count", [(G1, 1000), (G1, 5000), (G2, 400)], ids=["G1 1000", "G1 5000", "G2 400"])
@pytest.mark.parametrize("name", SCALARS)
def test_distributions_of_scalars(table, curve, count, name):
  logs, points = (v[:count] for v in table(curve))
  check(curve, logs, points, SCALARS[name](count))


def _equal(curve, logs, points):
  return [logs[0]] * len(logs), [points[0]] * len(points)


def _opposite_pairs(curve, logs, points):
  twice = lambda v, negate: [w for a in v[:len(v) // 2] for w in (a, negate(a))]
  return twice(logs, lambda a: -a % R), twice(points, curve.negate)


def _repeated(curve, logs, points):
  return [logs[i % 7] for i in range(len(logs))], [points[i % 7] for i in range(len(logs))]


def _infinite_between(curve, logs, points):
  return [a if i % 3 else 0 for i, a in enumerate(logs)], [p if i % 3 else None for i, p in enumerate(points)]


def _infinite(curve, logs, points):
  return [0] * len(logs), [None] * len(points)


def _multiples(curve, logs, points):
  """G, 2G, 3G, ...: sums of buckets meet all the time."""
  multiples, total = [], None
  for _ in points:
    total = curve.add(total, curve.generator)
    multiples.append(total)
  return list(range(1, len(points) + 1)), multiples


BASES = {f.__name__[1:]: f for f in (_equal, _opposite_pairs, _repeated, _infinite_between, _infinite, _multiples)}


@pytest.mark.parametrize("curve,count", [(G1, 1000), (G2, 100)], ids=["G1", "G2"])
@pytest.mark.parametrize("scalars", ["random", "equal", "bits"])
@pytest.mark.parametrize("bases", BASES)
def test_bases_that_coincide(table, curve, count, bases, scalars):
  logs, points = BASES[bases](curve, *(v[:count] for v in table(curve)))
  check(curve, logs, points, SCALARS[scalars](count))


def test_random_bases_with_one_repeated(table):
  """The exceptional pair comes up in the middle of a fast run: the step is repeated, and so is the one queued behind it."""
  logs, points = (list(v[:2000]) for v in table(G1))
  scalars = cases.random_scalars(2000, seed=8)
  logs[1000:1003], points[1000:1003], scalars[1000:1003] = [logs[0]] * 3, [points[0]] * 3, [scalars[0]] * 3
  check(G1, logs, points, scalars)


@GROUPS
@pytest.mark.parametrize("count,parts", [(5, 2), (300, 1), (300, 2), (300, 3), (300, 40)])
def test_parts_add_up(table, curve, count, parts):
  """More parts than windows too: some have nothing to do."""
  logs, points = (v[:count] for v in table(curve))
  bases, scalars = FixedBases.prepare(to_affine(curve, points)), cases.random_scalars(count, seed=11)
  words = digits_module.Scalars(to_words(scalars))
  terms = [term for part in range(parts) for term in bases.terms(words, part, parts)]
  assert bases.total(terms) == curve.multiply(curve.generator, sum(k * a for k, a in zip(scalars, logs)) % R)


def test_parts_share_the_additions(table, states):
  logs, points = (v[:4096] for v in table(G1))
  bases, words = FixedBases.prepare(to_affine(G1, points)), digits_module.Scalars(to_words(cases.random_scalars(4096, seed=10)))
  bases.terms(words, 0, 2), bases.terms(words, 1, 2)
  assert sum(s.additions for s in states) <= 120_000 and max(s.additions for s in states) < 65_000


def test_buffers_serve_one_sum_after_the_other(table, states):
  logs, points = (v[:100] for v in table(G1))
  cpu_msm.free_buffers()
  used = []

  class Recorded(cpu_msm._Sums):
    def close(self):
      used.append(self.buffers)
      super().close()
  cpu_msm._Sums = Recorded                     # `states` puts the real one back
  check(G1, logs, points, cases.random_scalars(100, seed=2), bits=5)
  check(G1, logs, points, cases.random_scalars(100, seed=3), bits=5)
  assert len(used) == 2 and used[0] is used[1] and cpu_msm._IDLE[1] == used[:1]
  assert len(used[0].spares) == len(used[0].turned) == 3
  first, second = cpu_msm._Sums(1), cpu_msm._Sums(1)
  assert first.buffers is used[0] and second.buffers is not used[0]
  second.close()
  cpu_msm.free_buffers()
  assert not cpu_msm._IDLE[1]


def test_entries_are_where_xla_reads_them():
  """At other addresses every call would copy them."""
  for array, _ in cpu_msm._Buffers(1).turned:
    assert jax.device_put(array, may_alias=True).unsafe_buffer_pointer() == array.ctypes.data


def test_sums_in_parallel_threads(table):
  """As the prover makes them: shared bases and shared digits."""
  logs, points = (v[:1000] for v in table(G1))
  bases, scalars = FixedBases.prepare(to_affine(G1, points)), cases.random_scalars(1000, seed=9)
  words = digits_module.Scalars(to_words(scalars))
  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    totals = list(pool.map(lambda _: bases.msm(words), range(4)))
  assert totals == [G1.multiply(G1.generator, sum(k * a for k, a in zip(scalars, logs)) % R)] * 4


def test_wrong_number_of_scalars(table):
  bases = cpu_msm.prepare(to_affine(G1, table(G1)[1][:3]))
  with pytest.raises(ValueError, match="one for each base"):
    cpu_msm.msm(bases, to_words([1, 2]))


# Budgets

def predicted_additions(scalars, bits):
  """A sum of k points takes k - 1 additions: every bucket, then the buckets that agree in half of the bits of |d|, then by single bits."""
  additions = 0
  for digit in digits_module.signed_digits(digits_module.halves(to_words(scalars)), digits_module.window_places(bits)):
    buckets = collections.Counter(abs(int(d)) for d in digit if d)
    halves = [collections.Counter(part(b) for b in buckets) for part in (lambda b: b & ((1 << bits // 2) - 1), lambda b: b >> bits // 2)]
    for half in halves:
      half.pop(0, None)
    single = [collections.Counter(k for value in half for k in range(bits) if value >> k & 1) for half in halves]
    additions += sum(sum(c.values()) - len(c) for c in [buckets, *halves, *single])
  return additions


@pytest.mark.parametrize("curve,count,budget", [(G1, 4096, 125_000), (G2, 500, 30_000)], ids=["G1", "G2"])
def test_random_sums_take_the_fast_path_within_budget(table, states, curve, count, budget):
  logs, points = (v[:count] for v in table(curve))
  scalars = cases.random_scalars(count, seed=10)
  check(curve, logs, points, scalars)
  state, = states
  assert not state.complete
  assert state.additions == predicted_additions(scalars, digits_module.window_bits(count)) <= budget


@pytest.mark.parametrize("degree,budget", [(1, 7000), (2, 8600)], ids=["G1", "G2"])
def test_programs_stay_small(degree, budget):
  """Every process loads them: the rolled products of the shared inversion, and one formula for both components of Fp2."""
  words = affine.point_limbs(degree)
  shapes = [(affine.ROWS, w, affine.LANES) for w in (words, words, words, words // 2)]
  arguments = [jax.ShapeDtypeStruct(s, np.uint32) for s in shapes] + [jax.ShapeDtypeStruct((), np.int32)]
  with jax.enable_x64(True):
    jaxpr = jax.make_jaxpr(lambda *args: affine._add(*args, degree, complete=False))(*arguments)
  assert count_equations(jaxpr.jaxpr) < budget


@pytest.mark.parametrize("name", ["bits", "equal", "mostly bits"])
def test_unbalanced_scalars_cost_no_more(table, states, name):
  logs, points = (v[:4096] for v in table(G1))
  check(G1, logs, points, SCALARS[name](4096))
  state, = states
  assert state.additions <= 125_000 and state.calls <= 100


@pytest.mark.parametrize("bases", ["equal", "opposite_pairs"])
def test_coinciding_bases_take_the_complete_path(table, states, bases):
  logs, points = BASES[bases](G1, *(v[:200] for v in table(G1)))
  check(G1, logs, points, SCALARS["equal"](200))
  assert states[0].complete


def test_an_infinite_sum_is_noticed(table, states):
  """P - P in one bucket: what follows adds infinity, which the fast addition does not report."""
  logs, points = (list(v[:64]) for v in table(G1))
  points[1], logs[1] = G1.negate(points[0]), -logs[0] % R
  check(G1, logs, points, [1, 1] + [2 + i for i in range(62)], bits=8)
  assert states[0].complete
