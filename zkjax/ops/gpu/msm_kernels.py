"""The kernels of a multi-scalar multiplication: bucket starts, sums of pieces, and what joins them.

Arrays of points are rows: affine uint32[rows, 2 d 12], XYZZ uint32[rows, 4 d 12], d = 1 for G1 and 2 for G2, because a random gather of a
point costs nothing if its words lie together.
"""
import functools

import jax
import numpy as np

from zkjax.ops.gpu import simt
from zkjax.ops.gpu.points import add, add_mixed, double, from_affine, infinity, load_affine, load_xyzz, store_xyzz, sum_of, xyzz_words
from zkjax.ops.gpu.program import Pair, load_field, shared_field, store_field, store_shared
from zkjax.ops.limbs import FP

SIGN = 1 << 31                               # of an entry: the point counts negatively
NONE = 0xffffffff
_BLOCKS_A_CORE = 4
_WARP = 32
_INVERSION = np.array([int(c) for c in f"{FP.value - 2:b}"], np.uint32)        # bits of the exponent of an inversion in Fp


def bucket_starts(keys, num_buckets, launch=simt.launch):
  """uint32[num_buckets + 1]: the first position i with keys[i] >= b, for sorted uint32[entries] keys. One binary search a thread."""
  entries = keys.shape[0]

  def program(b, keys, starts):
    bucket = simt.thread_index(b)

    def search():
      def step(_, bounds):
        low, high = bounds                   # keys before low are smaller, those from high on are not
        middle = (low + high) >> 1
        smaller = b.load(keys, middle.minimum(entries - 1)) < bucket
        open_ = low < high
        return (open_ & smaller).choose(middle + 1, low), (open_ & ~smaller).choose(middle, high)
      low, _ = b.repeat(entries.bit_length(), (b.word(0), b.word(entries)), step)
      b.store(starts, low, bucket)
    b.when(bucket <= num_buckets, search)
  return launch(program, [keys], [(num_buckets + 1,)], simt.blocks_for(num_buckets + 1))[0]


def accumulate(degree, order, begin, count, entries, points, num_buckets, launch=simt.launch):
  """The sums of pieces: piece t sums the points of entries[begin[t] : begin[t] + count[t]]; infinity if that is empty.

  Args: order: uint32[T], the pieces in the order in which threads take them. begin, count: uint32[T]. entries: row of points | SIGN.
  points: affine.
  Returns: XYZZ rows of the pieces t < num_buckets, and of the others.
  """
  pieces, words = order.shape[0], xyzz_words(degree)

  def program(b, order, begin, count, entries, points, first, rest):
    i = simt.thread_index(b)

    def entry(position):
      def load():
        name = b.load(entries, position)
        return load_affine(b, points, name & (SIGN - 1), degree, (name >> 31).differs(0))
      return load

    def piece():
      t = b.load(order, i)
      start, length = b.load(begin, t), b.load(count, t)

      def total():
        acc = from_affine(b, degree, *entry(start)())
        return b.repeat(length - 1, acc, lambda k, acc: add_mixed(b, degree, acc, entry(start + k + 1)))
      acc = b.when(length.equals(0), lambda: infinity(b, degree), total)
      b.when(t < num_buckets, lambda: store_xyzz(b, first, t, degree, acc))
      b.when(~(t < num_buckets), lambda: store_xyzz(b, rest, t - num_buckets, degree, acc))
    b.when(i < pieces, piece)
  outputs = [(num_buckets, words), (pieces - num_buckets, words)]
  return launch(program, [order, begin, count, entries, points], outputs, simt.blocks_for(pieces))


@functools.partial(jax.jit, static_argnums=(0, 5))
def join(degree, rows, place, left, step, launch=simt.launch):
  """One round of adding up lists of rows, `radix` at a time: out[j] = sum of rows[j + k stride], k < radix, inside j's list.

  Row j is number place[j] of its list, in which left[j] rows are left, itself included; 0 where a row is in no list. The rows whose number
  is a multiple of radix * stride take sums, the other rows of `out` are undefined.

  Args: rows: XYZZ. place, left: uint32[rows]. step: uint32[2], stride and radix: data, so that one kernel serves all rounds.
  Returns: XYZZ, canonical.
  """
  num_rows = rows.shape[0]

  def program(b, rows, place, left, step, out):
    j = simt.thread_index(b)

    def take():
      stride, radix = b.load(step, 0), b.load(step, 1)
      count = ((b.load(left, j) + stride - 1) // stride).minimum(radix)

      def total():
        total = sum_of(b, degree, count, lambda k: load_xyzz(b, rows, j + k * stride, degree))
        store_xyzz(b, out, j, degree, total.reduced())
      b.when(count.differs(0) & (b.load(place, j) % (stride * radix)).equals(0), total)
    b.when(j < num_rows, take)
  return launch(program, [rows, place, left, step], [rows.shape], simt.blocks_for(num_rows))[0]


@functools.partial(jax.jit, static_argnums=(0, 4))
def add_selected(degree, rows, others, index, launch=simt.launch):
  """out[j] = rows[index[j]] + others[j]; undefined where index[j] = NONE. XYZZ."""
  count = others.shape[0]

  def program(b, rows, others, index, out):
    j = simt.thread_index(b)

    def one():
      i = b.load(index, j)
      total = lambda: add(b, degree, load_xyzz(b, rows, i, degree), load_xyzz(b, others, j, degree))
      b.when(i.differs(NONE), lambda: store_xyzz(b, out, j, degree, total()))
    b.when(j < count, one)
  return launch(program, [rows, others, index], [others.shape], simt.blocks_for(count))[0]


@functools.partial(jax.jit, static_argnums=(0, 3))
def bit_level(degree, rows, level, launch=simt.launch):
  """One level of the tree that turns bucket sums S_b into S = sum S_b and T_k = sum of the S_b whose index has bit k set.

  A node covers consecutive buckets and has v values S, T_0, ..., at rows value * num_nodes + node. `radix` (2 or 4) children make a node of
  v + log2 radix values: every old value is summed over the children, a new T_k over the children whose own index has that bit.

  Args: level: uint32[3]: number of nodes, v, radix. They are data, not shapes, so that one kernel serves many levels. rows: XYZZ.
  Returns: as many rows, of which the first (nodes / radix) (v + log2 radix) are written.
  """
  blocks = max(1, min(simt.num_cores() * _BLOCKS_A_CORE, simt.blocks_for(rows.shape[0])))

  def program(b, rows, level, out):
    nodes, values, radix = (b.load(level, k) for k in range(3))
    parents = nodes // radix
    total, first = parents * (values + (radix >> 1)), simt.thread_index(b)

    def output(k, _):
      i = first + k * (blocks * simt.THREADS)
      value, parent = i // parents, i % parents
      old, low = value < values, value.equals(values)
      start = parent * radix + old.choose(value * nodes, low.choose(1, 2))
      step = low.choose(2, 1)
      length = old.choose(radix, radix >> 1)
      store_xyzz(b, out, i, degree, sum_of(b, degree, length, lambda c: load_xyzz(b, rows, start + c * step, degree)))
      return ()
    rounds = (first < total).choose((total - first + (blocks * simt.THREADS - 1)) // (blocks * simt.THREADS), 0)
    b.repeat(rounds, (), output)
  return launch(program, [rows, level], [rows.shape], blocks)[0]


@functools.partial(jax.jit, static_argnums=(0, 5))
def doubled(degree, rows, index, doublings, most, launch=simt.launch):
  """out[t] = 2^doublings[t] rows[index[t]], XYZZ. index, doublings: uint32[lanes], lanes a multiple of 32. most: uint32[1], their maximum.

  A chain of doublings is serial, and a product takes a microsecond if nothing else is at work: so three warps share a point, in Jacobian
  coordinates, where a doubling is three products deep (EFD dbl-2009-l for a = 0):
    warp 0: A = X^2,  F = (3A)^2,  X3 = F - 8S, Y3 = 3A (4S - X3) - 8C    warp 1: B = Y^2,  C = B^2    warp 2: Z3 = 2YZ,  S = XB
  XYZZ to Jacobian: (X zz, Y zzz, zz), since zz^3 = zzz^2. Infinity stays: zz = 0.
  """
  lanes, size = index.shape[0], degree * FP.words
  x_, y_, z_, a_, b_, c_, f_, s_ = range(8)

  def program(b, rows, index, doublings, most, out, memory):
    lane, warp = b.thread() & (_WARP - 1), b.thread() >> 5
    t = b.block() * _WARP + lane
    get = lambda name: shared_field(b, memory, name * size, lane, degree)
    put = lambda name, value: store_shared(b, memory, name * size, lane, value)
    coordinate = lambda k: load_field(b, rows, b.load(index, t), k * size, degree)
    in_warp = lambda k, action: b.when(warp.equals(k), action)
    in_warp(0, lambda: put(x_, coordinate(0) * coordinate(2)))
    in_warp(1, lambda: put(y_, coordinate(1) * coordinate(3)))
    in_warp(2, lambda: put(z_, coordinate(2)))
    b.barrier()

    def double_once(k, _):
      in_warp(0, lambda: put(a_, get(x_).square()))
      in_warp(1, lambda: put(b_, get(y_).square()))
      in_warp(2, lambda: b.when(k < b.load(doublings, t), lambda: put(z_, (get(y_) * get(z_)).double())))
      b.barrier()
      in_warp(0, lambda: put(f_, (get(a_).double() + get(a_)).square()))
      in_warp(1, lambda: put(c_, get(b_).square()))
      in_warp(2, lambda: put(s_, get(x_) * get(b_)))
      b.barrier()

      def finish():
        s4, c8, a = get(s_).double().double(), get(c_).double().double().double(), get(a_)
        x3 = get(f_) - s4.double()
        put(x_, x3)
        put(y_, (a.double() + a) * (s4 - x3) - c8)
      in_warp(0, lambda: b.when(k < b.load(doublings, t), finish))
      b.barrier()
      return ()
    b.repeat(b.load(most, 0), (), double_once)
    in_warp(0, lambda: store_field(b, out, t, 0, get(x_)))
    in_warp(1, lambda: store_field(b, out, t, size, get(y_)))

    def store_z():
      zz = get(z_).square()
      store_field(b, out, t, 2 * size, zz)
      store_field(b, out, t, 3 * size, zz * get(z_))
    in_warp(2, store_z)
  inputs = [rows, index, doublings, most]
  return launch(program, inputs, [(lanes, xyzz_words(degree))], lanes // _WARP, [(8 * size, _WARP)])[0]


def scaled_points(degree, points, log2_factor, launch=simt.launch):
  """2^k P, canonical affine rows, for affine rows. log2_factor: uint32[1]. One Fermat inversion a point: for tables that are made once."""
  num_points = points.shape[0]

  def program(b, points, log2_factor, exponent, out):
    i = simt.thread_index(b)

    def scale():
      p = from_affine(b, degree, *load_affine(b, points, i, degree, b.word(0).differs(0)))
      _store_affine(b, out, i, degree, b.repeat(b.load(log2_factor, 0), p, lambda _, q: double(q)), exponent)
    b.when(i < num_points, scale)
  return launch(program, [points, log2_factor, _INVERSION], [points.shape], simt.blocks_for(num_points))[0]


def sums_of_entries(degree, table, scalars, launch=simt.launch):
  """Canonical affine rows of sum_w table[256 w + byte w of the scalar], w < 32: multiples of one point. scalars: plain uint32[8, n]."""
  count = scalars.shape[1]

  def program(b, table, scalars, exponent, out):
    i = simt.thread_index(b)

    def entry(w):
      byte = (b.load(scalars, w >> 2, i) >> ((w & 3) << 3)) & 255
      return load_affine(b, table, (w << 8) + byte, degree, b.word(0).differs(0))

    def total():
      acc = b.repeat(31, from_affine(b, degree, *entry(b.word(0))), lambda w, acc: add_mixed(b, degree, acc, lambda: entry(w + 1)))
      _store_affine(b, out, i, degree, acc, exponent)
    b.when(i < count, total)
  return launch(program, [table, scalars, _INVERSION], [(count, table.shape[1])], simt.blocks_for(count))[0]


def _store_affine(b, out, i, degree, p, exponent):
  """Stores p as a canonical affine row.

  1 / zz = (zz / zzz)^2, because zz^3 = zzz^2. An infinite point becomes (0, 0): the inverse of 0 is 0.
  """
  inverse = _inverse(b, p.zzz, exponent, len(_INVERSION))
  x, y = (p.x * (p.zz * inverse).square()).reduced(), (p.y * inverse).reduced()
  store_field(b, out, i, 0, x)
  store_field(b, out, i, degree * FP.words, y)


def _inverse(b, value, bits, num_bits):
  """1 / value, 0 for 0: value^(p - 2) in Fp, conjugate / norm in Fp2."""
  if isinstance(value, Pair):
    inverse = _inverse(b, value.c0 * value.c0 + value.c1 * value.c1, bits, num_bits)
    return Pair(value.c0 * inverse, -value.c1 * inverse)

  def step(k, acc):
    acc = acc.square()
    return b.when(b.load(bits, k + 1).equals(0), lambda: acc, lambda: acc * value)
  return b.repeat(num_bits - 1, value, step)


