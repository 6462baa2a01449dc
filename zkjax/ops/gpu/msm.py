"""Multi-scalar multiplication on the GPU: sum k_i P_i, everything on the device, one point returned.

Signed windows of c bits: k = sum_w d_w 2^(c w), |d_w| <= 2^(c - 1). With tables of 2^(c s j) P_i for j < f the windows share s = ceil(W /
f) sets of buckets: window w = s j + i sends row j n + (point) to bucket |d| - 1 of set i. Variable bases are f = 1.

  digits, one flat sort by bucket                       jnp
  bucket starts, pieces, longest first                  a binary search a bucket; jnp
  sums of pieces                                        one thread a piece, at most `chunk` entries
  pieces of a bucket added up                           radix 4 over the chunks of a bucket, then its first piece
  S + sum_k 2^k T_k for every set                       the tree of `bit_level`; then every value is doubled as often as it counts, all
                                                        side by side, and they are added in a tree

Pieces: the sorted entries are cut at every bucket boundary and at every multiple of `chunk`. So piece b is the start of bucket b, piece
num_buckets + j is what lies at chunk j of a bucket that began before it, their number is static, and no scan is needed. No distribution
of scalars makes a piece longer than `chunk`, or needs more than log_4(chunks) rounds of at most 3 additions to join them.
"""
import dataclasses
from typing import NamedTuple

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

_LANES_A_CORE = 256                          # threads that a multiprocessor holds of a kernel with some 200 registers
_RADIX = 4                                   # rows added one after the other in one round of joining
_MANY = 1 << 17                              # rows from which on they keep the device busy


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


class Schedule(NamedTuple):
  """Entries in the order of their buckets, and the pieces that they are cut into.

  entries: uint32[W n]. begin, count, order: uint32[num_buckets + chunks], the pieces, and the order in which threads take them.
  place, left, joins: uint32[chunks], the lists that chunks form. See `_lists`.
  """
  entries: jax.Array
  begin: jax.Array
  count: jax.Array
  order: jax.Array
  place: jax.Array
  left: jax.Array
  joins: jax.Array


def default_plan(num_points, factor=1):
  """The window that minimises additions, W n of entries and about three full ones a bucket, each worth 1.4 mixed ones.

  factor: tables a point at most; more than there are windows serve nothing. Pieces are as long as gives every thread of the device one.
  """
  plan = lambda c: Plan(c, min(factor, Plan(c).num_windows))
  cost = lambda c: plan(c).num_windows * max(num_points, 1) + 4 * plan(c).num_buckets
  best = plan(min(range(4, 23), key=cost))
  share = best.num_windows * num_points // (simt.num_cores() * _LANES_A_CORE)
  return dataclasses.replace(best, chunk=min(64, max(8, 1 << share.bit_length())))


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
  if plan.factor == 1:
    return rows
  degree, shift = _degree(rows), np.array([plan.window_bits * plan.num_sets], np.uint32)

  def step(last, _):
    table = kernels.scaled_points(degree, last, shift, launch)
    return table, table
  _, tables = lax.scan(step, rows, None, plan.factor - 1)
  return jnp.concatenate([rows, tables.reshape((-1, rows.shape[1]))])


def msm_rows(rows, scalars, plan, launch=simt.launch):
  """As `msm`, from `table_rows` of the plan."""
  if rows.shape[0] != plan.factor * scalars.shape[1]:
    raise ValueError(f"{rows.shape[0]} rows are not {plan.factor} tables for {scalars.shape[1]} scalars")
  if scalars.shape[1] == 0:
    return XYZZ.infinity(Fp if _degree(rows) == 1 else Fp2)
  return sum_scheduled(rows, schedule(scalars, plan, launch), plan, launch)


def schedule(scalars, plan, launch=simt.launch):
  """What depends on the scalars only, shared by all bases that take them: a Schedule."""
  keys, entries = sorted_entries(scalars, plan)
  starts = kernels.bucket_starts(keys, plan.num_buckets, launch)
  begin, count = _pieces(keys, starts, plan)
  order = lax.sort((np.uint32(plan.chunk) - count, lax.iota(jnp.uint32, count.shape[0])), num_keys=1, is_stable=False)[1]
  return Schedule(entries, begin, count, order, *_lists(keys[::plan.chunk], starts, plan))


def sorted_entries(scalars, plan):
  """(keys, entries), uint32[W n], sorted by key: the bucket, num_buckets for a zero digit."""
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


def sum_scheduled(rows, work, plan, launch=simt.launch):
  """The sum of 2^(c set) (bucket + 1) times the points of all entries. Args: rows: `table_rows`. work: Schedule. Returns: XYZZ."""
  return sums_scheduled([rows], work, plan, launch)[0]


def sums_scheduled(tables, work, plan, launch=simt.launch, stages=None):
  """As `sum_scheduled`, for several tables of one group: a list. After the buckets they run side by side, as so many more sets.

  stages: the names of the sums in a trace; what is done for several at once carries the name of them all, "msm_a+msm_l".
  """
  degree, count = _degree(tables[0]), len(tables)
  stages = stages or ("msm",) * count
  order, begin, number, entries = work.order, work.begin, work.count, work.entries
  pieces = []
  for rows, stage in zip(tables, stages, strict=True):
    with jax.named_scope(stage):
      pieces.append(kernels.accumulate(degree, order, begin, number, entries, rows, plan.num_buckets, launch))
  with jax.named_scope("+".join(stages)):
    heads, chunks = (jnp.concatenate(v) if count > 1 else v[0] for v in zip(*pieces))
    sums = _join(degree, heads, chunks, work, count, plan, launch)
    return _weighted_sums(degree, sums, chunks.shape[0], count, plan, launch)


def _pieces(keys, starts, plan):
  """begin and count, uint32[num_buckets + chunks], of the pieces; see the module's docstring."""
  length = np.uint32(plan.chunk)
  first, end = starts[:-1], starts[1:]
  count = jnp.minimum(end, (first // length + np.uint32(1)) * length) - first
  bucket = keys[::plan.chunk]
  position = lax.iota(jnp.uint32, bucket.shape[0]) * length
  inside = (bucket < plan.num_buckets) & (starts[bucket] < position)
  next_start = starts[jnp.minimum(bucket + np.uint32(1), np.uint32(plan.num_buckets))]
  chunk_count = jnp.where(inside, jnp.minimum(next_start, position + length) - position, np.uint32(0))
  return jnp.concatenate([first, position]), jnp.concatenate([count, chunk_count])


def _join(degree, heads, chunks, work, count, plan, launch):
  """XYZZ rows of the bucket sums of `count` tables: piece b, and the chunks of bucket b that follow it. One thread a chunk: few buckets
  have any."""
  place, left = (jnp.tile(v, count) for v in (work.place, work.left))
  first = np.arange(count, dtype=np.uint32)[:, None] * np.uint32(plan.num_buckets)
  joins = jnp.where(work.joins == np.uint32(kernels.NONE), work.joins, work.joins + first).reshape(-1)
  chunks = _sum_lists(degree, chunks, place, left, work.place.shape[0], _RADIX, launch)
  sums = kernels.add_selected(degree, heads, chunks, joins, launch)
  return heads.at[joins].set(sums, mode="drop", unique_indices=True)


def _sum_lists(degree, rows, place, left, longest, radix, launch):
  """Row j becomes the sum of its list where place[j] = 0; see `kernels.join`. No list is longer than `longest`."""
  for k in range(_rounds(longest, radix)):
    rows = kernels.join(degree, rows, place, left, np.array([radix**k, radix], np.uint32), launch)
  return rows


def _lists(chunk_buckets, starts, plan):
  """place and left of every chunk, in the list of those that are pieces of one bucket, and the bucket of the first in each list."""
  length = np.uint32(plan.chunk)
  bucket = jnp.minimum(chunk_buckets, np.uint32(plan.num_buckets - 1))
  chunk = lax.iota(jnp.uint32, bucket.shape[0])
  begin, end = starts[bucket], starts[bucket + np.uint32(1)]
  first = begin // length + np.uint32(1)      # chunks first .. last of a bucket are pieces of their own
  last = (end - np.uint32(1)) // length
  inside = (begin < end) & (first <= chunk) & (chunk <= last)
  left = jnp.where(inside, last - chunk + np.uint32(1), np.uint32(0))
  return chunk - first, left, jnp.where(inside & (chunk == first), bucket, np.uint32(kernels.NONE))


def _weighted_sums(degree, sums, rows, count, plan, launch):
  """sum over sets of 2^(c set) sum_b (b + 1) S_b, as XYZZ, for each of `count` tables.

  The tree of `bit_level` ends with rows S, T_0, ..., T_(c - 2) of every set, which count 2^(c set), 2^(c set), ..., 2^(c set + c - 2).
  """
  sets, nodes, values = count * plan.num_sets, count * plan.num_buckets, 1
  while nodes > sets:
    # Four children at once read and write less; two take one addition after the other, which is what counts where threads are few.
    radix = 4 if nodes % (4 * sets) == 0 and nodes * values > _MANY else 2
    sums = kernels.bit_level(degree, sums, np.array([nodes, values, radix], np.uint32), launch)
    nodes, values = nodes // radix, values + radix // 2
  each = values * plan.num_sets
  table, value, set_ = np.ogrid[:count, :values, :plan.num_sets]
  index = np.broadcast_to(value * sets + table * plan.num_sets + set_, (count, values, plan.num_sets)).reshape(-1)
  doublings = np.broadcast_to(plan.window_bits * set_ + np.maximum(value - 1, 0), (count, values, plan.num_sets)).reshape(-1)
  lanes = -(-index.size // 32) * 32
  fit = lambda v, size: np.pad(v, (0, size - index.size)).astype(np.uint32)
  sums = kernels.doubled(degree, sums, fit(index, lanes), fit(doublings, lanes), np.array([doublings.max()], np.uint32), launch)
  rows = max(rows, lanes)                     # the kernel that joined chunks serves again, if it finds as many rows
  sums = jnp.concatenate([sums, jnp.zeros((rows - lanes, sums.shape[1]), jnp.uint32)])
  place = np.arange(index.size) % each
  sums = _sum_lists(degree, sums, fit(place, rows), fit(each - place, rows), each, 2, launch)
  return [_point(sums[k * each], degree) for k in range(count)]


def _rounds(count, radix):
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
