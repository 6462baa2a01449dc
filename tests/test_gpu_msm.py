"""Multi-scalar multiplication as the GPU does it: run over NumPy against the oracle, and lowered for CUDA."""
import importlib

import cases
import jax
import jax.numpy as jnp
import numpy as np
import numpy_builder
import oracle
import pytest
from test_gpu_field import lowered_for_cuda

from zkjax.ops import bls12_381
from zkjax.ops.curve import XYZZ, Affine
from zkjax.ops.field import Fp, Fp2, Fr
from zkjax.ops.gpu import fixed, joins, msm, msm_kernels, ntt, points, simt, support
from zkjax.ops.gpu.msm import Plan

setup = importlib.import_module("zkjax.groth16.setup")      # the package exports a function of that name
CURVES = {"G1": (oracle.g1, Fp), "G2": (oracle.g2, Fp2)}


def plain(scalars):
  return np.array([[(k >> 32 * i) & 0xffffffff for k in scalars] for i in range(8)], np.uint32).reshape(8, len(scalars))


def to_affine(curve, p):
  f, (x, y, zz, zzz) = curve.field, (v.to_ints() for v in (p.x, p.y, p.zz, p.zzz))
  return None if zz == f.zero else (f.mul(x, f.inverse(zz)), f.mul(y, f.inverse(zzz)))


def run(group, bases, scalars, plan):
  curve, field = CURVES[group]
  with jax.disable_jit():                    # loops run the kernels step by step
    prepared = fixed.prepare(Affine.from_ints(field, bases), plan=plan, launch=numpy_builder.launch)
    total = msm.msm_rows(prepared.rows, plain(scalars), plan, numpy_builder.launch)
  return to_affine(curve, total)


def exceptional(curve):
  """Bases and scalars that meet infinite, equal and opposite points in one bucket, across pieces, in the join and in the tree."""
  p = cases.random_points(curve, 6, 5)
  bases = p + [None, p[0], p[0], p[0], curve.neg(p[0]), curve.double(p[0]), None, p[1], curve.neg(p[1]), curve.neg(p[1]), p[2]]
  scalars = cases.random_scalars(6, 7) + [5, 1, 1, 1, 3, oracle.R - 1, 0, 9, 9, 9, oracle.R - 2]
  return bases, scalars


@pytest.mark.parametrize("plan", [Plan(4, 1, 4), Plan(4, 4, 4)], ids=str)
def test_exceptional_points_in_g1(plan):
  bases, scalars = exceptional(oracle.g1)
  assert run("G1", bases, scalars, plan) == oracle.g1.msm(bases, scalars)


def test_exceptional_points_in_g2():
  bases, scalars = exceptional(oracle.g2)
  assert run("G2", bases[5:], scalars[5:], Plan(4, 16, 4)) == oracle.g2.msm(bases[5:], scalars[5:])


def test_one_bucket_takes_everything():
  """All entries of a window in one bucket, in many pieces: joined in two rounds; equal points double, opposite ones cancel."""
  p, q = cases.random_points(oracle.g1, 2, 6)
  bases = [p] * 21 + [q, oracle.g1.neg(q)] * 2
  scalars = [1] * 21 + [3] * 4
  assert run("G1", bases, scalars, Plan(4, 64, 2)) == oracle.g1.msm(bases, scalars)


@pytest.mark.parametrize("scalars", [[], [0, 0], [oracle.R - 1]], ids=str)
def test_few_and_trivial_scalars(scalars):
  bases = [oracle.G1] * len(scalars)
  assert run("G1", bases, scalars, Plan(4, 16, 4)) == oracle.g1.msm(bases, scalars)


def test_default_plans_cover_all_sizes():
  for log2_size in range(0, 26):
    for factor in (1, 4, 26):
      plan = msm.default_plan(1 << log2_size, factor)
      assert plan.num_windows * plan.window_bits > oracle.R.bit_length() and plan.num_sets * plan.factor >= plan.num_windows


@pytest.mark.parametrize("bits", [4, 7, 15, 16, 17])
def test_signed_digits_add_up(bits):
  scalars, plan = cases.scalars(), Plan(bits, 3)
  keys, entries = (np.asarray(v) for v in msm.sorted_entries(plain(scalars), plan, numpy_builder.launch))
  assert np.all(keys[1:] >= keys[:-1])
  total, n = [0] * len(scalars), len(scalars)
  for key, entry in zip(keys.tolist(), entries.tolist()):
    if key < plan.num_buckets:
      table, i = divmod(entry & (msm_kernels.SIGN - 1), n)
      window = key // plan.buckets_a_set + table * plan.num_sets
      digit = (key % plan.buckets_a_set + 1) * (-1 if entry >> 31 else 1)
      total[i] += digit << (window * bits)
  assert total == scalars


@pytest.mark.parametrize("keys, buckets", [([0, 0, 1, 4, 4, 6], 6), ([3], 3), ([0], 1), ([2] * 300, 5)])
def test_bucket_starts(keys, buckets):
  got = msm_kernels.bucket_starts(jnp.asarray(keys, jnp.uint32), buckets, numpy_builder.launch)
  assert got.tolist() == np.searchsorted(keys, np.arange(buckets + 1)).tolist()


@pytest.mark.parametrize("group", CURVES)
def test_addition_agrees_with_the_oracle(group):
  """Complete: XYZZ operands of different representatives, every pair of special points."""
  curve, field = CURVES[group]
  pairs = cases.point_pairs(curve)
  rows = [msm.point_rows(Affine.from_ints(field, list(v))) for v in zip(*pairs)]
  degree = 1 if field is Fp else 2

  def program(b, p_ref, q_ref, out, mixed):
    i = simt.thread_index(b)

    def one():
      load = lambda ref: points.load_affine(b, ref, i, degree, b.word(0).differs(0))
      p = points.from_affine(b, degree, *load(p_ref))
      scaled = points.double(points.add_mixed(b, degree, points.double(p), lambda: load(q_ref)))
      points.store_xyzz(b, out, i, degree, scaled.reduced())
      points.store_xyzz(b, mixed, i, degree, points.add_mixed(b, degree, points.double(p), lambda: load(q_ref)).reduced())
    b.when(i < len(pairs), one)
  shape = (len(pairs), points.xyzz_words(degree))
  results = numpy_builder.launch(program, rows, [shape, shape], 1)
  for k, (p, q) in enumerate(pairs):
    want = curve.add(curve.double(p), q)
    assert to_affine(curve, msm._point(results[0][k], degree)) == curve.double(want)
    assert to_affine(curve, msm._point(results[1][k], degree)) == want


@pytest.mark.parametrize("group", CURVES)
def test_whole_multiplication_lowers_for_cuda(group):
  words = points.affine_words(1 if group == "G1" else 2)
  plan = Plan(8, 2, 16)
  fn = lambda rows, scalars: jax.tree.leaves(msm.msm_rows(rows, scalars, plan))
  assert b"mosaic_gpu" in lowered_for_cuda(fn, (2 * 100, words), (8, 100))
  assert b"mosaic_gpu" in lowered_for_cuda(lambda rows: msm.table_rows(rows, plan), (100, words))


@pytest.mark.parametrize("plan", [Plan(4, 16, 4), Plan(5, 64, 8)], ids=str)
def test_several_tables_take_the_same_scalars(plan):
  points, scalars = [cases.random_points(oracle.g1, 12, k) for k in (3, 4, 5)], cases.random_scalars(6, 4) + [1] * 6
  with jax.disable_jit():
    tables = [msm.table_rows(msm.point_rows(Affine.from_ints(Fp, p)), plan, numpy_builder.launch) for p in points]
    work = msm.schedule(plain(scalars), plan, numpy_builder.launch)
    totals = msm.sums_scheduled(tables, work, plan, numpy_builder.launch)
  assert [to_affine(oracle.g1, t) for t in totals] == [oracle.g1.msm(p, scalars) for p in points]


@pytest.mark.parametrize("group", CURVES)
def test_multiples_of_a_generator(group):
  curve, field = CURVES[group]
  scalars = [0, 1, 256, oracle.R - 1] + cases.random_scalars(2, 3)
  got = fixed.sums_of_entries(setup._table(field), plain(scalars), numpy_builder.launch)
  assert got.shape == (6,) and got.to_ints() == [curve.multiply(curve.generator, k) for k in scalars]
  assert fixed.sums_of_entries(setup._table(field), plain([]), numpy_builder.launch).shape == (0,)


@pytest.mark.parametrize("group", CURVES)
def test_fixed_bases_behind_an_offset(group):
  """Prepared as the prover prepares them: with a plan by size and memory, infinite points in the place of scalars without a point."""
  curve, field = CURVES[group]
  points, scalars = cases.random_points(curve, 2, 3), [7, 9] + cases.random_scalars(2, 4)
  with jax.disable_jit():
    bases = fixed.prepare(Affine.from_ints(field, points), 2, 4 * 96 * 2 * 5, Plan(4, 16, 4), numpy_builder.launch)
    total = msm.msm_rows(bases.rows, plain(scalars), bases.plan, numpy_builder.launch)
  row = np.concatenate([np.asarray(v) for v in jax.tree.leaves(total)])
  assert bases.num_scalars == 4 and fixed.affine(row, fixed.degree_of(bases.rows)) == curve.msm(points, scalars[2:])


def test_the_programs_of_a_proof_lower_for_cuda():
  plan, words = Plan(8, 4, 16), [points.affine_words(d) for d in (1, 2)]
  made = fixed._Made(plan, "msm_h", scaled, (3,))
  several = lambda rows, values, more: fixed._sums_and_made([rows, rows], Fr(values), Fr(more), rows, (Fr(values),), plan, ("a", "b"), made)
  assert lowered_for_cuda(several, (4 * 100, words[0]), (8, 96), (8, 4)).count(b"accumulate") >= 3

  def last(rows, values, row):
    places = ((0, 0, 48), (0, 48, 48), (0, 0, 48))
    return fixed._sum_and_combined(rows, msm.schedule(values, plan), [row], msm.halves([5, 6]), plan, places, 2, "msm_b_g2")
  assert b"finish" in lowered_for_cuda(last, (4 * 100, words[1]), (8, 100), (96 + 8,))


@pytest.mark.parametrize("factors", [[oracle.R - 1, 12345], [0, (1 << 254) + 1]], ids=str)
def test_the_lanes_of_a_combination_add_up(monkeypatch, factors):
  """Rows are the points, their images, which count x^2 times, and points without a factor."""
  lanes = []
  monkeypatch.setattr(msm.joins, "finish", lambda degree, rows, *v: lanes.append(v) or rows[:1])
  msm.combined(jnp.zeros((2, 48), jnp.uint32), jnp.zeros((2, 48), jnp.uint32), msm.halves(factors))
  (index, doublings, most, _), totals = lanes[0], [0] * 6
  for row, k in zip(index.tolist(), doublings.tolist(), strict=True):
    if row != joins.NONE:
      totals[row] += 1 << k
  assert [totals[i] + totals[2 + i] * bls12_381.X**2 for i in range(2)] == factors and totals[4:] == [1, 1]
  assert doublings.max() <= most == 127


def test_images_are_multiples_by_the_square_of_x():
  p = cases.random_points(oracle.g1, 2, 8)
  one = np.asarray(Fp.ones((3,)).limbs).T * np.array([[1], [1], [0]], np.uint32)
  rows = np.concatenate([msm.point_rows(Affine.from_ints(Fp, p + [None])), one, one], axis=1)
  got = [to_affine(oracle.g1, msm._point(row, 1)) for row in msm.images(jnp.asarray(rows))]
  assert got == [oracle.g1.multiply(q, bls12_381.X**2) for q in p] + [None]


def test_programs_are_compiled_ahead_for_what_is_called(monkeypatch):
  """The two that a proof calls, with stand-ins: a call that follows traces nothing again."""
  traced = []

  def program(name, result, **static):
    return jax.jit(lambda *v: traced.append(name) or result(*v), **static)
  work = msm.Schedule(*[jnp.zeros(3, jnp.uint32)] * 6)

  def several(rows, values, more, made_rows, arrays, plan, stages, made):
    return jnp.zeros(200, jnp.uint32) + made.function(*arrays, *made.static), values.limbs, work
  last = lambda rows, work, totals, halves, plan, places, num_factored, stage: jnp.zeros(200, jnp.uint32) + halves[0, 0] + totals[0][0]
  monkeypatch.setattr(fixed, "_sums_and_made", program("several", several, static_argnums=(5, 6, 7)))
  monkeypatch.setattr(fixed, "_sum_and_combined", program("last", last, static_argnums=(4, 5, 6, 7)))
  bases, values, times = fixed.Bases(Plan(4), jnp.ones((2, 24), jnp.uint32), 2), Fr.from_ints([1]), lambda a, b: a * b
  more = bases, times, (jnp.ones((), jnp.uint32),), (2,)
  fixed.compile_together([bases] * 3, values, values, bases, *more)
  assert sorted(set(traced)) == ["last", "several"]
  before = len(traced)
  sums, scalars, first = fixed.start_several([bases] * 3, values, values, *more)
  _, c = fixed.start_combined(bases, scalars, sums[:2], [7, 8], sums[2:])
  assert len(traced) == before and [p.offset for p in (*sums, first, c)] == [0, 48, 96, 144, 192, 48]


def test_sums_with_plans_of_their_own_are_made_one_by_one(monkeypatch):
  """What one program cannot make: another plan for a query, or no points for the scalars that are made."""
  started, values = [], Fr.from_ints([1, 2, 3])
  monkeypatch.setattr(fixed, "start", lambda bases, scalars: started.append((bases, scalars)) or fixed.Pending(None, 1))
  several = [fixed.Bases(Plan(c), jnp.ones((5, 24), jnp.uint32), 5) for c in (4, 5)]
  h = fixed.Bases(Plan(4), jnp.ones((3, 24), jnp.uint32), 3)
  sums, scalars, first = fixed.start_several(several, values, Fr.from_ints([1, 4]), h, scaled, (values,), (2,))
  assert len(sums) == 3 and first.result() == 1 and [b for b, _ in started] == [*several, h]
  assert all(given is scalars for _, given in started[:2]) and np.array_equal(started[2][1], plain([2, 4, 6]))
  rows, places = fixed._places([*sums, first, first])
  assert [r.shape[0] for r in rows] == [48, 8] and places == ((0, 0, 48),) * 3 + ((1, 0, 8),) * 2


def scaled(values, factor):
  return (values * Fr.from_ints(factor)).to_plain()


def test_sums_of_one_program_are_taken_apart():
  two, three = Affine.from_ints(Fp2, [oracle.G2]), Affine.from_ints(Fp, [oracle.G1])
  word = lambda field, p: np.concatenate([np.asarray(v)[:, 0] for v in jax.tree.leaves((p, field.ones((1,)), field.ones((1,))))])
  row = np.concatenate([word(Fp2, two), word(Fp, three), np.arange(8, dtype=np.uint32)])
  assert fixed.PendingScalar(row, 144).result() == sum(k << 32 * k for k in range(8))
  assert fixed.Pending(row, 2).result() == oracle.G2 and fixed.Pending(row, 1, points.xyzz_words(2)).result() == oracle.G1


def test_too_little_memory_is_named_before_anything_is_launched():
  with pytest.raises(MemoryError, match="192 bytes.*100 may be used"):
    fixed.prepare(Affine.from_ints(Fp, [oracle.G1] * 2), budget=100)


def test_what_a_sum_or_a_transform_works_in_is_named_before_anything_is_launched(monkeypatch):
  monkeypatch.setattr(support, "free_bytes", lambda: 5000)
  bases, scalars = Affine.from_ints(Fp, [oracle.G1] * 20), plain([1] * 20)
  with pytest.raises(MemoryError, match="20 points and a sum over them need .* bytes on the device, 5000 are free"):
    msm.msm(bases, scalars, launch=None)
  with pytest.raises(MemoryError, match="tables of 20 points.*5000 are free"):
    fixed.prepare(bases, budget=1 << 20, launch=None)
  with pytest.raises(MemoryError, match="transforms of 2 times 256 values need .*5000 are free"):
    ntt.transform(np.zeros((2, 8, 256), np.uint32), oracle.root_of_unity(8, 5), launch=None)


def test_more_points_than_fit_are_summed_in_pieces(monkeypatch):
  """The sums of pieces by the oracle; they are added by the kernel that ends a sum."""
  bases, scalars, sizes = cases.random_points(oracle.g1, 7, 5), cases.random_scalars(7, 3), []

  def sum_of_piece(rows, words, plan, launch):
    piece = Affine(Fp(rows[:, :12].T), Fp(rows[:, 12:].T)).to_ints()
    numbers = [sum(int(w) << 32 * i for i, w in enumerate(column)) for column in np.asarray(words).T]
    sizes.append(len(piece))
    total = Affine.from_ints(Fp, oracle.g1.msm(piece, numbers))
    return XYZZ(*(Fp(jnp.asarray(v.limbs)) for v in (total.x, total.y, Fp.ones(()), Fp.ones(()))))
  monkeypatch.setattr(msm, "_MOST", 3)
  monkeypatch.setattr(msm, "msm_rows", sum_of_piece)
  with jax.disable_jit():
    total = msm.msm(Affine.from_ints(Fp, bases), plain(scalars), launch=numpy_builder.launch)
  assert to_affine(oracle.g1, total) == oracle.g1.msm(bases, scalars) and sizes == [3, 3, 1]


def test_no_points_have_no_sum():
  bases = fixed.prepare(Affine.from_ints(Fp, []), launch=numpy_builder.launch)
  assert fixed.start(bases, np.zeros((8, 0), np.uint32)).result() is None
  with pytest.raises(ValueError, match="one for each base"):
    fixed.start(bases, np.zeros((8, 1), np.uint32))
