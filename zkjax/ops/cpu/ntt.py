"""Number-theoretic transforms in plain jnp, in loops over rows of lanes that stay in the L1 cache of a CPU. Right on every platform.

The coefficients j = j1 n2 + j2 form a matrix of n1 rows and n2 lanes (four-step method: Bailey 1990). With k = k1 + n1 k2 and a root w,

  X(k) = sum_j2 w^(k1 j2) s^j2 w_n2^(j2 k2) ( sum_j1 x(j1, j2) (s^n2)^j1 w_n1^(j1 k1) ),

a transform of the columns on the coset s^n2 <w_n1>, a product with (s w^k1)^j2, a transposition and a transform of the columns again. The
last one leaves k2 in the rows and k1 in the lanes: natural order.

A transform of columns splits polynomials: f mod (X^2M - c^2) into f mod (X^M - c) = low + c high and f mod (X^M + c) = low - c high
(Cooley and Tukey 1965), so a coset costs nothing. Constant geometry (Pease 1968): a stage reads rows i and i + m/2 and writes rows
2i and 2i + 1, and the m results come in bit-reversed order. Two stages a loop step (radix 4).

Between the steps values are `Lazy` limbs, uint32[9, lanes], in the Montgomery form of the caller (R = 2^256): only the twiddles are in
the inner form (R' = 2^261), so x * twiddle keeps the form of x. A butterfly adds a constant to the bound of
its operands, so that the stages of a transform need no reduction in between.
"""
import functools
from fractions import Fraction
from typing import NamedTuple, Optional

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from zkjax.ops import limbs
from zkjax.ops.limbs import FR, Lazy

R = FR.value
GROWTH = 2                                   # of the bound in multiples of r, a butterfly level; checked while tracing
SCALED = 2                                   # bound of a product with a factor below SCALED * r; checked while tracing
CARRIED = FR.mask + 8                        # the largest low limb between loop steps
LANES = 256                                  # lanes of a loop step: a multiple of the vector width, and the step's values stay in L1


class Columns(NamedTuple):
  """Twiddles of a transform of columns: of the first stage alone, if the number of stages is odd, and of pairs of stages, by step."""
  single: Optional[np.ndarray]               # uint32[1, 1, 9]
  pairs: Optional[np.ndarray]                # uint32[pairs, m / 4, 3, 9]


class Factors(NamedTuple):
  """Row j is scaled by start * ratio^j, lane by lane: uint32[9, lanes], or one lane for all."""
  start: np.ndarray
  ratio: np.ndarray


class Plan(NamedTuple):
  """Everything about a transform but its size: arrays, so that one compilation serves all transforms of a size. See `plan`."""
  first: Columns
  between: Optional[Factors]
  second: Optional[Columns]
  last: Optional[Factors]


@functools.lru_cache(maxsize=32)
def plan(log2_size, root, shift=1, scale=1, ratio=1):
  """The Plan of x to sum_j x[j] (shift root^k)^j * scale * ratio^k, k < n. Integers mod r; root has order n = 2^log2_size."""
  log2_rows = _log2_rows(log2_size)
  num_rows, num_lanes = 1 << log2_rows, 1 << (log2_size - log2_rows)
  first = _columns(log2_rows, pow(root, num_lanes, R), pow(shift, num_lanes, R))
  if num_lanes == 1:
    return Plan(first, None, None, None if scale == ratio == 1 else Factors(_limbs([scale]), _limbs([ratio])))
  between = Factors(_limbs(_powers(ratio, num_rows, scale)), _limbs(_powers(root, num_rows, shift)))
  second = _columns(log2_size - log2_rows, pow(root, num_rows, R), 1)
  return Plan(first, between, second, None if ratio == 1 else Factors(_limbs([1]), _limbs([pow(ratio, num_rows, R)])))


@jax.jit
def transform(words, plan):
  """The transform that `plan` describes, of uint32[P, 8, n] canonical words to the same, both in natural order."""
  with jax.enable_x64(True):
    batch, _, n = words.shape
    log2_size = n.bit_length() - 1
    num_rows = 1 << _log2_rows(log2_size)
    x = jnp.stack(limbs.unpack(FR, [words[:, i].reshape(batch, num_rows, -1) for i in range(FR.words)]).limbs, 2)
    x, bound = _transform_columns(x, 1, plan.first)                    # [P, k1 reversed, 9, j2]
    if plan.second is not None:
      x = x[:, reversed_bits(_log2_rows(log2_size))].transpose(0, 3, 2, 1)
      x, bound = _transform_columns(_scale_rows(x, bound, plan.between), SCALED, plan.second)   # [P, k2 reversed, 9, k1]
    x = x[:, reversed_bits(x.shape[1].bit_length() - 1)]
    if plan.last is not None:
      x, bound = _scale_rows(x, bound, plan.last), SCALED
    return _canonical_rows(x, bound).transpose(0, 2, 1, 3).reshape(words.shape)


def reversed_bits(num_bits):
  """int32[2^num_bits]: i to the number with the num_bits bits of i in the opposite order."""
  index = np.zeros(1, np.int32)
  for _ in range(num_bits):
    index = np.concatenate([2 * index, 2 * index + 1])
  return index


def _log2_rows(log2_size):
  """Half of the stages, an even number of them, so that both passes take two at a time if log2_size is even; all if there are few."""
  return log2_size if log2_size < 6 else log2_size // 2 & ~1


def _columns(log2_rows, root, shift):
  """Entry b of stage s is (shift root^k)^(m / 2^(s + 1)), k = b with its s bits reversed; step i of the stage uses entry i mod 2^s."""
  stages = []
  for s in range(log2_rows):
    exponent = 1 << (log2_rows - s - 1)
    stages.append(_limbs(_powers(pow(root, exponent, R), 1 << s, pow(shift, exponent, R))).T[reversed_bits(s)])
  pairs = []
  for s in range(log2_rows % 2, log2_rows, 2):
    entry = np.arange(1 << (log2_rows - 2)) % (1 << s)
    pairs.append(np.stack([stages[s][entry], stages[s + 1][2 * entry], stages[s + 1][2 * entry + 1]], 1))
  return Columns(stages[0][None] if log2_rows % 2 else None, np.stack(pairs) if pairs else None)


def _powers(base, count, first=1):
  """[first * base^i mod r for i < count]."""
  out = [first % R]
  for _ in range(count - 1):
    out.append(out[-1] * base % R)
  return out


def _limbs(values):
  """uint32[9, len(values)]: limbs of integers in the inner Montgomery form."""
  return np.array([FR.split(v * FR.radix % R) for v in values], np.uint32).T


def _transform_columns(x, bound, columns):
  """The transform of the columns of x[P, m, 9, lanes], below bound * r, into bit-reversed rows: (array, its bound)."""
  batch, num_rows, num, total = x.shape
  lanes = min(total, LANES)
  x = x.reshape(batch, num_rows, num, total // lanes, lanes).transpose(0, 3, 1, 2, 4).reshape(-1, num_rows, num, lanes)
  if columns.single is not None:
    x, bound = _stage(x, bound, jnp.asarray(columns.single), 1), bound + GROWTH
  if columns.pairs is not None:
    highest = bound + 2 * GROWTH * (len(columns.pairs) - 1)
    x = lax.scan(lambda v, table: (_stage(v, highest, table, 2), None), x, jnp.asarray(columns.pairs))[0]
    bound = highest + 2 * GROWTH
  return x.reshape(batch, total // lanes, num_rows, num, lanes).transpose(0, 2, 3, 1, 4).reshape(batch, num_rows, num, total), bound


def _stage(x, bound, table, depth):
  """`depth` stages at once: step i reads rows i + q m / 2^depth of a block, writes rows 2^depth i + q. table: [steps, 2^depth - 1, 9]."""
  count, num_rows, num, lanes = x.shape
  width = 1 << depth
  steps = num_rows // width
  x = x.reshape(count, width, steps, num, lanes)

  def step(_, position):
    block, i = position // steps, position % steps
    rows = lax.dynamic_slice(x, _indices(block, 0, i, 0, 0), (1, width, 1, num, lanes)).reshape(width, num, lanes)
    return None, _butterflies(rows, bound, lax.dynamic_index_in_dim(table, i, keepdims=False), depth)
  return lax.scan(step, None, jnp.arange(count * steps, dtype=jnp.int32))[1].reshape(count, num_rows, num, lanes)


def _butterflies(rows, bound, table, depth):
  """`depth` levels on rows uint32[2^depth, 9, lanes]; at level d the 2^d parts have each their twiddle.

  Sums are made on whole arrays and carried once, at the end: only a product takes limbs apart, which costs copies.
  """
  width, num, lanes = rows.shape
  value, limb_max, top, used = rows[None], CARRIED, Fraction(bound), 0
  for d in range(depth):
    half = width >> (d + 1)
    twiddle = [jnp.broadcast_to(table[used:used + (1 << d), j, None, None], (1 << d, half, lanes)) for j in range(num)]
    used += 1 << d
    low, high = value[:, :half], value[:, half:]
    product = Lazy(FR, [high[:, :, j] for j in range(num)], top, limb_max) * Lazy(FR, twiddle, 1)
    offset, multiple = limbs.at_least(FR, product.maxima())   # low - product stays positive with this multiple of r in limbs
    offset, product_limbs = np.array(offset, np.uint32)[:, None], jnp.stack(product.limbs, 2)
    value = jnp.stack([low + product_limbs, low + (offset - product_limbs)], 1).reshape(2 << d, half, num, lanes)
    top, limb_max = top + max(product.bound, multiple), limb_max + int(max(offset[:-1, 0]))
    Lazy(FR, [], top, limb_max).checked()
  if top > bound + GROWTH * depth:
    raise ValueError(f"a butterfly grew from {float(bound):.1f} r to {float(top):.1f} r, more than {GROWTH} r a level")
  return _carried(value[:, 0], limb_max)


def _carried(value, limb_max):
  """The same values with limbs up to CARRIED: every limb hands what is over its 29 bits to the next one, once, all at the same time."""
  if FR.mask + (limb_max >> FR.bits) > CARRIED:
    raise ValueError(f"limbs up to {limb_max:#x} need more than one pass of carries")
  masks = np.array([FR.mask] * (FR.num - 1) + [0xffffffff], np.uint32)[:, None]
  over = value >> np.uint32(FR.bits)
  return (value & masks) + jnp.concatenate([jnp.zeros_like(over[:, :1]), over[:, :-1]], 1)


def _scale_rows(x, bound, factors):
  """x[:, j, :, lane] * start[lane] * ratio[lane]^j, below SCALED * r, for x[P, rows, 9, lanes].

  The factor of the next row is made in the same product as this row, so that no table of the size of x exists.
  """
  batch, num_rows, num, total = x.shape
  lanes = min(total, LANES)
  count = total // lanes
  start, ratio = (jnp.stack(jnp.split(jnp.broadcast_to(v, (num, total)), count, 1)) for v in factors)

  def step(factor, position):
    i, block = position // (batch * count), position % (batch * count)
    part = block % count
    row = lax.dynamic_slice(x, _indices(block // count, i, 0, part * lanes), (1, 1, num, lanes)).reshape(num, lanes)
    pair = jnp.stack([row, lax.dynamic_index_in_dim(ratio, part, keepdims=False)], 1)
    scale = lax.dynamic_index_in_dim(factor, block, keepdims=False)
    scale = [jnp.broadcast_to(scale[j], (2, lanes)) for j in range(num)]
    product = Lazy(FR, [pair[j] for j in range(num)], bound, CARRIED) * Lazy(FR, scale, SCALED)
    if product.bound > SCALED:
      raise ValueError(f"a scaled row may reach {float(product.bound):.1f} r, over {SCALED} r")
    out = jnp.stack(product.limbs, 1)
    return lax.dynamic_update_index_in_dim(factor, out[1], block, 0), out[0]
  out = lax.scan(step, jnp.tile(start, (batch, 1, 1)), jnp.arange(num_rows * batch * count, dtype=jnp.int32))[1]
  return out.reshape(num_rows, batch, count, num, lanes).transpose(1, 0, 3, 2, 4).reshape(x.shape)


def _canonical_rows(x, bound):
  """uint32[P, rows, 8, lanes]: words of the canonical representatives of x[P, rows, 9, lanes] below bound * r."""
  batch, num_rows, num, total = x.shape
  lanes = min(total, LANES)
  rows = x.reshape(batch * num_rows, num, total // lanes, lanes).transpose(0, 2, 1, 3).reshape(-1, num, lanes)

  def step(_, row):
    return None, limbs.pack(Lazy(FR, [row[j] for j in range(num)], bound, CARRIED).canonical())
  out = lax.scan(step, None, rows)[1].reshape(batch * num_rows, total // lanes, FR.words, lanes)
  return out.transpose(0, 2, 1, 3).reshape(batch, num_rows, FR.words, total)


def _indices(*values):
  return [jnp.int32(v) for v in values]
