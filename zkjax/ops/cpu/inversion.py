"""Inverses in Fp on a few lanes: products of lanes are inverted by division steps (Bernstein and Yang 2019), then taken apart.

Fermat's power would be 460 products in sequence, as long as four rows of additions; a division step is a handful of 32-bit operations.
"""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from zkjax.ops import limbs
from zkjax.ops.limbs import FP

FOLDED = 8                                   # lanes that are inverted
BATCHES = 32                                 # of FP.bits steps each; see `_inverses`
_NUM, _BITS, _MASK = FP.num, np.int64(FP.bits), np.int64(FP.mask)


def inverse(values):
  """R'^2 / v for uint32[14, lanes] of v < 2^383 with limbs up to 2^28: below 2 p, limbs up to 2^28. A zero spoils all lanes.

  With groups g_k of FOLDED lanes, 1 / g_k = (1 / (g_0 ... g_k)) (g_0 ... g_(k-1)), and the inverse of a shorter product is that of the
  longer one times its last factor (Montgomery 1987).
  """
  mul = functools.partial(limbs.mul_rolled, FP)

  def back(inverted, factors):
    both = mul(inverted[:, None], jnp.stack(factors, 1))
    return both[:, 1], both[:, 0]
  with jax.enable_x64(True):
    first, rest = values[:, :FOLDED], values[:, FOLDED:].reshape(_NUM, -1, FOLDED).swapaxes(0, 1)
    product, before = lax.scan(lambda v, group: (mul(v, group), v), first, rest)
    first, rest = lax.scan(back, _inverses(product), (before, rest), reverse=True)
    return jnp.concatenate([first, rest.swapaxes(0, 1).reshape(_NUM, -1)], 1)


def _inverses(values):
  """R'^2 / v, below 70 p, for uint32[14, lanes] as in `inverse`.

  A step takes (f, g), f odd, to (g, (g - f) / 2) where g is odd and delta > 0, else to (f, (g + (g mod 2) f) / 2). From (p, v) it ends at
  (+-1, 0) after (45907 * 383 + 26313) / 19929 = 883 steps at most if delta starts at 1/2 (Wuille 2021). 28 steps depend on the lowest
  limbs alone: they are made there, as a matrix that then is applied to f, g and to d, e with d v = f c, e v = g c mod p, c = R'^2, where a
  multiple of p makes the division by 2^28 exact. The rows of the matrix have |u| + |v| <= 2^28, so |d|, |e| grow by p a batch.
  """
  lanes = values.shape[1]
  constant = lambda v: jnp.broadcast_to(np.array(FP.split(v), np.int64)[:, None], (_NUM, lanes))
  fg = jnp.stack([constant(FP.value), values.astype(jnp.int64)])
  de = jnp.stack([constant(0), constant(FP.radix**2 % FP.value)])
  p = np.array(FP.limbs, np.int64)[:, None]

  def batch(state):
    fg, de, delta = state
    low = fg[:, 0].astype(jnp.int32)
    matrix, delta = _steps(low[0], low[1], delta)
    times = lambda v: matrix[:, 0, None] * v[0] + matrix[:, 1, None] * v[1]          # [2, limbs, lanes], up to 2^56 + 2^30
    d = times(de)
    q = (d[:, :1].astype(jnp.uint32) * np.uint32(FP.negative_inverse) & np.uint32(FP.mask)).astype(jnp.int64)
    return _divided(times(fg)), _divided(d + q * p), delta
  fg, de, _ = lax.while_loop(lambda state: jnp.any(state[0][1] != 0), batch, (fg, de, jnp.ones(lanes, jnp.int32)))
  # f = 1 or -1, its lowest limb is 1 or 2^28 - 1; the offset makes every limb positive
  largest = (BATCHES + 2) * FP.value >> FP.bits * (_NUM - 1)
  offset, _ = limbs.at_least(FP, [FP.mask + 4] * (_NUM - 1) + [largest])
  signed = jnp.where((fg[0, :1] & 2) > 0, -de[0], de[0])
  return _carried(np.array(offset, np.int64)[:, None] + signed).astype(jnp.uint32)


def _steps(f, g, delta):
  """FP.bits division steps on the lowest limbs, int32[lanes]; delta is twice that of `_inverses`.

  Returns the matrix int64[2, 2, lanes] that takes (f, g) to 2^bits times the new ones, and the new delta.
  """
  one, zero = jnp.ones_like(f), jnp.zeros_like(f)

  def step(_, state):
    f, g, u, v, q, r, delta = state
    odd = g & 1
    swap = (delta > 0) & (odd > 0)
    sign = jnp.where(swap, -odd, odd)
    chosen = lambda a, b: jnp.where(swap, b, a)
    return (chosen(f, g), (g + sign * f) >> 1, chosen(u, q) * 2, chosen(v, r) * 2, q + sign * u, r + sign * v,
            2 + jnp.where(swap, -delta, delta))
  _, _, u, v, q, r, delta = lax.fori_loop(0, FP.bits, step, (f, g, one, zero, zero, one, delta))
  return jnp.stack([jnp.stack([u, v]), jnp.stack([q, r])]).astype(jnp.int64), delta


def _divided(t):
  """t / 2^28 for int64[..., limbs, lanes] up to 2^58 whose lowest limb is a multiple of it."""
  carry = t[..., :1, :] >> _BITS
  return _carried(jnp.concatenate([t[..., 1:2, :] + carry, t[..., 2:, :], jnp.zeros_like(carry)], -2))


def _carried(t):
  """The same numbers with low limbs in [-3, 2^28 + 2], the lowest one in [0, 2^28), of signed limbs up to 2^58. At most 2^28 in [0, 2^28]
  if they were in [0, 2^30)."""
  masks = np.array([FP.mask] * (_NUM - 1) + [-1], np.int64)[:, None]
  for _ in range(2):
    over = t >> _BITS
    t = (t & masks) + jnp.concatenate([jnp.zeros_like(over[..., :1, :]), over[..., :-1, :]], -2)
  return t
