"""Multi-limb modular arithmetic in plain jnp: the portable kernels, and the only portable file that knows what a limb is.

Outside, an element is uint32[words, *batch]: little-endian 32-bit words, Montgomery with R = 2^(32 words). Inside, it is a `Lazy`: a
list of uint32[*batch] limbs of 28 (Fp) or 29 (Fr) bits, so that a column of limb products fits in uint64 without carries. Every `Lazy`
carries proven bounds (they are Python numbers, computed while tracing): `bound`, value < bound * modulus, and `limb_max`, the largest
low limb. An operation that could overflow raises at trace time, so a formula that traces is a formula whose bounds hold.

Inside, Montgomery has R' = 2^(bits * num) and redc(a b) = a b / R'. Because R' = R 2^shift, feeding a 2^shift instead of a gives a b / R:
`mul` on outside elements needs no conversion of constants.

Why limbs stay uint32 between operations: a 64-bit vector product is one instruction only where the compiler sees that both factors are
below 2^32, and a conversion from uint32 next to the product shows it.
"""
import dataclasses
import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np

from zkjax.ops import bls12_381


@dataclasses.dataclass(frozen=True)
class Modulus:
  """A prime, `words` 32-bit words outside and `num` limbs of `bits` bits inside. R' / modulus is the room for lazy values."""
  value: int
  words: int
  bits: int
  num: int

  @property
  def shift(self):
    return self.bits * self.num - 32 * self.words

  @property
  def mask(self):
    return (1 << self.bits) - 1

  @property
  def radix(self):
    """R', the inner Montgomery radix."""
    return 1 << (self.bits * self.num)

  @property
  def room(self):
    return Fraction(self.radix, self.value)

  @functools.cached_property
  def limbs(self):
    return self.split(self.value)

  @functools.cached_property
  def negative_inverse(self):
    """-1 / modulus mod 2^bits."""
    return -pow(self.value, -1, 1 << self.bits) % (1 << self.bits)

  def split(self, value, num=None):
    """The `num` limbs of an integer; the last one keeps what is left."""
    num = self.num if num is None else num
    return [(value >> (self.bits * i)) & self.mask for i in range(num - 1)] + [value >> (self.bits * (num - 1))]

  def join(self, limbs):
    return sum(int(v) << (self.bits * i) for i, v in enumerate(limbs))


FR = Modulus(bls12_381.R, words=8, bits=29, num=9)
FP = Modulus(bls12_381.P, words=12, bits=28, num=14)


def at_least(modulus, minima):
  """Limbs of the smallest multiple of the modulus, each limb raised to at least `minima[k]`, and that multiple.

  With V = sum minima[k] 2^(bits k) and m = ceil(V / modulus), the difference m * modulus - V is a non-negative integer: its digits are
  added on top.
  """
  floor = modulus.join(minima)
  multiple = -(-floor // modulus.value)
  digits = modulus.split(multiple * modulus.value - floor, len(minima))
  return [a + b for a, b in zip(minima, digits)], multiple


class Lazy:
  """An element in inner limbs with its bounds. `+`, `-`, `*`, `square` never reduce fully; see the module docstring."""

  def __init__(self, modulus, limbs, bound, limb_max=None):
    self.modulus, self.limbs = modulus, list(limbs)
    self.bound = Fraction(bound)
    self.limb_max = modulus.mask if limb_max is None else limb_max

  @classmethod
  def constant(cls, modulus, value, like):
    """A Python integer below the modulus, broadcast to the batch of `like`."""
    return cls(modulus, [jnp.full_like(like.limbs[0], np.uint32(v)) for v in modulus.split(value)], 1)

  @classmethod
  def stacked(cls, modulus, array, bound, limb_max=None):
    """From limbs uint32[num, *batch], carried ones if limb_max is not given."""
    return cls(modulus, [array[i] for i in range(modulus.num)], bound, limb_max)

  def maxima(self):
    """The largest possible value of each limb."""
    top = int(self.bound * self.modulus.value) >> (self.modulus.bits * (self.modulus.num - 1))
    return [self.limb_max] * (self.modulus.num - 1) + [max(top, 1)]

  def checked(self):
    if max(self.maxima()) >= 1 << 32:
      raise ValueError(f"limbs may reach {max(self.maxima()):#x}, over 32 bits: carry an operand first")
    return self

  def carried(self):
    """The same value with every low limb below 2^bits."""
    mask, shift = np.uint32(self.modulus.mask), np.uint32(self.modulus.bits)
    out, carry = [], None
    for k, v in enumerate(self.limbs):
      v = v if carry is None else v + carry
      out.append(v & mask if k < self.modulus.num - 1 else v)
      carry = v >> shift
    # limb + carry < limb_max + 2^(32 - bits) must stay in 32 bits
    if max(self.maxima()) + (1 << (32 - self.modulus.bits)) >= 1 << 32:
      raise ValueError("a carry could overflow 32 bits")
    return Lazy(self.modulus, out, self.bound)

  def __add__(self, other):
    limbs = [a + b for a, b in zip(self.limbs, other.limbs)]
    return Lazy(self.modulus, limbs, self.bound + other.bound, self.limb_max + other.limb_max).checked()

  def __sub__(self, other):
    offset, multiple = at_least(self.modulus, other.maxima())
    limbs = [a + (np.uint32(k) - b) for a, b, k in zip(self.limbs, other.limbs, offset)]
    return Lazy(self.modulus, limbs, self.bound + multiple, self.limb_max + max(offset[:-1])).checked()

  def __mul__(self, other):
    return wide(self, other).redc()

  def square(self):
    return wide_square(self).redc()

  def select(self, condition, other):
    """self where `condition`, else `other`."""
    limbs = [jnp.where(condition, a, b) for a, b in zip(self.limbs, other.limbs)]
    return Lazy(self.modulus, limbs, max(self.bound, other.bound), max(self.limb_max, other.limb_max))

  def canonical(self):
    """The representative in [0, modulus): what is far above is brought near first, then 2^k * modulus is subtracted where it can be."""
    value, steps = self.weakly_reduced(1) if self.bound > 4 else self._with_small_limbs(), 0
    while value.bound > 1 << steps:
      steps += 1
    for k in reversed(range(steps)):
      value = _subtract_if_not_less(value, self.modulus.value << k)
    return Lazy(self.modulus, value.limbs, 1)

  def weakly_reduced(self, multiple=2):
    """The value less q * multiple * modulus, q estimated from the top limb: a bound little above `multiple`, for one carry pass.

    With t = top limb >> drop and unit = (multiple * modulus >> the same place) + 1, q = floor(t * scale / 2^27) where
    scale = floor(2^27 / unit) never exceeds the true quotient. The bound below is the largest remainder over all q. The pass is made in
    signed 32 bits if q * limb fits, else in 64, where it always does: t * scale < 2^(32 + 16).
    """
    m, value = self.modulus, self._with_small_limbs()
    step = multiple * m.value
    place = step.bit_length() - 12                            # t has 12 bits per unit
    drop = place - m.bits * (m.num - 1)
    unit = (step >> place) + 1
    scale = (1 << 27) // unit
    top = value.maxima()[-1] >> drop
    quotients = (top * scale) >> 27
    kind = np.int32 if max(top * scale, (quotients + 1) << m.bits) < 1 << 31 else np.int64
    last = lambda q: min(-(-((q + 1) << 27) // scale) - 1, top)   # the largest t with quotient q
    bound = max(Fraction((last(q) + 1) << place, m.value) - multiple * q for q in range(quotients + 1))
    with jax.enable_x64(True):
      q = ((value.limbs[-1] >> np.uint32(drop)).astype(kind) * kind(scale)) >> kind(27)
      out, carry = [], None
      for k, (a, c) in enumerate(zip(value.limbs, m.split(step))):
        d = a.astype(kind) - q * kind(c)
        d = d if carry is None else d + carry
        out.append((d & kind(m.mask) if k < m.num - 1 else d).astype(jnp.uint32))
        carry = d >> kind(m.bits)
    return Lazy(m, out, min(bound, self.bound))

  def _with_small_limbs(self):
    return self.carried() if self.limb_max > self.modulus.mask else self.checked()

  def is_zero(self):
    """Whether the value is 0 mod the modulus."""
    limbs = self.canonical().limbs
    return functools.reduce(lambda a, b: a | b, limbs) == 0

  def stack(self):
    """uint32[num, *batch], carried."""
    return jnp.stack(self._with_small_limbs().limbs)


def _subtract_if_not_less(value, constant):
  """value - constant where that is not negative, as a signed number, of a value whose top limb is far below 2^31."""
  modulus = value.modulus
  out, borrow = [], None
  for k, (a, c) in enumerate(zip(value.limbs, modulus.split(constant))):
    d = a.astype(jnp.int32) - np.int32(c)
    d = d if borrow is None else d + borrow
    out.append((d & np.int32(modulus.mask) if k < modulus.num - 1 else d).astype(jnp.uint32))
    borrow = d >> np.int32(modulus.bits)
  return Lazy(modulus, [jnp.where(borrow < 0, a, d) for a, d in zip(value.limbs, out)], value.bound)


class Wide:
  """A double-width value as uint64 columns: sum columns[k] 2^(bits k), below `bound` * modulus^2, column k at most maxima[k]."""

  def __init__(self, modulus, columns, bound, maxima):
    self.modulus, self.columns, self.bound, self.maxima = modulus, columns, Fraction(bound), maxima

  def checked(self):
    # redc adds at most `num` products q_i modulus_j < 2^(2 bits) and one carry to a column
    slack = self.modulus.num * (self.modulus.mask * max(self.modulus.limbs)) + (1 << (64 - self.modulus.bits))
    if max(self.maxima) + slack >= 1 << 64:
      raise ValueError(f"a column may reach {max(self.maxima) + slack:#x}, over 64 bits: carry an operand first")
    return self

  def __add__(self, other):
    return Wide(self.modulus, [a + b for a, b in zip(self.columns, other.columns)], self.bound + other.bound,
                [a + b for a, b in zip(self.maxima, other.maxima)]).checked()

  def redc(self):
    """Montgomery reduction: value / R' mod modulus, below (bound * modulus / R' + 1) * modulus, with carried limbs.

    Row i adds q_i * modulus * 2^(bits i) with q_i chosen so that column i becomes divisible by 2^bits; its quotient moves to column i + 1.
    """
    m, t = self.modulus, list(self.columns)
    shift, mask = np.uint64(m.bits), np.uint32(m.mask)
    for i in range(m.num):
      q = ((t[i].astype(jnp.uint32) * np.uint32(m.negative_inverse)) & mask).astype(jnp.uint64)
      for j in range(m.num):
        t[i + j] = t[i + j] + q * np.uint64(m.limbs[j])
      t[i + 1] = t[i + 1] + (t[i] >> shift)
    out, carry = [], None
    for k, v in enumerate(t[m.num:]):
      v = v if carry is None else v + carry
      out.append(v.astype(jnp.uint32) & mask if k < m.num - 1 else v.astype(jnp.uint32))
      carry = v >> shift
    bound = self.bound / m.room + 1
    if bound * m.value >= 1 << (m.bits * (m.num - 1) + 31):
      raise ValueError("the reduced value could overflow its top limb")
    return Lazy(m, out, bound)


def wide(a, b, whole=None):
  """The unreduced product, column by column; carries the operands first if their limbs are too large.

  whole: each column as one operation on all limbs, which takes a third off the program and a tenth off a product in Fp2; None: if they
  are few. 14 limbs of one row of lanes gain nothing, and each call of their program takes a tenth of a millisecond more.
  """
  a, b = _fit(a, b)
  m, x, y = a.modulus, a.maxima(), b.maxima()
  u, v = _written_out(a.limbs), _written_out(b.limbs)
  if whole or whole is None and m.num < 10:
    u, v = _written_out([jnp.stack(u), jnp.stack(v)])
    column = lambda low, high: _dot(u[low:high + 1], v[k - high:k - low + 1][::-1])
  else:
    u, v = ([limb.astype(jnp.uint64) for limb in limbs] for limbs in (u, v))
    column = lambda low, high: functools.reduce(lambda s, t: s + t, [u[i] * v[k - i] for i in range(low, high + 1)])
  columns, maxima = [], []
  for k in range(2 * m.num - 1):
    low, high = max(0, k - m.num + 1), min(m.num - 1, k)
    columns.append(column(low, high))
    maxima.append(sum(x[i] * y[k - i] for i in range(low, high + 1)))
  return Wide(m, columns + [jnp.zeros_like(columns[0])], a.bound * b.bound, maxima + [0]).checked()


def _dot(a, b):
  """sum_i a[i] b[i] in 64 bits: one operation, as it is LLVM that writes the loop over i out."""
  return jnp.sum(a.astype(jnp.uint64) * b.astype(jnp.uint64), axis=0, dtype=jnp.uint64)


def wide_square(a):
  """wide(a, a) with the equal cross products computed once and doubled."""
  a, _ = _fit(a, a)
  m, x = a.modulus, a.maxima()
  u = [limb.astype(jnp.uint64) for limb in _written_out(a.limbs)]
  columns, maxima = [], []
  for k in range(2 * m.num - 1):
    pairs = [(j, k - j) for j in range(max(0, k - m.num + 1), min(m.num, k + 1)) if j < k - j]
    terms = [u[i] * u[j] for i, j in pairs]
    total = functools.reduce(lambda s, t: s + t, terms) if terms else None
    total = total + total if terms else None
    if k % 2 == 0:
      total = u[k // 2] * u[k // 2] if total is None else total + u[k // 2] * u[k // 2]
    columns.append(total)
    maxima.append(2 * sum(x[i] * x[j] for i, j in pairs) + (x[k // 2]**2 if k % 2 == 0 else 0))
  return Wide(m, columns + [jnp.zeros_like(columns[0])], a.bound**2, maxima + [0]).checked()


def _written_out(limbs):
  """The same arrays, computed once and kept: XLA would load or compute them again in every column or word that takes them."""
  return jax.lax.optimization_barrier(limbs)


def _fit(a, b):
  """Operands whose product columns leave room for a reduction: num * (limb_a limb_b + 2^(2 bits)) < 2^64."""
  limit = (1 << 64) // a.modulus.num - 2 * (1 << 2 * a.modulus.bits)
  if a.limb_max * b.limb_max >= limit:
    same = a is b
    a = a.carried() if a.limb_max >= b.limb_max else a
    b = a if same else (b.carried() if a.limb_max * b.limb_max >= limit else b)
  return a, b


def mul_rolled(modulus, a, b):
  """a b / R' for uint32[num, *batch] with limbs up to 2^bits: a loop over the limbs of a, a tenth of the graph of `Lazy` and slower.

  The result is below (bound_a bound_b modulus / R' + 1) modulus, its low limbs up to 2^bits. Step i adds a_i b and the multiple of the
  modulus that clears the lowest column, and drops that column: a column stays below 2 num 2^(2 bits) + 2^(64 - bits) < 2^62.
  """
  bits, mask = np.uint64(modulus.bits), np.uint32(modulus.mask)
  column = lambda v: np.array(v, np.uint64).reshape((-1,) + (1,) * (b.ndim - 1))
  wide_b, limbs = b.astype(jnp.uint64), column(modulus.limbs)

  def step(i, t):
    t = t + jax.lax.dynamic_index_in_dim(a, i).astype(jnp.uint64) * wide_b
    q = ((t[:1].astype(jnp.uint32) * np.uint32(modulus.negative_inverse)) & mask).astype(jnp.uint64)
    t = t + q * limbs
    carry = t[:1] >> bits
    return jnp.concatenate([t[1:2] + carry, t[2:], jnp.zeros_like(carry)])
  t = jax.lax.fori_loop(0, modulus.num, step, jnp.zeros(b.shape, jnp.uint64))
  masks = column([modulus.mask] * (modulus.num - 1) + [(1 << 64) - 1])
  for _ in range(3):                          # carries of 62 - 28, then of 6 bits, then of one
    over = t >> bits
    t = (t & masks) + jnp.concatenate([jnp.zeros_like(over[:1]), over[:-1]])
  return t.astype(jnp.uint32)


def unpack(modulus, words, shift=0):
  """Lazy from uint32[words, *batch], times 2^shift; the words hold a value below the modulus."""
  limbs = []
  for k in range(modulus.num):
    position = modulus.bits * k - shift                       # bit of the words where this limb starts
    j, offset = divmod(position, 32)
    limb = None
    if 0 <= j < modulus.words:
      limb = words[j] >> np.uint32(offset)
    if offset + modulus.bits > 32 and 0 <= j + 1 < modulus.words:
      high = words[j + 1] << np.uint32(32 - offset)
      limb = high if limb is None else limb | high
    limbs.append(limb & np.uint32(modulus.mask) if k < modulus.num - 1 else limb)
  return Lazy(modulus, limbs, 1 << shift)


def pack(value):
  """uint32[words, *batch] of a canonical Lazy."""
  modulus, limbs, words = value.modulus, _written_out(value.limbs), []
  for w in range(modulus.words):
    parts = []
    for k in range(modulus.num):
      offset = modulus.bits * k - 32 * w
      if -modulus.bits < offset < 32:
        parts.append(limbs[k] << np.uint32(offset) if offset >= 0 else limbs[k] >> np.uint32(-offset))
    words.append(functools.reduce(lambda a, b: a | b, parts))
  return jnp.stack(words)


def mul(modulus, a, b):
  """a b / R for canonical uint32[words, *batch]: below (2^shift modulus / R' + 1) modulus < 2 modulus, one conditional subtraction."""
  with jax.enable_x64(True):
    return pack((unpack(modulus, a, modulus.shift) * unpack(modulus, b)).canonical())
