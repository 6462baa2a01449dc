"""Number-theoretic transforms in plain jnp, in loops over blocks of columns that stay in the L2 cache of a CPU. Right on every platform.

The coefficients j = j1 n2 + j2 form a matrix of n1 rows and n2 lanes (four-step method: Bailey 1990). With k = k1 + n1 k2 and a root w,

  X(k) = sum_j2 w_n2^(j2 k2) (s w^k1)^j2 ( sum_j1 x(j1, j2) (s^n2)^j1 w_n1^(j1 k1) ),

a transform of the columns on the coset s^n2 <w_n1>, a transposition, and a transform of the columns again, of which each has a coset of
its own, s w^k1 <w_n2>. The last one leaves k2 in the rows and k1 in the lanes: natural order.

A transform of columns splits polynomials: f mod (X^2M - c^2) into f mod (X^M - c) = low + c high and f mod (X^M + c) = low - c high
(Cooley and Tukey 1965), so a coset costs nothing but the twiddles. In place, and the results come in bit-reversed order.

Between the steps values are `Lazy` limbs, uint32[9, lanes], in the Montgomery form of the caller (R = 2^256): only the twiddles are in
the inner form (R' = 2^261), so x * twiddle keeps the form of x. A butterfly adds a constant to the bound of
its operands, so that the stages of a transform need no reduction in between.
"""
import functools
from typing import NamedTuple, Optional

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from zkjax.ops import limbs
from zkjax.ops.limbs import FR, Lazy

R = FR.value
GROWTH = 2                                   # of the bound in multiples of r, a stage; checked while tracing
TWIDDLE = FR.room / (FR.room - 1)            # bound of a product of such a value with one below r: 1 + TWIDDLE / room = TWIDDLE
CARRIED = FR.mask + 8                        # the largest low limb between stages
LANES = 128                                  # of a block: what a step computes stays in L1, and 256 rows of a block, 1.2 MB, in L2


class Factors(NamedTuple):
  """Row j is scaled by start * ratio^j, lane by lane or all lanes by the same."""
  start: np.ndarray                          # uint32[9, lanes or 1]
  ratio: Optional[np.ndarray]                # uint32[9, 1], None for 1


class Plan(NamedTuple):
  """Everything about a transform but its size: arrays, so that one compilation serves all transforms of a size. See `plan`."""
  first: np.ndarray                          # uint32[n1, 9, 1], see `_twiddles`
  second: Optional[np.ndarray]               # uint32[n2, 9, 1], of columns without cosets
  cosets: Optional[np.ndarray]               # uint32[stages, 9, n1]: with what a column multiplies the twiddles of a stage
  last: Optional[Factors]


@functools.lru_cache(maxsize=32)
def plan(log2_size, root, shift=1, scale=None, ratio=None):
  """The Plan of x to sum_j x[j] (shift root^k)^j * scale * ratio^k, k < n. Integers mod r; root has order n = 2^log2_size.

  A scale costs a product a value and a ratio another, even if they are 1; None means without.
  """
  log2_rows = _log2_rows(log2_size)
  num_rows, log2_lanes = 1 << log2_rows, log2_size - log2_rows
  first, second, cosets = _twiddles(log2_rows, pow(root, 1 << log2_lanes, R), pow(shift, 1 << log2_lanes, R)), None, None
  if log2_lanes:
    stages = [_powers(root, num_rows, shift)]
    for _ in range(log2_lanes - 1):
      stages.insert(0, [v * v % R for v in stages[0]])
    second, cosets = _twiddles(log2_lanes, pow(root, num_rows, R), 1), np.stack([_limbs(v) for v in stages])
  last, lanes = None, num_rows if log2_lanes else 1
  if ratio is not None:
    last = Factors(_limbs(_powers(ratio, lanes, 1 if scale is None else scale)), _limbs([pow(ratio, lanes, R)]))
  elif scale is not None:
    last = Factors(_limbs([scale]), None)
  return Plan(first, second, cosets, last)


@jax.jit
def transform(words, plan):
  """The transform that `plan` describes, of uint32[P, 8, n] canonical words to the same, both in natural order."""
  with jax.enable_x64(True):
    batch, _, n = words.shape
    log2_rows = _log2_rows(n.bit_length() - 1)
    x, plan = words.reshape(batch, FR.words, 1 << log2_rows, -1), jax.tree.map(jnp.asarray, plan)   # [P, 8, j1, j2]

    def first(p, lane):
      return _transform_columns(_unpacked(x, p, lane), 1, plan.first, 0)
    if plan.second is None:
      return _results(first, log2_rows, plan.last, x)
    y = _by_blocks(lambda p, lane: _in_order(first(p, lane)).transpose(2, 1, 0), x)                 # [P, blocks, lanes, 9, k1]
    y = y.reshape(batch, -1, *y.shape[3:])                                                          # [P, j2, 9, k1]
    twiddles = _coset_twiddles(plan.second, plan.cosets)

    def second(p, lane):
      return _transform_columns(_block(y, p, lane), 1 + GROWTH * log2_rows, twiddles, lane)
    return _results(second, n.bit_length() - 1, plan.last, y)


def transforms(words, plans):
  """One transform after the other, whose plans have the same form: one program for all of them."""
  stacked = jax.tree.map(lambda *v: np.stack(v), *plans)
  return lax.scan(lambda x, plan: (transform(x, plan), None), words, stacked)[0]


def _results(columns, stages, factors, x):
  """uint32[P, 8, n]: the words of what `columns` makes, in that many stages, of all blocks of x."""
  out = _by_blocks(lambda p, lane: _canonical(columns(p, lane), 1 + GROWTH * stages, factors, lane), x)
  return out.transpose(0, 3, 2, 1, 4).reshape(x.shape[0], FR.words, -1)                             # from [P, blocks, k2, 8, lanes]


def _by_blocks(function, x):
  """[P, blocks, ...]: function(p, first lane) for all blocks of lanes of x[P, ..., lanes]."""
  batch, lanes = x.shape[0], _lanes(x)
  count = x.shape[-1] // lanes
  out = lax.map(lambda i: function(i // count, i % count * lanes), jnp.arange(batch * count, dtype=jnp.int32))
  return out.reshape(batch, count, *out.shape[1:])


def _lanes(x):
  return min(x.shape[-1], LANES)


def _block(x, p, lane):
  """x[p, .., lane:lane + lanes of a block] of x[P, rows, 9, lanes]."""
  return lax.dynamic_slice(x, _indices(p, 0, 0, lane), (1, *x.shape[1:3], _lanes(x)))[0]


def _unpacked(words, p, lane):
  """Limbs uint32[rows, 9, lanes] of a block of words[P, 8, rows, lanes]."""
  def row(i):
    taken = lax.dynamic_slice(words, _indices(p, 0, i, lane), (1, FR.words, 1, _lanes(words)))
    return limbs.unpack(FR, list(taken.reshape(FR.words, -1))).stack()
  return lax.map(row, jnp.arange(words.shape[2], dtype=jnp.int32))


def reversed_bits(num_bits):
  """int32[2^num_bits]: i to the number with the num_bits bits of i in the opposite order."""
  index = np.zeros(1, np.int32)
  for _ in range(num_bits):
    index = np.concatenate([2 * index, 2 * index + 1])
  return index


def _log2_rows(log2_size):
  """Of the first transform of columns: half of the stages, or all of them if there are few."""
  return log2_size if log2_size < 6 else log2_size // 2


def _twiddles(log2_rows, root, shift):
  """uint32[m, 9, 1]: entry 2^s + b is (shift root^k)^(m / 2^(s + 1)), k = b with its s bits reversed, for part b of stage s."""
  stages = [np.zeros((1, FR.num), np.uint32)]
  for s in range(log2_rows):
    exponent = 1 << (log2_rows - s - 1)
    stages.append(_limbs(_powers(pow(root, exponent, R), 1 << s, pow(shift, exponent, R))).T[reversed_bits(s)])
  return np.concatenate(stages)[:, :, None]


def _coset_twiddles(twiddles, cosets):
  """Twiddles of columns on their own cosets, block by block, uint32[blocks m, 9, lanes], from those of columns without cosets."""
  num_rows, lanes = len(twiddles), _lanes(cosets)
  stage = jnp.asarray([max(entry, 1).bit_length() - 1 for entry in range(num_rows)], jnp.int32)

  def entry(i):
    coset = lax.dynamic_slice(cosets, _indices(stage[i % num_rows], 0, i // num_rows * lanes), (1, FR.num, lanes))[0]
    return (_lazy(coset, 1) * _lazy(lax.dynamic_index_in_dim(twiddles, i % num_rows, keepdims=False), 1)).stack()
  return lax.map(entry, jnp.arange(cosets.shape[-1] // lanes * num_rows, dtype=jnp.int32))


def _powers(base, count, first=1):
  """[first * base^i mod r for i < count]."""
  out = [first % R]
  for _ in range(count - 1):
    out.append(out[-1] * base % R)
  return out


def _limbs(values):
  """uint32[9, len(values)]: limbs of integers in the inner Montgomery form."""
  data = b"".join((v * FR.radix % R).to_bytes(4 * FR.words, "little") for v in values)
  return np.stack(limbs.unpack(FR, np.frombuffer(data, np.uint32).reshape(-1, FR.words).T).limbs)


def _lazy(x, bound):
  """Lazy[lanes] of x[9, lanes], or Lazy[.., lanes] of x[9, .., lanes]."""
  return Lazy.stacked(FR, x, bound, CARRIED)


def _transform_columns(x, bound, twiddles, lane):
  """The transform of the columns of x[m, 9, lanes], below bound * r, into bit-reversed rows below (bound + GROWTH log2 m) * r.

  twiddles: uint32[blocks m, 9, lanes] for columns of their own, of which the block at `lane` is taken, or uint32[m, 9, 1] for all.
  """
  num_rows, _, lanes = x.shape
  log2_rows = num_rows.bit_length() - 1
  base = lane // lanes * num_rows if len(twiddles) > num_rows else 0

  def step(i, x):
    stage, k = i // (num_rows // 2), i % (num_rows // 2)
    log2_stride = log2_rows - 1 - stage
    part, offset = k >> log2_stride, k & ((1 << log2_stride) - 1)
    low = (part << log2_stride + 1) + offset
    high = low + (1 << log2_stride)
    twiddle = lax.dynamic_index_in_dim(twiddles, base + (1 << stage) + part, keepdims=False)
    row = lambda j: lax.dynamic_index_in_dim(x, j, keepdims=False)
    total, difference = _butterfly(row(low), row(high), twiddle, bound + GROWTH * (log2_rows - 1))
    return lax.dynamic_update_index_in_dim(lax.dynamic_update_index_in_dim(x, total, low, 0), difference, high, 0)
  return lax.fori_loop(jnp.int32(0), jnp.int32(log2_rows * num_rows // 2), step, x)


def _butterfly(low, high, twiddle, bound):
  """low + twiddle * high and low - twiddle * high, uint32[9, lanes], for low and high below bound * r."""
  product = _lazy(high, bound) * _lazy(twiddle, TWIDDLE)
  offset, multiple = limbs.at_least(FR, product.maxima())   # low - product stays positive with this multiple of r in limbs
  if max(product.bound, multiple) > GROWTH:
    raise ValueError(f"a butterfly grows by {float(max(product.bound, multiple)):.1f} r, more than {GROWTH} r")
  limb_max = CARRIED + max(offset[:-1])
  Lazy(FR, [], bound + GROWTH, limb_max).checked()
  offset, product = np.array(offset, np.uint32)[:, None], jnp.stack(product.limbs)
  return _carried(low + product, limb_max), _carried(low + (offset - product), limb_max)


def _carried(value, limb_max):
  """The same values with limbs up to CARRIED: every limb hands what is over its 29 bits to the next one, once, all at the same time."""
  if FR.mask + (limb_max >> FR.bits) > CARRIED:
    raise ValueError(f"limbs up to {limb_max:#x} need more than one pass of carries")
  masks = np.array([FR.mask] * (FR.num - 1) + [0xffffffff], np.uint32)[:, None]
  over = value >> np.uint32(FR.bits)
  return (value & masks) + jnp.concatenate([jnp.zeros_like(over[:1]), over[:-1]])


def _in_order(x):
  """The rows that `_transform_columns` made, in natural order."""
  return x[reversed_bits(len(x).bit_length() - 1)]


def _canonical(x, bound, factors, lane):
  """uint32[rows, 8, lanes]: words of the canonical representatives of the bit-reversed rows of a block, below bound * r, in order, scaled.

  The factor of the next row is made in the same product as this row, so that no table of the size of x exists.
  """
  num_rows, _, lanes = x.shape
  order = jnp.asarray(reversed_bits(num_rows.bit_length() - 1))
  start, ratio = factors or (None, None)
  if start is not None and start.shape[1] > 1:
    start = lax.dynamic_slice_in_dim(start, lane, lanes, 1)

  def step(factor, i):
    row = lax.dynamic_index_in_dim(x, i, keepdims=False)
    if start is None:
      value = _lazy(row, bound)
    elif ratio is None:
      value = _lazy(row, bound) * _lazy(start, TWIDDLE)
    else:
      both = _lazy(jnp.stack([row, jnp.broadcast_to(ratio, row.shape)], 1), bound) * _lazy(factor[:, None], TWIDDLE)
      value, factor = Lazy(FR, [v[0] for v in both.limbs], both.bound), jnp.stack([v[1] for v in both.limbs])
    return factor, limbs.pack(value.canonical())
  return lax.scan(step, None if ratio is None else start, order)[1]


def _indices(*values):
  return [jnp.int32(v) for v in values]
