"""Modular arithmetic on whole arrays of 32-bit words: slower at a product than the unrolled limbs of `limbs`, a third of it to compile.

Values are uint32[words, *batch], little-endian, below the modulus; products are Montgomery's with R = 2^(32 words). Nothing is unrolled
over the words: carries are resolved in all words at once, and a product is two loops over the limbs of one factor. Formulas with many
operations are compiled from these; loops that run long are written with `limbs.Lazy`.
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def mul(modulus, a, b):
  """a b / R mod modulus, both of the same shape.

  With a shifted left by 2^shift = R' / R the Montgomery reduction by R' of limbs gives the product reduced by R. Columns of products stay
  below num * 2^(2 bits + 1) < 2^63. The result is below 2 modulus because 2^shift modulus / R' = modulus / R < 1: one subtraction makes it
  canonical.
  """
  with jax.enable_x64(True):
    num, bits, rows = modulus.num, np.uint64(modulus.bits), (np.int32(0), np.int32(modulus.num))
    x, y, m = _split(modulus, a, modulus.shift), _split(modulus, b, 0), _column(np.uint32(modulus.limbs), a)
    wide = lambda v: v.astype(jnp.uint64)

    def product_row(i, columns):
      """Adds x_i y 2^(bits i)."""
      row = lax.dynamic_slice_in_dim(columns, i, num, 0) + wide(x[i]) * wide(y)
      return lax.dynamic_update_slice_in_dim(columns, row, i, 0)

    def reduction_row(i, columns):
      """Adds the multiple of the modulus that clears limb i, and carries the rest of column i into the next."""
      low = columns[i]
      q = (low.astype(jnp.uint32) * np.uint32(modulus.negative_inverse)) & np.uint32(modulus.mask)
      carry = (low + wide(q) * np.uint64(modulus.limbs[0])) >> bits
      row = lax.dynamic_slice_in_dim(columns, i, num, 0) + wide(q) * wide(m) + _moved(carry[None], 1, num)
      return lax.dynamic_update_slice_in_dim(columns, row, i, 0)
    columns = lax.fori_loop(*rows, product_row, jnp.zeros((2 * num,) + a.shape[1:], jnp.uint64))
    columns = lax.fori_loop(*rows, reduction_row, columns)
    return _below_modulus(modulus, _join(modulus, columns[num:]))


def add(modulus, a, b):
  """a + b mod modulus. 2 modulus fits the words, so that no carry leaves them."""
  total = a + b
  carries = _chain(total < a, total == np.uint32(0xffffffff))
  return _below_modulus(modulus, total + _bits(carries, total))


def sub(modulus, a, b):
  """a - b mod modulus: the modulus is added where the subtraction borrows."""
  difference, borrows = a - b, _chain(a < b, a == b)
  difference = difference - _bits(borrows, difference)
  return _ripple(difference, jnp.where(_out(modulus, borrows), _modulus(modulus, a), np.uint32(0)))


def _ripple(a, b):
  """a + b, carries resolved; the carry out of the last word is dropped."""
  total = a + b
  return total + _bits(_chain(total < a, total == np.uint32(0xffffffff)), total)


def _below_modulus(modulus, value):
  """value mod modulus for a value below twice the modulus: one conditional subtraction."""
  words = _modulus(modulus, value)
  borrows = _chain(value < words, value == words)
  return jnp.where(_out(modulus, borrows), value, value - words - _bits(borrows, value))


def _chain(generates, passes):
  """uint32[*batch]: bit i is the carry or borrow into word i, bit `words` the one out of the last.

  A word generates a carry where it wraps around and passes one on where it is all ones (a borrow: where less, where equal), never both. As
  masks with one bit a word, the carries are (2 generates + passes) ^ passes: the integer addition walks the same chain.
  """
  places = _column(np.arange(generates.shape[0], dtype=np.uint32), generates)
  mask = lambda bits: jnp.sum(bits.astype(jnp.uint32) << places, axis=0, dtype=jnp.uint32)
  generates, passes = mask(generates), mask(passes)
  return (generates + generates + passes) ^ passes


def _bits(mask, like):
  """uint32[words, *batch] of zeros and ones: bit i of the mask for word i."""
  return (mask >> _column(np.arange(like.shape[0], dtype=np.uint32), like)) & np.uint32(1)


def _out(modulus, mask):
  return (mask >> np.uint32(modulus.words)) != 0


def _modulus(modulus, like):
  return _column(np.array([modulus.value >> 32 * i & 0xffffffff for i in range(modulus.words)], np.uint32), like)


def _column(values, like):
  """One value a row, shaped to broadcast over the batch."""
  return np.asarray(values).reshape((-1,) + (1,) * (like.ndim - 1))


def _moved(rows, by, num):
  """The rows moved up by `by` places among `num`; those that leave at the top are dropped."""
  kept = rows[:num - by]
  return jnp.pad(kept, ((by, num - by - kept.shape[0]),) + ((0, 0),) * (rows.ndim - 1))


def _split(modulus, words, shift):
  """uint32[num, *batch]: limbs of `bits` bits of the value times 2^shift, the last one with all that is left."""
  word, offset = np.divmod(modulus.bits * np.arange(modulus.num) - shift, 32)
  padded = jnp.pad(words, ((1, 2),) + ((0, 0),) * (words.ndim - 1))     # a shift by 32 gives 0 in XLA
  low = padded[np.clip(word + 1, 0, modulus.words + 1)] >> _column(offset.astype(np.uint32), words)
  high = padded[np.clip(word + 2, 0, modulus.words + 1)] << _column((32 - offset).astype(np.uint32), words)
  mask = np.full(modulus.num, modulus.mask, np.uint32)
  mask[-1] = 0xffffffff
  return (low | high) & _column(mask, words)


def _join(modulus, columns):
  """uint32[words, *batch] of the value sum columns[k] 2^(bits k) < 2^(32 words), for uint64 columns below 2^63.

  Every column is cut into three limbs; the sum of those of one place is below 3 * 2^bits < 2^31. Two of them at most start in one word:
  their sum is below 2^63, its high half goes to the next word, and what then overflows is one bit a word.
  """
  num, words, bits, mask = modulus.num, modulus.words, np.uint64(modulus.bits), np.uint64(modulus.mask)
  thirds = (columns & mask, (columns >> bits) & mask, columns >> (bits + bits))
  limbs = thirds[0] + _moved(thirds[1], 1, num) + _moved(thirds[2], 2, num)
  word, offset = np.divmod(modulus.bits * np.arange(num), 32)
  first, last = (np.searchsorted(word, np.arange(words), side) for side in ("left", "right"))
  placed = limbs << _column(offset.astype(np.uint64), limbs)
  total = placed[first] + jnp.where(_column(last - first == 2, limbs), placed[last - 1], np.uint64(0))
  half = np.uint64(32)
  total = (total & np.uint64(0xffffffff)) + _moved(total >> half, 1, words)
  return _ripple(total.astype(jnp.uint32), _moved((total >> half).astype(jnp.uint32), 1, words))
