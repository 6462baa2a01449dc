"""Batched affine additions on the CPU backend: acc += entry for up to ROWS x LANES pairs with one shared inversion.

Cost: 6 products an addition (G1), as 5 M + 1 S: prefix product, two products to unwind it, slope, slope^2, y. The inversion is shared by
the rows of a lane and then by the lanes (Montgomery's trick twice): see `inversion`.

A point is a row of 2 * degree * 14 limbs of 28 bits, uint32: x, then y, in Fp2 limb k of c0 beside limb k of c1. Inner Montgomery form
(R' = 2^392), coordinates below BOUND * p: no canonical form is kept between additions. The loops have a dynamic trip count, so one
executable serves every size: nothing here depends on the circuit.

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

from zkjax.ops import limbs
from zkjax.ops.cpu.inversion import inverse
from zkjax.ops.lazy_fp2 import LazyFp2
from zkjax.ops.limbs import FP, Lazy
from zkjax.ops.programs import executable

LANES = 128                                  # what stays in the first-level cache
ROWS = 256
BOUND = Fraction(9, 4)                       # coordinates at rest are below BOUND * p
PRODUCT = 2                                  # products at rest are below PRODUCT * p
NORM = Fraction(9, 4)                        # and what is inverted, a product or a norm, below NORM * p
PRODUCTS = 2048                              # of a call of `products`: what stays in the second-level cache

_COMPILING = {degree: threading.Lock() for degree in (1, 2)}
_COMPILER_OPTIONS = {"xla_cpu_prefer_vector_width": "512"}
_NUM = FP.num


def point_limbs(degree):
  """uint32 words in a row: x and y, each of `degree` base-field coordinates."""
  return 2 * degree * _NUM


def _load(array, degree, bound=BOUND):
  """A coordinate from stacked limbs uint32[degree * 14, lanes]."""
  return (Lazy, LazyFp2)[degree - 1].stacked(FP, array, bound, FP.mask + 1)


def _constant(degree, value, like):
  """A Python integer in every lane of `like`, uint32[lanes]."""
  constant = Lazy.constant(FP, value * FP.radix % FP.value, Lazy(FP, [like], 1))
  if degree == 1:
    return constant
  return LazyFp2(Lazy(FP, [jnp.stack([v, jnp.zeros_like(v)]) for v in constant.limbs], 1))


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
  """Inverses of uint32[degree * 14, LANES] below PRODUCT * p, lane by lane, made of rolled products: every other one is a tenth of the
  program."""
  if degree == 1:
    return inverse(total)
  # 1 / (a + b u) = (a - b u) / (a^2 + b^2)
  z = _load(total, 2, PRODUCT)
  squares = [Lazy.stacked(FP, limbs.mul_rolled(FP, c, c), PRODUCT, FP.mask + 1) for c in (part.stack()[:, 0] for part in z.component)]
  inverted = inverse(_kept((squares[0] + squares[1]).weakly_reduced(), NORM).stack())
  return limbs.mul_rolled(FP, inverted[:, None], z.conjugate().stack().reshape(_NUM, 2, LANES)).reshape(total.shape)


def _add(acc, entries, out, scratch, rows, degree, complete):
  """(acc + entries, scratch, bad); see the module docstring.

  acc, entries: uint32[ROWS, C, LANES]; rows: int32, how many rows are added, the others of the result are arbitrary. out, scratch:
  buffers for the result and the prefix products, uint32[ROWS, C or C / 2, LANES], any content. Each loop writes one buffer, which it
  does not read, one value a step that was carried into it: anything else makes XLA copy the buffer at every step.
  """
  half = degree * _NUM
  one, zero = (_constant(degree, value, acc[0, 0]) for value in (1, 0))
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
  zero = functools.reduce(lambda a, b: a | b, value.limbs if isinstance(value, Lazy) else value.both.limbs) == 0
  return zero if isinstance(value, Lazy) else zero.all(axis=0)


def products(values, factor):
  """uint32[14, n], limbs up to 2^28 of values below 2 p: inner limbs uint32[14, n], n <= PRODUCTS, times an integer below p."""
  padded = np.zeros((_NUM, PRODUCTS), np.uint32)
  padded[:, :values.shape[1]] = values
  factor = np.array(FP.split(factor * FP.radix % FP.value), np.uint32)[:, None]
  with _COMPILING[1]:
    run = _products()
  return np.asarray(run(factor, padded))[:, :values.shape[1]]


@functools.cache
def _products():
  def products_with_one(factor, values):
    with jax.enable_x64(True):
      return limbs.mul_rolled(FP, factor, values)
  return _compile(products_with_one, (), [(_NUM, 1), (_NUM, PRODUCTS)], donate=())


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
  shapes = [(ROWS, words, LANES)] * 3 + [(ROWS, words // 2, LANES), ()]
  return _compile(batch_affine_add, (degree, complete), shapes, donate=(2, 3))


def _compile(function, static, shapes, donate):
  """Compiled for the CPU whatever the default backend is; a shape () is an int32."""
  device = jax.devices("cpu")[0]
  cpu = jax.sharding.SingleDeviceSharding(device)
  arguments = tuple(jax.ShapeDtypeStruct(s, jnp.uint32 if s else jnp.int32) for s in shapes)
  jitted = jax.jit(function, in_shardings=cpu, out_shardings=cpu, donate_argnums=donate)
  return executable(function, jitted, arguments, static, _COMPILER_OPTIONS, device)
