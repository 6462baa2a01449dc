"""Multi-scalar multiplication on the GPU: sum k_i P_i, everything on the device, one point returned.

Signed windows of c bits: k = sum_w d_w 2^(c w), |d_w| <= 2^(c - 1). With tables of 2^(c s j) P_i for j < f the windows share s = ceil(W /
f) sets of buckets: window w = s j + i sends row j n + (point) to bucket |d| - 1 of set i. Variable bases are f = 1.

  digits, one flat sort by bucket                       one thread a scalar; jnp
  bucket starts, pieces, longest first                  a binary search a bucket; jnp
  sums of pieces                                        one thread a piece, at most `chunk` entries
  pieces of a bucket added up                           `joins.join`: a tile of chunks after the other, then tiles of tiles
  S + sum_k 2^k T_k for every set                       the tree of `joins.fold`; then every value is doubled as often as it counts, all
                                                        side by side, and they are added in a tree

Pieces: the sorted entries are cut at every bucket boundary and at every multiple of `chunk`. So piece b is the start of bucket b, piece
num_buckets + j is what lies at chunk j of a bucket that began before it, their number is static, and no scan is needed. No distribution
of scalars makes a piece longer than `chunk`, or needs more than log_2(chunks) additions one after the other to join them.
"""
import dataclasses
from typing import NamedTuple, Optional

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from zkjax.ops import bls12_381
from zkjax.ops.bls12_381 import X
from zkjax.ops.curve import XYZZ
from zkjax.ops.field import Fp, Fp2
from zkjax.ops.gpu import joins, simt, support
from zkjax.ops.gpu import msm_kernels as kernels
from zkjax.ops.int_curve import CUBE_ROOT
from zkjax.ops.limbs import FP

_LANES_A_CORE = 256                          # threads that a multiprocessor holds of a kernel with some 200 registers
_MOST = 1 << 25                             # points of a sum with variable bases that is made in one piece: entries are numbered in 31 bits
_PIECES = 8, 64                              # lengths
_HALF_BITS = 128                             # x^2 and r / x^2 have no more
_MANY = 1 << 16                              # rows that keep the device busy


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

  entries: uint32[W n]. begin, count, order: uint32[num_buckets + chunks], the pieces, and the order in which threads take them (None:
  one after the other). starts: uint32[num_buckets + 1], the first entry of each bucket. owners: uint32[chunks], where chunks begin.
  """
  entries: jax.Array
  begin: jax.Array
  count: jax.Array
  order: Optional[jax.Array]
  starts: jax.Array
  owners: jax.Array


def default_plan(num_points, factor=1):
  """The window that minimises additions, W n of entries and about three full ones a bucket, each worth 1.4 mixed ones.

  factor: tables a point at most; more than there are windows serve nothing. Pieces are as long as gives every thread of the device one, or
  a whole number of at most 64 entries: if all are full, as those of equal scalars, none of them is left over for a round of its own.
  """
  plan = lambda c: Plan(c, min(factor, Plan(c).num_windows))
  cost = lambda c: plan(c).num_windows * max(num_points, 1) + 4 * plan(c).num_buckets
  best = plan(min(range(4, 23), key=cost))
  share = -(-best.num_windows * max(num_points, 1) // (simt.num_cores() * _LANES_A_CORE))
  return dataclasses.replace(best, chunk=max(_PIECES[0], -(-share // -(-share // _PIECES[1]))))


def msm(points, scalars, plan=None, launch=simt.launch):
  """sum_i scalars[i] points[i].

  Args:
    points: Affine[n] in G1 or G2, any points of odd order, repeated, opposite and infinite ones too.
    scalars: uint32[8, n], plain (not Montgomery), below r.
    plan: Plan with factor 1, or None to choose.

  Returns:
    XYZZ with batch shape ().

  Raises: MemoryError: pieces of the points do not fit beside them.

  Cost: W n mixed additions and about 3 s 2^(c - 1) full ones. In pieces of _MOST points, which take turns in the memory that a sum works
  in, if there are more.
  """
  rows = point_rows(points)
  count = rows.shape[0]
  plan = plan or default_plan(min(count, _MOST))
  needed = 4 * rows.size + working_bytes(_degree(rows), min(count, _MOST), plan)
  support.require(needed, f"{count} points and a sum over them", "free some, or use fewer points")
  if count <= _MOST:
    return msm_rows(rows, scalars, plan, launch)
  starts = range(0, count, _MOST)
  return _added([msm_rows(rows[k:k + _MOST], scalars[:, k:k + _MOST], plan, launch) for k in starts], _degree(rows), launch)


def working_bytes(degree, num_points, plan):
  """About what a sum takes beside its points: entries and keys before, in and after sorting, and the sums of pieces and their joins."""
  entries = plan.num_windows * num_points
  return 8 * 4 * entries + 2 * 4 * (4 * degree * FP.words + 4) * (plan.num_buckets + entries // plan.chunk)


def _added(totals, degree, launch):
  """The sum of some XYZZ points."""
  rows = jnp.stack([jnp.concatenate(jax.tree.leaves(total)) for total in totals])
  index = np.arange(len(totals))[None]
  return _ended(degree, rows, index, np.zeros_like(index), launch)[0]


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
  keys, entries = sorted_entries(scalars, plan, launch)
  starts, owners = kernels.bucket_starts(keys, plan.num_buckets, launch), keys[::plan.chunk]
  begin, count = _pieces(owners, starts, plan)
  order = None                                # where every piece has a thread from the beginning none waits for another
  if count.shape[0] > simt.num_cores() * _LANES_A_CORE:
    small = jnp.uint8 if plan.chunk < 1 << 8 else jnp.uint32
    missing = (np.uint32(plan.chunk) - count).astype(small)
    order = lax.sort((missing, lax.iota(jnp.uint32, count.shape[0])), num_keys=1, is_stable=False)[1]
  return Schedule(entries, begin, count, order, starts, owners)


def sorted_entries(scalars, plan, launch=simt.launch):
  """(keys, entries), uint32[W n], sorted by key: the bucket, num_buckets for a zero digit."""
  keys, entries = kernels.digits(scalars, plan.window_bits, plan.num_windows, plan.num_sets, launch)
  small = jnp.uint16 if plan.num_buckets < 1 << 16 else jnp.uint32            # a radix sort goes over the bytes of the keys
  keys, entries = lax.sort((keys.astype(small), entries), num_keys=1, is_stable=False)
  return keys.astype(jnp.uint32), entries


def sum_scheduled(rows, work, plan, launch=simt.launch):
  """The sum of 2^(c set) (bucket + 1) times the points of all entries. Args: rows: `table_rows`. work: Schedule. Returns: XYZZ."""
  return sums_scheduled([rows], work, plan, launch)[0]


def sums_scheduled(tables, work, plan, launch=simt.launch, stages=None):
  """As `sum_scheduled`, for several tables of one group: a list. After the buckets they run side by side, as so many more sets.

  stages: the names of the sums in a trace; what is done for several at once carries the name of them all, "msm_a+msm_l".
  """
  degree, count = _degree(tables[0]), len(tables)
  order, begin, number, entries = work.order, work.begin, work.count, work.entries
  stages, pieces = stages or ("msm",) * count, []
  for rows, stage in zip(tables, stages, strict=True):
    with jax.named_scope(stage):
      pieces.append(kernels.accumulate(degree, order, begin, number, entries, rows, plan.num_buckets, launch))
  with jax.named_scope("+".join(stages)):
    heads, chunks = (jnp.concatenate(v) if count > 1 else v[0] for v in zip(*pieces))
    return _weighted_sums(degree, heads, chunks.reshape((count, -1, chunks.shape[1])), work, plan, launch)


def _pieces(owners, starts, plan):
  """begin and count, uint32[num_buckets + chunks], of the pieces; see the module's docstring. owners: the buckets in which chunks begin."""
  length = np.uint32(plan.chunk)
  first, end = starts[:-1], starts[1:]
  count = jnp.minimum(end, (first // length + np.uint32(1)) * length) - first
  position = lax.iota(jnp.uint32, owners.shape[0]) * length
  inside = (owners < plan.num_buckets) & (starts[owners] < position)
  next_start = starts[jnp.minimum(owners + np.uint32(1), np.uint32(plan.num_buckets))]
  chunk_count = jnp.where(inside, jnp.minimum(next_start, position + length) - position, np.uint32(0))
  return jnp.concatenate([first, position]), jnp.concatenate([count, chunk_count])


def _join(degree, heads, chunks, work, plan, launch):
  """What `joins.join` makes of the chunks [tables, chunks, 4 d 12]: level 0, and the others one behind the other or None."""
  levels = [chunks]
  for level in range(len(joins.levels_of(degree, chunks.shape[1]))):
    levels.append(joins.join(degree, level, plan.chunk, levels[-1], heads, work.owners, work.starts, launch))
  rest = [rows.reshape((-1, rows.shape[2])) for rows in levels[2:]]
  return levels[1], jnp.concatenate(rest) if rest else None


def _weighted_sums(degree, heads, chunks, work, plan, launch):
  """sum over sets of 2^(c set) sum_b (b + 1) S_b, as XYZZ, for each table.

  The tree ends with rows S, T_0, ..., T_(c - 2) of every set, which count 2^(c set), 2^(c set), ..., 2^(c set + c - 2).
  """
  tables, bits = chunks.shape[0], plan.window_bits - 1
  sets, nodes, most = tables * plan.num_sets, tables * plan.num_buckets, joins.tile_of(degree).bit_length() - 1
  # In its first rounds a team has all lanes at work: where rows are many that counts, where they are few the number of launches does.
  depths = lambda rows, left: min(left, most if rows <= _MANY else most // 2)
  depth = depths(nodes, bits)
  joined, rest = _join(degree, heads, chunks, work, plan, launch)
  rows = joins.fold_buckets(degree, plan.chunk, heads, joined, rest, work.starts, depth, launch)
  nodes, values, bits = nodes >> depth, 1 + depth, bits - depth
  while bits:
    depth = depths(nodes * values, bits)
    rows = joins.fold(degree, rows, np.array([nodes, values, depth], np.uint32), launch)
    nodes, values, bits = nodes >> depth, values + depth, bits - depth
  table, value, set_ = np.ogrid[:tables, :values, :plan.num_sets]
  each = (tables, values * plan.num_sets)
  index = (value * sets + table * plan.num_sets + set_).reshape(each)
  doublings = np.broadcast_to(plan.window_bits * set_ + np.maximum(value - 1, 0), (tables, values, plan.num_sets)).reshape(each)
  return _ended(degree, rows, index, doublings, launch)


def combined(factored, plain, halves, launch=simt.launch):
  """sum k_i P_i + sum Q_j in G1, XYZZ, for canonical rows of P (factored) and Q (plain) and the `halves` of the k: a bit a lane, as many
  doublings as it counts, half of them by the endomorphism as in `int_curve.subgroup_combination`."""
  rows = jnp.concatenate([factored, images(factored), plain])
  places = np.arange(_HALF_BITS, dtype=np.uint32)
  owners = np.concatenate([np.repeat(np.arange(len(halves)), _HALF_BITS), len(halves) + np.arange(len(plain))])
  index, doublings = joins.lanes_for(1, owners[None], np.pad(np.tile(places, len(halves)), (0, len(plain)))[None])
  bits = (halves[:, places // 32] >> places % 32 & np.uint32(1)).reshape(-1)
  index = jnp.where(jnp.pad(bits, (0, index.size - bits.size), constant_values=1) == 1, index, np.uint32(joins.NONE))
  rows = joins.finish(1, rows, index, doublings, np.array([_HALF_BITS - 1], np.uint32), launch)
  index = np.arange(rows.shape[0])[None]
  return _ended(1, rows, index, np.zeros_like(index), launch)[0]


def halves(factors):
  """uint32[2 n, 4], on the host, of integers k = k0 + k1 x^2 below r: all k0, then all k1."""
  parts = [divmod(k, X * X)[::-1] for k in factors]
  words = b"".join(part[j].to_bytes(_HALF_BITS // 8, "little") for j in (0, 1) for part in parts)
  return np.frombuffer(words, np.uint32).reshape((-1, _HALF_BITS // 32))


def images(rows):
  """[x^2]P = -phi(P) for canonical XYZZ rows of points of order r in G1."""
  x, y = Fp(rows[:, :FP.words].T), Fp(rows[:, FP.words:2 * FP.words].T)
  return jnp.concatenate([(x * Fp.from_ints(CUBE_ROOT)).limbs.T, (-y).limbs.T, rows[:, 2 * FP.words:]], axis=1)


def _ended(degree, rows, index, doublings, launch):
  """[sum_k 2^doublings[t, k] rows[index[t, k]] for each table t], XYZZ. index, doublings: host arrays [tables, n]."""
  tables = len(index)
  while True:
    index, doublings = joins.lanes_for(degree, index, doublings)
    rows = joins.finish(degree, rows, index, doublings, np.array([doublings.max()], np.uint32), launch)
    if rows.shape[0] == tables:
      return [_point(row, degree) for row in rows]
    index = np.arange(rows.shape[0]).reshape((tables, -1))
    doublings = np.zeros_like(index)


def _point(words, degree):
  """XYZZ of batch shape () from a row."""
  parts = [Fp(part) for part in words.reshape((4 * degree, FP.words))]
  return XYZZ(*parts) if degree == 1 else XYZZ(*(Fp2(*parts[2 * k:2 * k + 2]) for k in range(4)))


def _degree(rows):
  return rows.shape[1] // (2 * FP.words)
