"""Multi-scalar multiplication on the GPU: sum k_i P_i, everything on the device, one point returned.

Signed windows of c bits: k = sum_w d_w 2^(c w), |d_w| <= 2^(c - 1). With tables of 2^(c s j) P_i for j < f the windows share s = ceil(W /
f) sets of buckets: window w = s j + i sends row j n + (point) to bucket |d| - 1 of set i. Variable bases are f = 1.

  digits, one flat sort by bucket                       jnp
  bucket starts, pieces, longest first                  a binary search a bucket; jnp
  sums of pieces                                        one thread a piece, at most `chunk` entries
  pieces of a bucket added up                           radix 8 over the chunks of a bucket, then its first piece
  S + sum_k 2^k T_k for every set                       the tree of `bit_level`, then Horner's rule over bits and over sets

Pieces: the sorted entries are cut at every bucket boundary and at every multiple of `chunk`. So piece b is the start of bucket b, piece
num_buckets + j is what lies at chunk j of a bucket that began before it, their number is static, and no scan is needed. No distribution
of scalars makes a piece longer than `chunk`, or needs more than log_8(chunks) rounds of at most 7 additions to join them.
"""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from zkjax.ops import bls12_381
from zkjax.ops.curve import XYZZ
from zkjax.ops.field import Fp, Fp2
from zkjax.ops.gpu import msm_kernels as kernels
from zkjax.ops.gpu import simt
from zkjax.ops.limbs import FP

_RADIX = 8                                   # chunks joined in one round


@dataclasses.dataclass(frozen=True)
class Plan:
  """Sizes of one multiplication. Hashable.

  window_bits: c. factor: f, tables a point. chunk: the longest piece.
  """
  window_bits: int
  factor: int = 1
  chunk: int = 128

  def __post_init__(self):
    if not 2 <= self.window_bits <= 24 or self.factor < 1 or self.chunk < 2:
      raise ValueError(f"need 2 <= window_bits <= 24, factor >= 1 and chunk >= 2, got {self}")

  @property
  def num_windows(self):
    """W: the windows of a 255-bit scalar; the top one keeps a spare bit for the carry of the signed digits."""
    return bls12_381.R.bit_length() // self.window_bits + 1

  @property
  def num_sets(self):
    """s: sets of buckets."""
    return -(-self.num_windows // self.factor)

  @property
  def buckets_a_set(self):
    """2^(c - 1)."""
    return 1 << (self.window_bits - 1)

  @property
  def num_buckets(self):
    """All sets together."""
    return self.num_sets * self.buckets_a_set


def default_plan(num_points, factor=1):
  """The window that minimises additions, W n of entries and about three full ones a bucket, each worth 1.4 mixed ones."""
  cost = lambda c: Plan(c, factor).num_windows * max(num_points, 1) + 4 * Plan(c, factor).num_buckets
  bits = min(range(4, 22), key=cost)
  mean = Plan(bits, factor).num_windows * num_points // Plan(bits, factor).num_buckets
  return Plan(bits, factor, min(128, max(16, 4 << max(mean, 1).bit_length())))


def msm(points, scalars, plan=None, launch=simt.launch):
  """sum_i scalars[i] points[i].

  Args:
    points: Affine[n] in G1 or G2, any points of odd order, repeated, opposite and infinite ones too.
    scalars: uint32[8, n], plain (not Montgomery), below r.
    plan: Plan with factor 1, or None to choose.

  Returns:
    XYZZ with batch shape ().

  Cost: W n mixed additions and about 3 s 2^(c - 1) full ones.
  """
  rows = point_rows(points)
  return msm_rows(rows, scalars, plan or default_plan(rows.shape[0]), launch)


def point_rows(points):
  """uint32[n, 2 d 12] of an Affine[n]: the words of a point together."""
  return jnp.concatenate([jnp.asarray(v).T for v in jax.tree.leaves(points)], axis=1)


def table_rows(rows, plan, launch=simt.launch):
  """uint32[f n, 2 d 12]: rows j n, ... are 2^(c s j) P for j < f, by doublings on the device."""
  degree, tables = _degree(rows), [rows]
  shift = np.array([plan.window_bits * plan.num_sets], np.uint32)
  for _ in range(plan.factor - 1):
    tables.append(kernels.scaled_points(degree, tables[-1], shift, launch))
  return jnp.concatenate(tables)


def msm_rows(rows, scalars, plan, launch=simt.launch):
  """As `msm`, from `table_rows` of the plan."""
  if rows.shape[0] != plan.factor * scalars.shape[1]:
    raise ValueError(f"{rows.shape[0]} rows are not {plan.factor} tables for {scalars.shape[1]} scalars")
  if scalars.shape[1] == 0:
    return XYZZ.infinity(Fp if _degree(rows) == 1 else Fp2)
  keys, entries = sorted_entries(scalars, plan)
  return sum_entries(rows, keys, entries, plan, launch)


def sorted_entries(scalars, plan):
  """(keys, entries), uint32[W n], sorted by key: the bucket, num_buckets for a zero digit. Shared by all bases that take the same
  scalars."""
  n, c, sets = scalars.shape[1], plan.window_bits, plan.num_sets
  words = [scalars[k].astype(jnp.uint32) for k in range(scalars.shape[0])] + [jnp.zeros(n, jnp.uint32)] * 2
  half, keys, entries, carry = np.uint32(plan.buckets_a_set), [], [], jnp.zeros(n, jnp.uint32)
  index = lax.iota(jnp.uint32, n)
  for w in range(plan.num_windows):
    word, offset = divmod(w * c, 32)
    digit = words[word] >> np.uint32(offset)
    if offset + c > 32:
      digit = digit | (words[word + 1] << np.uint32(32 - offset))
    digit = (digit & np.uint32((1 << c) - 1)) + carry
    negative = digit > half
    size = jnp.where(negative, np.uint32(1 << c) - digit, digit)
    carry = negative.astype(jnp.uint32)
    key = np.uint32(w % sets * plan.buckets_a_set) + size - np.uint32(1)
    keys.append(jnp.where(size == 0, np.uint32(plan.num_buckets), key))
    entries.append((index + np.uint32(w // sets * n)) | carry << np.uint32(31))
  return lax.sort((jnp.concatenate(keys), jnp.concatenate(entries)), num_keys=1, is_stable=False)


def sum_entries(rows, keys, entries, plan, launch=simt.launch):
  """The sum of 2^(c set) (bucket + 1) times the points of all entries. Args: as made by `sorted_entries`. Returns: XYZZ."""
  degree, buckets = _degree(rows), plan.num_buckets
  starts = kernels.bucket_starts(keys, buckets, launch)
  begin, count = _pieces(keys, starts, plan)
  order = lax.sort((np.uint32(plan.chunk) - count, lax.iota(jnp.uint32, count.shape[0])), num_keys=1, is_stable=False)[1]
  heads, chunks = kernels.accumulate(degree, order, begin, count, entries, rows, buckets, launch)
  sums = _join(degree, heads, chunks, keys, starts, plan, launch)
  return _weighted_sum(degree, sums, plan, launch)


def _pieces(keys, starts, plan):
  """begin and count, uint32[num_buckets + chunks], of the pieces; see the module's docstring."""
  length = np.uint32(plan.chunk)
  first, end = starts[:-1], starts[1:]
  count = jnp.minimum(end, (first // length + np.uint32(1)) * length) - first
  bucket, position = _chunk_buckets(keys, plan)
  inside = (bucket < plan.num_buckets) & (starts[bucket] < position)
  next_start = starts[jnp.minimum(bucket + np.uint32(1), np.uint32(plan.num_buckets))]
  chunk_count = jnp.where(inside, jnp.minimum(next_start, position + length) - position, np.uint32(0))
  return jnp.concatenate([first, position]), jnp.concatenate([count, chunk_count])


def _chunk_buckets(keys, plan):
  """The bucket at the beginning of every chunk, and the position of the chunk."""
  chunks = -(-keys.shape[0] // plan.chunk)
  return keys[::plan.chunk], lax.iota(jnp.uint32, chunks) * np.uint32(plan.chunk)


def _join(degree, heads, chunks, keys, starts, plan, launch):
  """XYZZ rows of the bucket sums: piece b, and the chunks of bucket b that follow it, joined _RADIX at a time."""
  num_chunks, length = chunks.shape[0], np.uint32(plan.chunk)
  bucket, _ = _chunk_buckets(keys, plan)
  bucket = jnp.minimum(bucket, np.uint32(plan.num_buckets - 1))
  chunk = lax.iota(jnp.uint32, num_chunks)
  first = starts[bucket] // length + np.uint32(1)             # the chunks first .. last of a bucket are pieces of their own
  last = (starts[bucket + np.uint32(1)] - np.uint32(1)) // length
  inside = (starts[bucket] < starts[bucket + np.uint32(1)]) & (first <= chunk) & (chunk <= last)

  def round_(k, chunks):
    stride = jnp.uint32(1) << (jnp.asarray(k, jnp.uint32) * np.uint32(_RADIX.bit_length() - 1))
    leads = inside & ((chunk - first) % (stride * np.uint32(_RADIX)) == 0)
    left = (last - chunk) // stride + np.uint32(1)
    count = jnp.where(leads, jnp.minimum(left, np.uint32(_RADIX)), np.uint32(0))
    return kernels.strided_sums(degree, chunks, stride[None], count, launch)
  chunks = lax.fori_loop(0, _digits(num_chunks, _RADIX), round_, chunks)
  follows = starts[:-1] // length + np.uint32(1)
  several = (starts[1:] > starts[:-1]) & ((starts[1:] - np.uint32(1)) // length >= follows)
  return kernels.add_selected(degree, heads, chunks, jnp.where(several, follows, np.uint32(kernels.NONE)), launch)


def _weighted_sum(degree, sums, plan, launch):
  """sum over sets of 2^(c set) sum_b (b + 1) S_b, as XYZZ."""
  levels, sizes, nodes, values = [], [], plan.num_buckets, 1
  while nodes > plan.num_sets:
    radix = 4 if nodes % (4 * plan.num_sets) == 0 else 2
    levels.append((nodes, values, radix))
    nodes, values = nodes // radix, values + radix // 2
    sizes.append(nodes * values)
  # Two levels shrink the rows to a third; the others share one array, and one compilation.
  for level, size in list(zip(levels, sizes))[:2]:
    sums = kernels.bit_level(degree, sums, np.array(level, np.uint32), size, launch)
  if levels[2:]:
    later = jnp.asarray(np.array(levels[2:], np.uint32))
    step = lambda k, rows: kernels.bit_level(degree, rows, later[k], rows.shape[0], launch)
    sums = lax.fori_loop(0, len(levels) - 2, step, sums)
  return _point(_combine(degree, sums, plan, launch), degree)


def _combine(degree, sums, plan, launch):
  """The XYZZ row of sum over sets of 2^(c set) (S + sum_k 2^k T_k), from rows S, T_0, ..., one of every set each."""
  bits = plan.window_bits - 1
  sets, lanes = plan.num_sets, simt.THREADS * simt.blocks_for(plan.num_sets)
  num_rows, steps = max(sets * (bits + 1), lanes), max(bits + 1, sets)
  fit = lambda rows: jnp.concatenate([rows[:num_rows], jnp.zeros((max(0, num_rows - rows.shape[0]), rows.shape[1]), jnp.uint32)])
  # sets: T_(bits - 1), ..., T_0 with a doubling before each but the first, then S; then the sets from the top, c doublings before each
  of_bits = [(bits - k) * sets for k in range(bits)] + [0]
  index, doublings = (np.zeros((2, steps, lanes), np.uint32) for _ in range(2))
  index[0, :bits + 1, :sets] = np.array(of_bits)[:, None] + np.arange(sets)
  doublings[0, :bits] = 1
  index[1, :sets] = np.arange(sets)[::-1, None]
  doublings[1, :sets] = plan.window_bits
  lane = np.arange(lanes)
  length = np.array([np.where(lane < sets, bits + 1, 1), np.where(lane == 0, sets, 1)], np.uint32)
  index, doublings, length = map(jnp.asarray, (index, doublings, length))
  step = lambda k, rows: fit(kernels.horner(degree, rows, index[k], doublings[k], length[k], launch))
  return lax.fori_loop(0, 2, step, fit(sums))[0]


def _digits(count, radix):
  """Rounds that leave one of `count`, `radix` joined in each."""
  rounds = 0
  while count > radix**rounds:
    rounds += 1
  return rounds


def _point(words, degree):
  """XYZZ of batch shape () from a row."""
  parts = [Fp(part) for part in words.reshape((4 * degree, FP.words))]
  return XYZZ(*parts) if degree == 1 else XYZZ(*(Fp2(*parts[2 * k:2 * k + 2]) for k in range(4)))


def _degree(rows):
  return rows.shape[1] // (2 * FP.words)


@dataclasses.dataclass(frozen=True, eq=False)
class FixedBases:
  """Bases that do not change, with their tables on the device. rows: uint32[f n, 2 d 12]."""
  plan: Plan
  rows: jax.Array

  @classmethod
  def prepare(cls, points, plan, launch=simt.launch):
    """Tables of an Affine[n] for a plan: f n 96 bytes in G1, twice that in G2; (f - 1) n c s doublings and as many inversions as rows."""
    build = lambda p: table_rows(point_rows(p), plan, launch)
    return cls(plan, (jax.jit(build) if launch is simt.launch else build)(points))

  def msm(self, scalars, launch=simt.launch):
    """sum_i scalars[i] points[i] for plain uint32[8, n] below r: XYZZ with batch shape ()."""
    return msm_rows(self.rows, scalars, self.plan, launch)


