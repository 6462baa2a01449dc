"""Number-theoretic transforms on the GPU: uint32[P, 8, n], P polynomials at once.

Decimation in frequency, natural order in, bit-reversed out; the inverse runs the same butterflies backwards, bit-reversed in, natural
out. Level k has 2^k blocks of m = n / 2^k: (x_j, x_(j + m/2)) -> (x_j + x_(j + m/2), (x_j - x_(j + m/2)) w^(j n / m)), and backwards (a,
b) -> (a + t, a - t) with
t = b w^(-j n / m). A pass does up to 6 levels: a block of threads holds 2^levels rows of some columns in shared memory, loads and stores
them once, and exchanges them there between pairs of levels. The twiddles of a level lie together, in the order of j, so that neighbouring
threads read neighbouring words.
"""
import functools

import jax.numpy as jnp

from zkjax.ops.bls12_381 import R
from zkjax.ops.field import Fr
from zkjax.ops.gpu import simt, support
from zkjax.ops.gpu.program import Element
from zkjax.ops.limbs import FR

_TILE = 512                                  # elements a block holds: 16 KiB of shared memory, four a thread
_PASS_LEVELS = 6
_SECTOR = 8                                  # words that memory moves at a time


def transform(words, root, shift=1, inverse=False, launch=simt.launch, tables=None):
  """Forward: out[k] = sum_j in[j] (shift root^k)^j, k in bit-reversed order. Inverse: the coefficients, from bit-reversed evaluations.

  Args:
    words: canonical uint32[P, 8, n], n = 2^log2_size. root: of order n. shift: of the coset. Python integers.
    tables: `twiddles` of the root and of its inverse, or None to make what is needed.

  Returns:
    Canonical uint32[P, 8, n].

  Cost: (n / 2) log2 n products; n more on a coset or for an inverse. ceil(log2 n / 6) passes over memory.
  """
  _check(words, root)
  forward, backward = tables or (None, None)
  if not inverse and shift != 1:
    words = _scaled(words, 1, shift, launch)
  words = _network(words, pow(root, -1, R) if inverse else root, inverse, launch, backward if inverse else forward)
  if inverse:
    words = _scaled(words, pow(words.shape[2], -1, R), pow(shift, -1, R), launch)
  return words


def extend(words, root, ratio, launch=simt.launch, tables=None):
  """The values on a coset ratio s <root> of the polynomials with the given values on s <root>, both in natural order.

  Between the two transforms coefficients lie in bit-reversed order, where they are multiplied by ratio^j / n: nothing is permuted.

  Args: words: as `transform`. root, ratio: Python integers. Cost: n log2 n + n products.
  """
  _check(words, root)
  forward, backward = tables or (None, None)
  words = _network(words, pow(root, -1, R), False, launch, backward)
  words = _scaled(words, pow(words.shape[2], -1, R), ratio, launch, reverse=True)
  return _network(words, root, True, launch, forward)


def _check(words, root):
  n = words.shape[2]
  if n & (n - 1) or pow(root, n, R) != 1 or (n > 1 and pow(root, n // 2, R) != R - 1):
    raise ValueError(f"need a power of two of values and a root of that order, got {n} values")
  needed = 2 * words.size * words.dtype.itemsize + 4 * FR.words * n               # what is read, what is written, and the twiddles
  support.require(needed, f"transforms of {words.shape[0]} times {n} values", "free some, or transform fewer at a time")


def _network(words, root, in_time, launch, table=None):
  """All butterflies: decimation in frequency takes natural order to bit-reversed, decimation in time takes it back."""
  log2_size = words.shape[2].bit_length() - 1
  if not log2_size:
    return words
  table = twiddles(root, log2_size, launch) if table is None else table
  levels = [list(range(k, min(k + _PASS_LEVELS, log2_size))) for k in range(0, log2_size, _PASS_LEVELS)]
  for group in reversed(levels) if in_time else levels:
    words = _pass(words, table, log2_size, group[0], len(group), in_time, launch)
  return words


def twiddles(root, log2_size, launch=simt.launch):
  """Montgomery uint32[8, n]: root^(j 2^k), j < n / 2^(k + 1), of level k from n - n / 2^k on; a product of two short tables each."""
  n = 1 << log2_size
  low, high, low_bits = _short_tables(root, n // 2)

  def program(b, low, high, out):
    i = simt.thread_index(b)

    def make():
      half = b.word(n >> 1)                   # the level's number of twiddles: i lies in the last n / 2^k entries
      start, shift = b.word(0), b.word(0)
      for _ in range(log2_size - 1):
        inside = (i - start) < half
        start, shift, half = inside.choose((start, shift, half), (start + half, shift + 1, half >> 1))
      exponent = (i - start) << shift
      power = b.load_limbs(low, FR, exponent & ((1 << low_bits) - 1)) * b.load_limbs(high, FR, exponent >> low_bits)
      b.store_limbs(out, power, i)
    b.when(i < n - 1, make)                    # the levels have n - 1 twiddles together
  return launch(program, [low, high], [(FR.words, n)], simt.blocks_for(n))[0]


def _scaled(words, first, ratio, launch, reverse=False):
  """words[p, :, j] first ratio^j; where j lies at its bit-reversed place if `reverse`. One thread a j: the power serves all p."""
  count, _, n = words.shape
  low, high, low_bits = _short_tables(ratio, n, first, reverse)

  def program(b, x, low, high, out):
    j = simt.thread_index(b)

    def scale():
      factor = b.load_limbs(low, FR, j & ((1 << low_bits) - 1)) * b.load_limbs(high, FR, j >> low_bits)

      def one(p, _):
        value = Element(tuple(b.load(x, p, k, j) for k in range(FR.words)), FR, 1) * factor
        for k, word in enumerate(value.words):
          b.store(out, word, p, k, j)
        return ()
      b.repeat(count, (), one)
    b.when(j < n, scale)
  return launch(program, [words, low, high], [words.shape], simt.blocks_for(n))[0]


def _short_tables(base, count, first=1, reverse=False):
  """low, high, low_bits: first base^j = low[j % 2^low_bits] high[j >> low_bits], for j < count, Montgomery, made on the host.

  reverse: that is the power at the place of j with its bits reversed, for a power of two `count`: the two halves of the bits change places.
  """
  low_bits = ((count - 1).bit_length() + 1) // 2
  low_size = 1 << low_bits
  high_size = -(-count // low_size)
  high_bits = (high_size - 1).bit_length()
  flipped = lambda i, bits: int(f"{i:0{bits}b}"[::-1], 2) if bits else 0
  low = [flipped(i, low_bits) << high_bits if reverse else i for i in range(low_size)]
  high = [flipped(i, high_bits) if reverse else i * low_size for i in range(high_size)]
  table = lambda start, exponents: jnp.asarray(Fr.from_ints([start * pow(base, e, R) % R for e in exponents]).limbs)
  return table(first, low), table(1, high), low_bits


def _pass(words, table, log2_size, first, depth, in_time, launch):
  """Levels first .. first + depth - 1 of every block of size m = n / 2^first.

  Element (row, column) of a block lies at row * (m / 2^depth) + column, and its columns do not meet: a tile is all rows of some columns.
  Two levels at a time are made in registers. The first pair reads from global memory and the last writes there, if columns are many
  enough for threads side by side to do so in whole sectors.
  """
  count, _, n = words.shape
  width = n >> (first + depth)               # columns of a block
  columns = min(width, _TILE >> depth)
  shared_blocks = min(_TILE // (columns << depth), 1 << first)   # blocks side by side in a tile, where columns are few
  tile = (columns << depth) * shared_blocks
  tiles = count * (n // tile)
  direct = columns >= _SECTOR
  steps = [(0, 1)] * (depth % 2) + [(level, 2) for level in range(depth % 2, depth, 2)]
  steps = steps[::-1] if in_time else steps

  def program(b, x, twiddles, out, tile_words):
    t, place = b.thread(), b.block()
    polynomial, index = place // (n // tile), place % (n // tile)
    column_tile, block_tile = (index % (width // columns)) * columns, index // (width // columns) * shared_blocks

    def position(e):
      """Where element e of the tile lies in the polynomial."""
      column, row, block = e % columns, (e // columns) % (1 << depth), e // (columns << depth)
      return ((block_tile + block) << (log2_size - first)) + row * width + column_tile + column

    def from_global(e):
      at = position(e)
      return Element(tuple(b.load(x, polynomial, k, at) for k in range(FR.words)), FR, 1)

    def to_global(e, value):
      at = position(e)
      for k, word in enumerate(value.words):
        b.store(out, word, polynomial, k, at)
    from_tile, to_tile = lambda e: b.load_limbs(tile_words, FR, e), lambda e, value: b.store_limbs(tile_words, value, e)
    if not direct:
      _each(b, t, tile, lambda e: to_tile(e, from_global(e)))
    for s, (level, size) in enumerate(steps):
      if s or not direct:
        b.barrier()
      read = from_global if direct and s == 0 else from_tile
      write = to_global if direct and s == len(steps) - 1 else to_tile
      half = 1 << (depth - 1 - level)         # rows between the partners of the first level

      def butterflies(i, level=level, half=half, size=size, read=read, write=write):
        column, pair = i % columns, i // columns
        reach = half >> (size - 1)            # rows between the elements of this thread
        row = pair % reach
        elements = [(pair // reach * (2 * half) + row + k * reach) * columns + column for k in range(2 * size)]
        at = lambda k, more: (row + k * reach) * width + column_tile + column + (n - (n >> (first + level + more)))
        twiddle = lambda k, more: b.load_limbs(twiddles, FR, at(k, more)) if n >> (first + level + more) > 2 else None
        values = [read(e) for e in elements]
        for e, value in zip(elements, (_two if size == 1 else _four)(values, twiddle, in_time)):
          write(e, value)
      _each(b, t, tile // (2 * size), butterflies)
    if not direct:
      b.barrier()
      _each(b, t, tile, lambda e: to_global(e, from_tile(e)))
  return launch(program, [words, table], [words.shape], tiles, [(FR.words, tile)])[0]


def _each(b, t, count, action):
  """action(i) for i < count, shared out among the threads of a block."""
  for k in range(0, count, simt.THREADS):
    if k + simt.THREADS <= count:
      action(t + k)
    else:
      b.when(t + k < count, functools.partial(action, t + k))


def _two(values, twiddle, in_time):
  """One level of two elements; twiddle(k, 0) belongs to the k-th pair, and None is 1."""
  return _butterfly(*values, twiddle(0, 0), in_time)


def _four(values, twiddle, in_time):
  """Two levels of four elements: partners at distance two with twiddles (k, 0), and neighbours with one twiddle (0, 1)."""
  a, b, c, d = values
  if in_time:
    w = twiddle(0, 1)
    (a, b), (c, d) = _butterfly(a, b, w, True), _butterfly(c, d, w, True)
  (a, c), (b, d) = _butterfly(a, c, twiddle(0, 0), in_time), _butterfly(b, d, twiddle(1, 0), in_time)
  if not in_time:
    w = twiddle(0, 1)
    (a, b), (c, d) = _butterfly(a, b, w, False), _butterfly(c, d, w, False)
  return a, b, c, d


def _butterfly(p, q, w, in_time):
  """(p + q, (p - q) w) in frequency, (p + q w, p - q w) in time."""
  times = lambda v: v if w is None else v * w
  q = times(q) if in_time else q
  return p + q, p - q if in_time else times(p - q)
