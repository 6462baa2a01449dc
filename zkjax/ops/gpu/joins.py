"""The kernels that turn the sums of pieces into one point: teams of four warps on tiles of points in shared memory.

Arrays of points are XYZZ rows uint32[rows, 4 d 12], d = 1 for G1 and 2 for G2. Results are not reduced below p, but for `finish`.

Pieces. Sorted entries are cut at every bucket boundary and at every multiple of `length`: `heads[b]` is what bucket b has before the first
such multiple inside it, and its further pieces are the chunks f .. e, where f = begin // length + 1 and e = (end - 1) // length: its list,
none if f > e. `join` adds up what of a list lies in one group of `fan` chunks. A list that goes on has the first chunks of the following
groups left to add, f // fan + 1 .. e // fan: the same form again, on the groups, until one holds all.
"""
import functools
import math

import jax
import numpy as np

from zkjax.ops.gpu import simt
from zkjax.ops.gpu.points import xyzz_words
from zkjax.ops.gpu.teams import SHARED, Team, lanes_of, load_part, nothing, store_part, tile_of
from zkjax.ops.limbs import FP

NONE = 0xffffffff
_MANY = 1 << 16                              # elements that keep the device busy
_SMALL_FAN = 8


def levels_of(degree, chunks):
  """(number of elements, fan) of each level of `join`; of level 0 the elements are the chunks.

  A group as large as a tile keeps all lanes of a team at work in the first of its six rounds only: smaller ones where elements are many.
  """
  levels, tile = [], tile_of(degree)
  while True:
    fan = _SMALL_FAN if chunks > _MANY else tile
    levels.append((chunks, fan))
    if chunks <= fan:
      return levels
    chunks = -(-chunks // fan)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 7))
def join(degree, level, length, rows, heads, owners, starts, launch=simt.launch):
  """One level for all tables: what of each list lies in one group, at the place of its first element there; other rows are undefined.

  Round s joins neighbouring windows of 2^s elements: the list that crosses from one to the next, if one does, has what lies in the left
  window at the place of its first element there, and what lies in the right one at that window's first place.

  Args:
    rows: [tables, n, 4 d 12], the chunks at level 0, else the result of the level before, of which the first row of each group is used.
    heads: [tables * num_buckets, 4 d 12], added to a list's first chunk at level 0. owners: uint32[chunks], the bucket in which a chunk
    begins. starts: uint32[num_buckets + 1].
  Returns: [tables, m, 4 d 12], m the size of this level.
  """
  tables, available, words = rows.shape
  levels = levels_of(degree, owners.shape[0])
  count, fan = levels[level]
  tile, lanes, parts = tile_of(degree), lanes_of(degree), 4 * degree
  chunks, buckets, stride = owners.shape[0], starts.shape[0] - 1, levels[level - 1][1] if level else 1
  tiles = -(-count // tile)

  def program(b, rows, heads, owners, starts, out, memory):
    team = Team(b, degree, memory)
    table, first = b.block() // tiles, b.block() % tiles * tile

    in_list = lambda slot: _list_at(b, owners, starts, (chunks, buckets, length, levels[:level], count), first + slot)

    def fetch(slot, part):
      row = (table * available) + (first + slot) * stride
      return b.when(first + slot < count, lambda: load_part(b, rows, row, parts, part), lambda: nothing(b))

    def add_heads(half, _):
      slot = half * lanes + team.addition
      listed, _, f = in_list(slot)
      head = lambda i, part: load_part(b, heads, table * buckets + in_list(half * lanes + i)[1], parts, part)
      _add_fetched(b, team, slot, listed & f.equals(first + slot), head)
      return ()

    def step(s, _):
      reach = b.word(1) << s
      window = team.addition << (s + 1)
      middle = (window + reach).minimum(tile - 1)
      listed, _, f = in_list(middle)
      active = listed & (f < first + middle) & (window + reach < tile)
      slot = (f < first + window).choose(window, f - first)
      b.when(b.any_thread(active), lambda: team.add(active.choose(slot, 0), active.choose(middle, 0), active))
      return ()

    def store(slot, part, load):
      row = table * count + first + slot
      b.when(first + slot < count, lambda: store_part(b, out, row, parts, part, load()))

    team.fill(0, tile, fetch)
    b.barrier()
    if level == 0:
      b.repeat(2, (), add_heads)
    b.repeat(fan.bit_length() - 1, (), step)
    team.drain(tile, store)
  inputs = [rows.reshape((-1, FP.words)), heads.reshape((-1, FP.words)), owners, starts]
  out, = launch(program, inputs, [(tables * count * parts, FP.words)], tables * tiles, [SHARED])
  return out.reshape((tables, count, words))


def _list_at(b, owners, starts, sizes, element):
  """Of an element of a level of `join`: whether it lies in its bucket's list, the bucket, and the list's first element."""
  chunks, buckets, length, below, count = sizes
  chunk = element * math.prod(fan for _, fan in below)
  bucket = b.load(owners, chunk.minimum(chunks - 1)).minimum(buckets - 1)
  some, f, e = _list_of(b, starts, bucket, length)
  for _, fan in below:
    f, e = f // fan + 1, e // fan
  return some & (f <= element) & (element <= e) & (element < count), bucket, f


def _list_of(b, starts, bucket, length):
  """Whether a bucket has a list, and its first and last chunk if so."""
  begin, end = (b.load(starts, bucket + k) for k in (0, 1))
  f, e = begin // length + 1, (end - 1) // length
  return (begin < end) & (f <= e), f, e


def _add_fetched(b, team, slot, active, fetch):
  """Adds to the slots, where `active`, points that fetch(i, part) gives for addition i; nothing if no thread of the block is active."""
  def work():
    team.fill(team.tile, team.lanes, fetch)
    b.barrier()
    team.add(slot, active.choose(team.addition + team.tile, slot), active)
  b.when(b.any_thread(active), work)


@functools.partial(jax.jit, static_argnums=(0, 1, 6, 7))
def fold_buckets(degree, length, heads, joined, rest, starts, depth, launch=simt.launch):
  """The first level of the tree of `fold`, whose rows are the sums of buckets: heads[b], or what `join` made of its list.

  Args: heads: [tables * num_buckets, 4 d 12]. joined: [tables, chunks, 4 d 12], level 0 of `join`. rest: its other levels, one behind the
  other, or None. starts: uint32[num_buckets + 1].
  """
  tables, chunks, words = joined.shape
  tile, parts, buckets = tile_of(degree), 4 * degree, starts.shape[0] - 1
  nodes, levels = tables * buckets, levels_of(degree, chunks)
  small = sum(fan < tile for _, fan in levels)

  def program(b, heads, joined, starts, *refs):
    rest, out, memory = refs if len(refs) == 3 else (None, *refs)
    team, first = Team(b, degree, memory), b.block() * tile
    leaf = lambda slot: (first + slot).minimum(nodes - 1)

    def fetch(slot, part):
      listed, f, _ = _list_of(b, starts, leaf(slot) % buckets, length)
      row = leaf(slot) // buckets * chunks + f
      return b.when(listed, lambda: load_part(b, joined, row, parts, part), lambda: load_part(b, heads, leaf(slot), parts, part))

    def further(slot, level):
      """Whether a list goes on at a level of `rest`, and its row there."""
      listed, f, e = _list_of(b, starts, leaf(slot) % buckets, length)

      def up(k, state):
        f, e, size, offset = state
        size, offset = k.equals(0).choose((b.word(chunks), b.word(0)), (size, offset + size * tables))
        bits = (k < small).choose(_SMALL_FAN.bit_length() - 1, tile.bit_length() - 1)
        return (f >> bits) + 1, e >> bits, (size + (b.word(1) << bits) - 1) >> bits, offset
      f, e, size, offset = b.repeat(level, (f, e, b.word(0), b.word(0)), up)
      return listed & (f <= e), offset + leaf(slot) // buckets * size + f

    def add_further(i, _):
      level, base = (i >> 1) + 1, (i & 1) * team.lanes

      def fetch_further(k, part):
        goes_on, row = further(base + k, level)
        return b.when(goes_on, lambda: load_part(b, rest, row, parts, part), lambda: nothing(b))
      _add_fetched(b, team, base + team.addition, further(base + team.addition, level)[0], fetch_further)
      return ()

    team.fill(0, tile, fetch)
    b.barrier()
    if rest is not None:
      b.repeat(2 * (len(levels) - 1), (), add_further)
    _fold_tile(b, team, out, first, b.word(nodes), b.word(1), b.word(depth))
  inputs = [heads.reshape((-1, FP.words)), joined.reshape((-1, FP.words)), starts]
  inputs += [] if rest is None else [rest.reshape((-1, FP.words))]
  rows = (nodes >> depth) * (1 + depth)
  return launch(program, inputs, [(rows * parts, FP.words)], -(-nodes // tile), [SHARED])[0].reshape((rows, words))


@functools.partial(jax.jit, static_argnums=(0, 3))
def fold(degree, rows, level, launch=simt.launch):
  """Levels of the tree that turns bucket sums S_b into S = sum S_b and T_k = sum of the S_b whose index has bit k set.

  A node covers consecutive buckets and has v values S, T_0, ..., at rows value * num_nodes + node. 2^depth of them make a node of v + depth
  values: every old value is summed over them, a new T_k over those whose own index has that bit. In place, as `ops.msm` does it: round k
  adds slot j + 2^k to slot j, j < 2^k, and for the values S likewise inside each interval [2^i, 2^(i + 1)), i > k, folded off before.

  Args: level: uint32[3]: number of nodes, v, depth. They are data, not shapes, so that one kernel serves many levels.
  Returns: as many rows, of which the first (nodes >> depth) (v + depth) are written.
  """
  tile, parts = tile_of(degree), 4 * degree

  def program(b, rows, level, out, memory):
    nodes, values, depth = (b.load(level, k) for k in range(3))
    first, total = b.block() * tile, nodes * values

    def work():
      team = Team(b, degree, memory)
      present = lambda slot, part: b.when(first + slot < total, lambda: load_part(b, rows, first + slot, parts, part), lambda: nothing(b))
      team.fill(0, tile, present)
      b.barrier()
      _fold_tile(b, team, out, first, nodes, values, depth)
    b.when(first < total, work)
  out, = launch(program, [rows.reshape((-1, FP.words)), level], [(rows.size // FP.words, FP.words)], -(-rows.shape[0] // tile), [SHARED])
  return out.reshape(rows.shape)


def _fold_tile(b, team, out, first, nodes, values, depth):
  """Rows first, first + 1, ... lie in the slots; groups of 2^depth of them become one node each. In every round a team has lanes enough.

  Where all points are infinite nothing is added: most tiles of equal scalars, which fill a bucket a window.
  """
  tile_bits, parts = team.tile.bit_length() - 1, 4 * team.degree
  total = nodes * values

  def step(i, _):
    each = tile_bits - 1 - i                 # additions of one interval, of all groups, in bits
    interval, index, k = (team.addition >> each).minimum(depth), team.addition & ((b.word(1) << each) - 1), depth - 1 - i
    group, j = (index >> k) << depth, index & ((b.word(1) << k) - 1)
    whole = interval.equals(0)
    p = group + j + whole.choose(0, b.word(1) << (depth - interval))
    of_sums = (first + group) < nodes        # rows of the values S come first
    active = whole | ((interval <= i) & of_sums)
    slot = active.choose(p, 0)
    team.add(slot, active.choose(p + (b.word(1) << k), 0), active)
    return ()
  b.when(team.any_finite(), lambda: b.repeat(depth, (), step))

  def store(slot, part, load):
    inside, row = slot & ((b.word(1) << depth) - 1), first + ((slot >> depth) << depth)
    bit, power = b.word(0), inside.equals(1)
    for k in range(1, tile_bits):
      here = inside.equals(1 << k)
      bit, power = here.choose(k, bit), here | power
    value = row // nodes
    kept = (row < total) & (inside.equals(0) | (power & value.equals(0)))
    target = inside.equals(0).choose(value, values + bit) * (nodes >> depth) + ((row % nodes) >> depth)
    b.when(kept, lambda: store_part(b, out, target, parts, part, load()))
  team.drain(team.tile, store)


@functools.partial(jax.jit, static_argnums=(0, 5))
def finish(degree, rows, index, doublings, most, launch=simt.launch):
  """Row of each block: the sum of 2^doublings[t] rows[index[t]] over its `lanes_of` t, canonical XYZZ; index NONE stands for infinity.

  Args: index, doublings: uint32[blocks * lanes]. most: uint32[1], the largest number of doublings.
  """
  lanes, parts = lanes_of(degree), 4 * degree
  blocks = index.shape[0] // lanes

  def program(b, rows, index, doublings, most, out, memory):
    team, first = Team(b, degree, memory), b.block() * lanes

    def fetch(slot, part):
      row = b.load(index, first + slot)
      return b.when(row.differs(NONE), lambda: load_part(b, rows, row, parts, part), lambda: nothing(b))

    def double_once(k, _):
      team.double(team.addition, k < b.load(doublings, first + team.addition))
      return ()

    def add_neighbours(i, _):
      reach = b.word(lanes // 2) >> i
      active = team.addition < reach
      team.add(team.addition, active.choose(team.addition + reach, team.addition), active)
      return ()

    team.fill(0, lanes, fetch)
    b.barrier()
    b.repeat(b.load(most, 0), (), double_once)
    b.repeat(lanes.bit_length() - 1, (), add_neighbours)
    team.drain(1, lambda slot, part, load: b.when(slot.equals(0), lambda: store_part(b, out, b.block(), parts, part, load().reduced())))
  inputs = [rows.reshape((-1, FP.words)), index, doublings, most]
  return launch(program, inputs, [(blocks * parts, FP.words)], blocks, [SHARED])[0].reshape((blocks, xyzz_words(degree)))


def blocks_of(degree, num_rows):
  """Blocks of `finish` for so many rows."""
  return -(-num_rows // lanes_of(degree))


def lanes_for(degree, index, doublings):
  """Two host arrays [tables, n] with each table's rows filled up to whole blocks, for `finish`."""
  tables, count = index.shape
  width = blocks_of(degree, count) * lanes_of(degree)
  fit = lambda v, value: np.pad(v, ((0, 0), (0, width - count)), constant_values=value).astype(np.uint32).reshape(-1)
  return fit(index, NONE), fit(doublings, 0)
