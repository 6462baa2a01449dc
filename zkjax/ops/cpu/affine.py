"""Batched affine additions on the CPU backend: acc += entry for up to ROWS x LANES pairs with one shared inversion.

Cost: 6 products an addition (G1), as 5 M + 1 S: prefix product, two products to unwind it, slope, slope^2, y. The inversion is shared by
the rows of a lane and then by the lanes (Montgomery's trick twice), so one Fermat power on 8 lanes serves the whole call.

A point is a row of 2 * degree * 14 limbs of 28 bits, uint32, inner Montgomery form (R' = 2^392), coordinates below BOUND * p: no
canonical form is kept between additions. The loops have a dynamic trip count, so one executable serves every size: nothing here depends
on the circuit.

The fast form is partial: it is right where acc and entry differ in x and neither is infinity. Equal x make a lane's product of
differences zero, and the call says so; the caller then repeats it with complete=True, which handles doublings, opposite points and
infinity (all-zero limbs).
"""
import functools
import threading
from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from zkjax.ops.limbs import FP, Lazy, LazyFp2, unpack

LANES = 128                                  # what stays in the first-level cache
ROWS = 256
BOUND = Fraction(9, 4)                       # coordinates at rest are below BOUND * p
PRODUCT = 2                                  # products at rest are below PRODUCT * p
NORM = Fraction(9, 4)                        # and what is inverted, a product or a norm, below NORM * p
FOLDED = 8                                   # lanes of the one Fermat inversion

_COMPILING = {degree: threading.Lock() for degree in (1, 2)}
_COMPILER_OPTIONS = {"xla_cpu_prefer_vector_width": "512"}
_NUM = FP.num


def point_limbs(degree):
  """uint32 words in a row: x and y, each of `degree` base-field coordinates."""
  return 2 * degree * _NUM


def _load(array, degree, bound=BOUND):
  """A coordinate from stacked limbs uint32[degree * 14, lanes]."""
  parts = [Lazy.stacked(FP, array[k * _NUM:(k + 1) * _NUM], bound) for k in range(degree)]
  return parts[0] if degree == 1 else LazyFp2(*parts)


def _constant(degree, value, like):
  constant = Lazy.constant(FP, value * FP.radix % FP.value, like)
  return constant if degree == 1 else LazyFp2(constant, Lazy.constant(FP, 0, like))


def _kept(value, bound):
  """The value, proven to be small enough to be kept and loaded again as below bound * p."""
  if value.bound > bound:
    raise ValueError(f"a value may reach {float(value.bound):.3f} p, kept values must stay below {float(bound)} p")
  return value


def _rest(value):
  """A coordinate, reduced."""
  return _kept(value.weakly_reduced(), BOUND)


def _product(a, b):
  """Stacked limbs of a b."""
  return _kept(a * b, PRODUCT).stack()


def _inverse(total, degree):
  """Inverses of uint32[degree * 14, LANES] lane by lane, zero giving zero garbage: fold lanes, one Fermat power, unfold."""
  if degree == 2:                            # 1 / (a + b u) = (a - b u) / (a^2 + b^2)
    z = _load(total, 2, PRODUCT)
    norm = _kept((z.c0.square() + z.c1.square()).weakly_reduced(), NORM)
    n = _load(_inverse(norm.stack(), 1), 1, PRODUCT)
    zero = Lazy.constant(FP, 0, z.c0)
    return _kept(LazyFp2(z.c0 * n, (zero - z.c1) * n), PRODUCT).stack()
  load = lambda v: _load(v, 1, NORM)
  mul = lambda a, b: _product(load(a), load(b))
  lanes = np.arange(LANES)
  shifts = [FOLDED << k for k in range((LANES // FOLDED).bit_length() - 1)]
  turned = jnp.asarray(np.stack([(lanes + s) % LANES for s in shifts]), jnp.int32)
  # up: v_k = v_(k-1) * v_(k-1) turned; after all steps lane j holds the product of the lanes congruent to j mod FOLDED
  top, saved = lax.scan(lambda v, turn: (mul(v, v[:, turn]), v), total, turned)
  folded = top[:, :FOLDED]
  # folded^(p - 2), four bits a step from the top: the table holds folded^0 .. folded^15
  unit = _constant(1, 1, Lazy(FP, [folded[0]] * _NUM, 1)).stack()
  table = lax.scan(lambda v, _: (mul(v, folded), v), unit, None, length=16)[1]
  nibbles = jnp.asarray([int(c, 16) for c in f"{FP.value - 2:x}"], jnp.int32)
  fourth = lambda _, v: _kept(load(v).square(), PRODUCT).stack()
  power = lambda acc, nibble: (mul(lax.fori_loop(0, 4, fourth, acc), table[nibble]), None)
  inverse = jnp.tile(lax.scan(power, unit, nibbles)[0], (1, LANES // FOLDED))
  return lax.scan(lambda v, step: (mul(v, step[1][:, step[0]]), None), inverse, (turned, saved), reverse=True)[0]


def _add(acc, entries, out, scratch, rows, degree, complete):
  """(acc + entries, scratch, bad); see the module docstring.

  acc, entries: uint32[ROWS, C, LANES]; rows: int32, how many rows are added, the others of the result are arbitrary. out, scratch:
  buffers for the result and the prefix products, uint32[ROWS, C or C / 2, LANES], any content. Each loop writes one buffer, which it
  does not read, one value a step that was carried into it: anything else makes XLA copy the buffer at every step.
  """
  half = degree * _NUM
  one = _constant(degree, 1, Lazy(FP, [acc[0, 0]] * _NUM, 1))
  zero = _constant(degree, 0, Lazy(FP, [acc[0, 0]] * _NUM, 1))
  ones = one.stack()

  def operands(i):
    a, e = acc[i], entries[i]
    return _load(a[:half], degree), _load(a[half:], degree), _load(e[:half], degree), _load(e[half:], degree)

  def forward(i, state):
    product, prefix = state
    prefix = lax.dynamic_update_index_in_dim(prefix, product, i, 0)
    x1, y1, x2, y2 = operands(i)
    case = _cases(x1, y1, x2, y2) if complete else None
    return _product(_load(product, degree, PRODUCT), _denominator(x1, y1, x2, case, one)), prefix

  def backward(step, state):
    inverse, previous, out = state
    i = rows - 1 - step
    out = lax.dynamic_update_index_in_dim(out, previous, jnp.minimum(i + 1, ROWS - 1), 0)
    x1, y1, x2, y2 = operands(i)
    case = _cases(x1, y1, x2, y2) if complete else None
    inv = _load(inverse, degree, PRODUCT)
    slope_inverse = inv * _load(prefix[i], degree, PRODUCT)
    inverse = _product(inv, _denominator(x1, y1, x2, case, one))
    top = y2 - y1
    if complete:
      square = x1.square()
      top = (square + square + square).select(case.doubles, top)
    slope = top * slope_inverse
    x3 = _rest(slope.square() - x1 - x2)
    y3 = _rest(slope * (x1 - x3) - y1)
    if complete:
      x3, y3 = zero.select(case.cancels, x3), zero.select(case.cancels, y3)
      x3, y3 = x2.select(case.infinite1, x3), y2.select(case.infinite1, y3)
      x3, y3 = x1.select(case.infinite2, x3), y1.select(case.infinite2, y3)
    return inverse, jnp.concatenate([x3.stack(), y3.stack()]), out

  total, prefix = lax.fori_loop(0, rows, forward, (ones, scratch))
  bad = _load(total, degree, PRODUCT).is_zero()
  inverse = _inverse(jnp.where(bad, ones, total), degree)
  _, last, out = lax.fori_loop(0, rows, backward, (inverse, jnp.zeros_like(acc[0]), out))
  return lax.dynamic_update_index_in_dim(out, last, 0, 0), prefix, jnp.any(bad)


class _Cases(NamedTuple):
  """Where P + Q is a doubling, is infinity (Q = -P), has P or Q infinite."""
  doubles: jax.Array
  cancels: jax.Array
  infinite1: jax.Array
  infinite2: jax.Array


def _cases(x1, y1, x2, y2):
  infinite1, infinite2 = (_all_zero(x) & _all_zero(y) for x, y in ((x1, y1), (x2, y2)))
  finite = ~infinite1 & ~infinite2
  same_x = (x2 - x1).is_zero()
  cancels = same_x & (y1 + y2).is_zero()
  return _Cases(finite & same_x & ~cancels, finite & cancels, infinite1, infinite2)


def _denominator(x1, y1, x2, case, one):
  """x2 - x1; 2 y1 for a doubling; 1 where nothing is divided."""
  if case is None:
    return x2 - x1
  d = (y1 + y1).select(case.doubles, x2 - x1)
  return one.select(case.cancels | case.infinite1 | case.infinite2, d)


def _all_zero(value):
  parts = (value,) if isinstance(value, Lazy) else (value.c0, value.c1)
  return functools.reduce(lambda a, b: a | b, [limb for part in parts for limb in part.limbs]) == 0


def batch_add(degree, complete=False):
  """The executable of `_add` for G1 (degree 1) or G2 (degree 2); out and scratch are donated. Compiled once for all threads that ask."""
  with _COMPILING[degree]:
    return _batch_add(degree, complete)


@functools.cache
def _batch_add(degree, complete):
  def batch_affine_add(acc, entries, out, scratch, rows):
    with jax.enable_x64(True):
      return _add(acc, entries, out, scratch, rows, degree, complete)

  words = point_limbs(degree)
  return _compile(batch_affine_add, *[(ROWS, words, LANES)] * 3, (ROWS, words // 2, LANES), (), donate=(2, 3))


@functools.cache
def prepare_rows(degree):
  """The executable that brings ROWS * LANES points in outer form, uint32[ROWS, LANES, 2 * degree * 12], to rows of inner limbs and their
  negatives.

  Outer form is v 2^384 in 32-bit words; the product with 2^8 R' gives v R' (R' = 2^392). Infinity, all zero, stays all zero.
  """
  half = degree * FP.words
  scale = (1 << FP.shift) * FP.radix % FP.value

  def convert(points):
    with jax.enable_x64(True):
      def row(_, words):
        words = words.T
        like = Lazy(FP, [words[0]] * _NUM, 1)
        coordinates = [unpack(FP, words[k * FP.words:(k + 1) * FP.words]) * Lazy.constant(FP, scale, like) for k in range(2 * degree)]
        negatives = [_rest(Lazy.constant(FP, 0, like) - c) for c in coordinates[degree:]]
        x, y = ([_kept(c, BOUND).stack() for c in part] for part in (coordinates[:degree], coordinates[degree:]))
        return 0, jnp.concatenate(x + y + x + [c.stack() for c in negatives]).T
      return lax.scan(row, 0, points)[1]

  return _compile(convert, (ROWS, LANES, 2 * half))


def _compile(function, *shapes, donate=()):
  """Compiled for the CPU whatever the default backend is; a shape () is an int32."""
  cpu = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
  arguments = [jax.ShapeDtypeStruct(s, jnp.uint32 if s else jnp.int32) for s in shapes]
  jitted = jax.jit(function, in_shardings=cpu, out_shardings=cpu, donate_argnums=donate)
  return jitted.lower(*arguments).compile(compiler_options=_COMPILER_OPTIONS)
