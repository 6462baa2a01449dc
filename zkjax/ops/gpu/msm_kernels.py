"""The kernels of a multi-scalar multiplication in which every thread works for itself: bucket starts, sums of pieces, multiples.

Arrays of points are rows: affine uint32[rows, 2 d 12], XYZZ uint32[rows, 4 d 12], d = 1 for G1 and 2 for G2, because a random gather of a
point costs nothing if its words lie together.
"""
import numpy as np

from zkjax.ops.gpu import simt
from zkjax.ops.gpu.points import add_mixed, double, from_affine, infinity, load_affine, store_xyzz, xyzz_words
from zkjax.ops.gpu.program import Pair, store_field
from zkjax.ops.limbs import FP

SIGN = 1 << 31                               # of an entry: the point counts negatively
_INVERSION = np.array([int(c) for c in f"{FP.value - 2:b}"], np.uint32)        # bits of the exponent of an inversion in Fp


def digits(scalars, bits, num_windows, num_sets, launch=simt.launch):
  """keys and entries, uint32[num_windows n], window behind window: where the signed digits send each point. One thread a scalar.

  Window w of point i has the key (w mod num_sets) 2^(bits - 1) + |d| - 1, a bucket, or num_sets 2^(bits - 1) if d = 0, and the entry
  (w // num_sets) n + i, a row, with SIGN if d < 0.

  Args: scalars: plain uint32[8, n] below r.
  """
  words, n = scalars.shape
  half, none = 1 << (bits - 1), num_sets << (bits - 1)

  def program(b, scalars, keys, entries):
    i = simt.thread_index(b)

    def cut():
      scalar = [b.load(scalars, k, i) for k in range(words)] + [b.word(0)] * 2
      carry = b.word(0)
      for w in range(num_windows):
        word, offset = divmod(w * bits, 32)
        digit = scalar[word] >> offset
        if offset + bits > 32:
          digit = digit | (scalar[word + 1] << (32 - offset))
        digit = (digit & ((1 << bits) - 1)) + carry
        negative = b.word(half) < digit
        carry = negative.choose(1, 0)
        size = negative.choose((1 << bits) - digit, digit)
        b.store(keys, size.equals(0).choose(none, size + (w % num_sets * half - 1) % (1 << 32)), i + w * n)
        b.store(entries, (i + w // num_sets * n) | (carry << 31), i + w * n)
    b.when(i < n, cut)
  return launch(program, [scalars], [(num_windows * n,)] * 2, simt.blocks_for(n))


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

  Args: order: uint32[T], the pieces in the order in which threads take them, or None. begin, count: uint32[T]. entries: row of points |
  SIGN. points: affine.
  Returns: XYZZ rows of the pieces t < num_buckets, and of the others.
  """
  pieces, words = begin.shape[0], xyzz_words(degree)

  def program(b, begin, count, entries, points, *refs):
    order, first, rest = refs if len(refs) == 3 else (None, *refs)
    i = simt.thread_index(b)

    def entry(position):
      def load():
        name = b.load(entries, position)
        return load_affine(b, points, name & (SIGN - 1), degree, (name >> 31).differs(0))
      return load

    def piece():
      t = i if order is None else b.load(order, i)
      start, length = b.load(begin, t), b.load(count, t)

      def total():
        acc = from_affine(b, degree, *entry(start)())
        return b.repeat(length - 1, acc, lambda k, acc: add_mixed(b, degree, acc, entry(start + k + 1)))
      acc = b.when(length.equals(0), lambda: infinity(b, degree), total)
      b.when(t < num_buckets, lambda: store_xyzz(b, first, t, degree, acc))
      b.when(~(t < num_buckets), lambda: store_xyzz(b, rest, t - num_buckets, degree, acc))
    b.when(i < pieces, piece)
  outputs = [(num_buckets, words), (pieces - num_buckets, words)]
  inputs = [begin, count, entries, points] + ([] if order is None else [order])
  return launch(program, inputs, outputs, simt.blocks_for(pieces))


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


