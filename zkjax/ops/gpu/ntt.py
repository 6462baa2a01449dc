"""Number-theoretic transforms on the GPU: uint32[P, 8, n], P polynomials at once.

Decimation in frequency, natural order in, bit-reversed out; the inverse runs the same butterflies backwards, bit-reversed in, natural
out. Level k has 2^k blocks of m = n / 2^k: (x_j, x_(j + m/2)) -> (x_j + x_(j + m/2), (x_j - x_(j + m/2)) w^(j n / m)), and backwards (a,
b) -> (a + t, a - t) with
t = b w^(-j n / m). A pass does up to 6 levels: a block of threads holds 2^levels rows of some columns in shared memory, loads and stores
them once, and exchanges them there between levels. The twiddles of a level lie together, in the order of j, so that neighbouring threads
read neighbouring words.
"""
import functools

import jax.numpy as jnp

from zkjax.ops.bls12_381 import R
from zkjax.ops.field import Fr
from zkjax.ops.gpu import field, simt
from zkjax.ops.limbs import FR

_TILE = 512                                  # elements a block holds: 16 KiB of shared memory, four a thread
_PASS_LEVELS = 6


def transform(words, root, shift=1, inverse=False, launch=simt.launch):
  """Forward: out[k] = sum_j in[j] (shift root^k)^j, k in bit-reversed order. Inverse: the coefficients, from bit-reversed evaluations.

  Args:
    words: canonical uint32[P, 8, n], n = 2^log2_size. root: of order n. shift: of the coset. Python integers.

  Returns:
    Canonical uint32[P, 8, n].

  Cost: (n / 2) log2 n products; n more on a coset or for an inverse. ceil(log2 n / 6) passes over memory.
  """
  n = words.shape[2]
  log2_size = n.bit_length() - 1
  if n != 1 << log2_size or pow(root, n, R) != 1 or (n > 1 and pow(root, n // 2, R) != R - 1):
    raise ValueError(f"need a power of two of values and a root of that order, got {n} values")
  base = pow(root, -1, R) if inverse else root
  if not inverse and shift != 1:
    words = _scaled(words, 1, shift, launch)
  if log2_size:
    powers = _powers(base, n // 2, launch)
    table = jnp.concatenate([powers[:, ::1 << k] for k in range(log2_size)], 1)   # level k from n - n / 2^k on
    levels = [list(range(k, min(k + _PASS_LEVELS, log2_size))) for k in range(0, log2_size, _PASS_LEVELS)]
    for group in reversed(levels) if inverse else levels:
      words = _pass(words, table, log2_size, group[0], len(group), inverse, launch)
  if inverse:
    words = _scaled(words, pow(n, -1, R), pow(shift, -1, R), launch)
  return words


def _scaled(words, first, ratio, launch):
  """words[p, :, j] * first ratio^j."""
  count, _, n = words.shape
  factors = _powers(ratio, n, launch, first)
  flat = jnp.moveaxis(words, 1, 0).reshape((FR.words, count * n))
  return jnp.moveaxis(field.mul(FR, flat, jnp.tile(factors, (1, count)), launch).reshape((FR.words, count, n)), 0, 1)


def _powers(base, count, launch, first=1):
  """Montgomery uint32[8, count]: first base^j, as products of two short tables that are made on the host."""
  low_size = 1 << ((count - 1).bit_length() + 1) // 2
  table = lambda start, ratio, size: jnp.asarray(Fr.from_ints([start * pow(ratio, i, R) % R for i in range(size)]).limbs)
  low, high = table(first, base, low_size), table(1, pow(base, low_size, R), -(-count // low_size))
  shape = (FR.words, high.shape[1], low_size)
  product = field.mul(FR, jnp.broadcast_to(high[:, :, None], shape), jnp.broadcast_to(low[:, None], shape), launch)
  return product.reshape((FR.words, -1))[:, :count]


def _pass(words, table, log2_size, first, depth, inverse, launch):
  """Levels first .. first + depth - 1 of every block of size m = n / 2^first.

  Element (row, column) of a block lies at row * (m / 2^depth) + column, and its columns do not meet: a tile is all rows of some columns.
  """
  count, _, n = words.shape
  width = n >> (first + depth)               # columns of a block
  columns = min(width, _TILE >> depth)
  shared_blocks = min(_TILE // (columns << depth), 1 << first)   # blocks side by side in a tile, where columns are few
  tile = (columns << depth) * shared_blocks
  tiles = count * (n // tile)

  def program(b, x, twiddles, out, tile_words):
    t, place = b.thread(), b.block()
    polynomial, index = place // (n // tile), place % (n // tile)

    def position(e):
      """Where element e of the tile lies in the polynomial, and its column in the block."""
      column, row, block = e % columns, (e // columns) % (1 << depth), e // (columns << depth)
      column_tile, block_tile = index % (width // columns), index // (width // columns)
      column = column_tile * columns + column
      return ((block_tile * shared_blocks + block) << (log2_size - first)) + row * width + column, column
    per_thread = -(-tile // simt.THREADS)
    each = lambda action: [b.when(t + k * simt.THREADS < tile, functools.partial(action, t + k * simt.THREADS)) for k in range(per_thread)]
    load = lambda e: [b.store(tile_words, b.load(x, polynomial, k, position(e)[0]), k, e) for k in range(FR.words)]
    each(load)
    order = list(range(depth))
    for level in reversed(order) if inverse else order:
      b.barrier()
      _level(b, tile_words, twiddles, t, tile, columns, depth, level, first, lambda e: position(e)[1], width, inverse)
    b.barrier()
    each(lambda e: [b.store(out, b.load(tile_words, k, e), polynomial, k, position(e)[0]) for k in range(FR.words)])
  return launch(program, [words, table], [words.shape], tiles, [(FR.words, tile)])[0]


def _level(b, tile_words, twiddles, t, tile, columns, depth, level, first, column_of, width, inverse):
  """The butterflies of one level on the tile: rows row and row + half, where half = 2^(depth - 1 - level) rows."""
  half = 1 << (depth - 1 - level)            # j = row width + column in a sub-block of 2 half width elements
  table_start = (2 * half * width << (first + level)) - 2 * half * width
  element = lambda e: b.load_limbs(tile_words, FR, e)
  for k in range(-(-(tile // 2) // simt.THREADS)):
    i = t + k * simt.THREADS

    def butterfly(i=i):
      column, pair = i % columns, i // columns
      row = pair % half
      low = ((pair // half * (2 * half)) + row) * columns + column
      high = low + half * columns
      w = b.load_limbs(twiddles, FR, row * width + column_of(low) + table_start)
      p, q = element(low), element(high)
      if inverse:
        q = q * w
      top, bottom = p + q, p - q
      b.store_limbs(tile_words, top, low)
      b.store_limbs(tile_words, bottom if inverse else bottom * w, high)
    b.when(i < tile // 2, butterfly)
