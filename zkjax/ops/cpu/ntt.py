"""Number-theoretic transforms in plain jnp, in loops over rows of lanes that stay in the L1 cache of a CPU. Right on every platform.

The coefficients j = j1 n2 + j2 form a matrix of n1 rows and n2 lanes (four-step method: Bailey 1990). With k = k1 + n1 k2 and a root w,

  X(k) = sum_j2 w^(k1 j2) s^j2 w_n2^(j2 k2) ( sum_j1 x(j1, j2) (s^n2)^j1 w_n1^(j1 k1) ),

a transform of the columns on the coset s^n2 <w_n1>, a product with (s w^k1)^j2, a transposition and a transform of the columns again. The last
one leaves k2 in the rows and k1 in the lanes: natural order.

A transform of columns splits polynomials: f mod (X^2M - c^2) into f mod (X^M - c) = low + c high and f mod (X^M + c) = low - c high
(Cooley and Tukey 1965), so a coset costs nothing. Constant geometry (Pease 1968): a stage reads rows i and i + m/2 and writes rows
2i and 2i + 1, and the m results come in bit-reversed order. Two stages a loop step (radix 4).

Between the steps values are `Lazy` limbs, uint32[9, lanes], in the Montgomery form of the caller (R = 2^256): only the twiddles are in the inner
form (R' = 2^261), so x * twiddle keeps the form of x. The bounds of a butterfly grow by a constant, and its product brings them back.
"""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from zkjax.ops import limbs
from zkjax.ops.limbs import FR, Lazy

R = FR.value
LANES = 256                                  # lanes of a loop step: a multiple of the vector width, and the step's values stay in L1


def transform(words, root, shift, scale, ratio):
  """Returns sum_j words[j] (shift root^k)^j * scale * ratio^k for all k: uint32[P, 8, n] to uint32[P, 8, n], both in natural order.

  root (of order n), shift, scale and ratio are Python integers mod r.
  """
  with jax.enable_x64(True):
    batch, _, n = words.shape
    log2_size = n.bit_length() - 1
    log2_rows = log2_size if log2_size < 6 else log2_size // 2 & ~1      # radix 4 throughout when log2_size is even
    num_rows = 1 << log2_rows
    num_lanes = n // num_rows
    x = jnp.stack(limbs.unpack(FR, [words[:, i].reshape(batch, num_rows, num_lanes) for i in range(FR.words)]).limbs, 2)
    x, bound = _transform_columns(x, 1, pow(root, num_lanes, R), pow(shift, num_lanes, R))
    x = x[:, reversed_bits(log2_rows)]                                  # [P, k1, 9, j2]
    if num_lanes > 1:
      x = x.transpose(0, 3, 2, 1)                                       # [P, j2, 9, k1]
      start = _powers(ratio, num_rows, scale)
      x = _scale_rows(x, bound, start, _powers(root, num_rows, shift))
      x, bound = _transform_columns(x, 2, pow(root, num_rows, R), 1)
      x = x[:, reversed_bits(log2_size - log2_rows)]                    # [P, k2, 9, k1]
      scale, ratio = 1, pow(ratio, num_rows, R)
    if scale != 1 or ratio != 1:
      x, bound = _scale_rows(x, bound, [scale] * x.shape[3], [ratio] * x.shape[3]), 2
    return _canonical_rows(x, bound).transpose(0, 2, 1, 3).reshape(batch, FR.words, n)


def reversed_bits(num_bits):
  """int32[2^num_bits]: i to the number with the num_bits bits of i in the opposite order."""
  index = np.zeros(1, np.int32)
  for _ in range(num_bits):
    index = np.concatenate([2 * index, 2 * index + 1])
  return index


def _transform_columns(x, bound, root, shift):
  """sum_j x[:, j] (shift root^k)^j in row reversed(k), lane by lane, for x[P, m, 9, lanes] below bound * r: (array, its bound)."""
  batch, num_rows, num, total = x.shape
  lanes = min(total, LANES)
  blocks = x.reshape(batch, num_rows, num, total // lanes, lanes).transpose(0, 3, 1, 2, 4).reshape(-1, num_rows, num, lanes)
  log2_rows = num_rows.bit_length() - 1
  table = _twiddles(log2_rows, root, shift)
  first = log2_rows % 2                      # one stage alone where their number is odd, then two at a time
  if first:
    blocks, bound = _stage(blocks, bound, jnp.asarray(table[0]), 1, 1)
  if log2_rows > 1:
    pairs = [np.stack([table[s][i % (1 << s)] for i in range(num_rows // 4)]) for s in range(first, log2_rows, 2)]
    del pairs
    blocks, bound = _paired_stages(blocks, bound, table, first)
  out = blocks.reshape(batch, total // lanes, num_rows, num, lanes).transpose(0, 2, 3, 1, 4).reshape(x.shape)
  return out, bound
