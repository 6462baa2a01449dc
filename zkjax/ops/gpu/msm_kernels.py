"""The kernels of a multi-scalar multiplication: bucket starts, sums of pieces, and what joins them.

Arrays of points are rows: affine uint32[rows, 2 d 12], XYZZ uint32[rows, 4 d 12], d = 1 for G1 and 2 for G2, because a random gather of a
point costs nothing if its words lie together.
"""
import numpy as np

from zkjax.ops.gpu import simt
from zkjax.ops.gpu.points import add, add_mixed, double, from_affine, infinity, load_affine, load_xyzz, store_xyzz, sum_of, xyzz_words
from zkjax.ops.gpu.program import Pair, store_field
from zkjax.ops.limbs import FP

SIGN = 1 << 31                               # of an entry: the point counts negatively
NONE = 0xffffffff
_BLOCKS_A_CORE = 4


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


def strided_sums(degree, rows, stride, count, launch=simt.launch):
  """out[j] = sum of rows[j + k stride] for k < count[j]; not written where count[j] = 0. rows: XYZZ. stride: uint32[1]. count:
  uint32[rows]."""
  def program(b, rows, stride, count, out):
    j = simt.thread_index(b)

    def join():
      length, step = b.load(count, j), b.load(stride, 0)
      total = lambda: sum_of(b, degree, length, lambda k: load_xyzz(b, rows, j + k * step, degree))
      b.when(length.differs(0), lambda: store_xyzz(b, out, j, degree, total()))
    b.when(j < rows_count, join)
  rows_count = rows.shape[0]
  return launch(program, [rows, stride, count], [rows.shape], simt.blocks_for(rows_count))[0]


def add_selected(degree, rows, others, index, launch=simt.launch):
  """out[i] = rows[i] + others[index[i]], or rows[i] where index[i] = NONE. XYZZ."""
  def program(b, rows, others, index, out):
    i = simt.thread_index(b)

    def one():
      p, k = load_xyzz(b, rows, i, degree), b.load(index, i)
      total = b.when(k.equals(NONE), lambda: p, lambda: add(b, degree, p, load_xyzz(b, others, k, degree)))
      store_xyzz(b, out, i, degree, total)
    b.when(i < num_rows, one)
  num_rows = rows.shape[0]
  return launch(program, [rows, others, index], [rows.shape], simt.blocks_for(num_rows))[0]


def bit_level(degree, rows, level, out_rows, launch=simt.launch):
  """One level of the tree that turns bucket sums S_b into S = sum S_b and T_k = sum of the S_b whose index has bit k set.

  A node covers consecutive buckets and has v values S, T_0, ..., at rows value * num_nodes + node. `radix` (2 or 4) children make a node of
  v + log2 radix values: every old value is summed over the children, a new T_k over the children whose own index has that bit.

  Args: level: uint32[3]: number of nodes, v, radix. They are data, not shapes, so that one kernel serves many levels. rows: XYZZ.
  Returns: `out_rows` rows, of which the first (nodes / radix) (v + log2 radix) are written.
  """
  blocks = max(1, min(simt.num_cores() * _BLOCKS_A_CORE, simt.blocks_for(out_rows)))

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
  return launch(program, [rows, level], [(out_rows, rows.shape[1])], blocks)[0]


def horner(degree, rows, index, doublings, length, launch=simt.launch):
  """out[t] = (...(2^d_1 (2^d_0 O + P_0) + P_1)...), P_k = rows[index[k, t]], d_k = doublings[k, t], k < length[t]: canonical XYZZ rows.

  Args: rows: XYZZ. index, doublings: uint32[steps, lanes]. length: uint32[lanes], at least 1; lanes is a multiple of the block size.
  """
  lanes = length.shape[0]

  def program(b, rows, index, doublings, length, out):
    t = simt.thread_index(b)
    term = lambda k: load_xyzz(b, rows, b.load(index, k, t), degree)

    def step(k, acc):
      acc = b.repeat(b.load(doublings, k + 1, t), acc, lambda _, p: double(p))
      return add(b, degree, acc, term(k + 1))
    acc = b.repeat(b.load(length, t) - 1, term(b.word(0)), step)
    store_xyzz(b, out, t, degree, acc.reduced())
  return launch(program, [rows, index, doublings, length], [(lanes, xyzz_words(degree))], simt.blocks_for(lanes))[0]


def scaled_points(degree, points, log2_factor, launch=simt.launch):
  """2^k P, canonical affine rows, for affine rows. log2_factor: uint32[1]. One Fermat inversion a point: for tables that are made once.

  1 / zz = (zz / zzz)^2, because zz^3 = zzz^2. An infinite point stays (0, 0): the inverse of 0 is 0.
  """
  num_points = points.shape[0]
  exponent = np.array([int(c) for c in f"{FP.value - 2:b}"], np.uint32)

  def program(b, points, log2_factor, bits, out):
    i = simt.thread_index(b)

    def scale():
      zero = b.word(0)
      p = from_affine(b, degree, *load_affine(b, points, i, degree, zero.differs(0)))
      p = b.repeat(b.load(log2_factor, 0), p, lambda _, q: double(q))
      inverse = _inverse(b, p.zzz, bits, len(exponent))
      x, y = (p.x * (p.zz * inverse).square()).reduced(), (p.y * inverse).reduced()
      store_field(b, out, i, 0, x)
      store_field(b, out, i, degree * FP.words, y)
    b.when(i < num_points, scale)
  return launch(program, [points, log2_factor, exponent], [points.shape], simt.blocks_for(num_points))[0]


def _inverse(b, value, bits, num_bits):
  """1 / value, 0 for 0: value^(p - 2) in Fp, conjugate / norm in Fp2."""
  if isinstance(value, Pair):
    inverse = _inverse(b, value.c0 * value.c0 + value.c1 * value.c1, bits, num_bits)
    return Pair(value.c0 * inverse, -value.c1 * inverse)

  def step(k, acc):
    acc = acc.square()
    return b.when(b.load(bits, k + 1).equals(0), lambda: acc, lambda: acc * value)
  return b.repeat(num_bits - 1, value, step)


