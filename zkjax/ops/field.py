"""Prime fields Fr and Fp of BLS12-381 and the quadratic extension Fp2 = Fp[u] / (u^2 + 1).

An element is a batch: leaves uint32[num_limbs, *batch], little-endian 32-bit limbs in Montgomery form with R = 2^(32 num_limbs), always
below the modulus. Operators work eagerly (one compilation a shape), inside jit, and under vmap over a leading axis of the leaves.

Two rules keep the portable code fast. Compile time follows the number of multiplications in a graph, so independent products are stacked
along a new batch axis and made by one (`products`). Speed on the CPU follows the cache, so a large batch goes through a formula in blocks
of lanes of the last batch axis (`lanewise`), not through one operation after the other.
"""
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from zkjax.ops import bls12_381, limbs, words
from zkjax.ops.gpu import support
from zkjax.ops.programs import stored
from zkjax.pytree import pytree

_BLOCK_LANES = 128                           # a block of a dozen values of 12 limbs stays in the cache nearest to the core
_MAX_STRAIGHT_LANES = 2048                   # up to here blocks gain nothing
_CHUNK = 4096                                # elements a call when converting on the host
_FEW = 512                                   # up to here Python integers are faster than a compilation
_MIN_INVERSIONS = 16                         # lanes below which a product on the CPU gets no cheaper
_CHAIN = 512                                 # products a lane in one pass of a batch inversion: an inversion costs about as much


# Batches: what holds for everything made of field elements

class Batched:
  """A pytree of leaves uint32[num_limbs, *batch] that share their batch: fields and points. Indices and shapes are those of the batch."""

  @property
  def shape(self):
    """The batch shape."""
    return jax.tree.leaves(self)[0].shape[1:]

  def __getitem__(self, index):
    index = index if isinstance(index, tuple) else (index,)
    traced = any(isinstance(i, jax.Array) for i in index)
    return jax.tree.map(lambda v: (jnp.asarray(v) if traced else v)[(slice(None),) + index], self)

  def reshape(self, shape):
    """The same elements in another batch shape, which may contain one -1."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return jax.tree.map(lambda v: v.reshape(v.shape[:1] + shape), self)

  def broadcast_to(self, shape):
    """Repeated along new and unit axes of the batch."""
    return broadcast(self, shape=shape)[0]

  def select(self, condition, other):
    """self where `condition` (bool, broadcast against the batch), else `other`."""
    condition = jnp.asarray(condition)
    a, b = broadcast(self, other, shape=condition.shape)
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def broadcast(*trees, shape=()):
  """The trees with all their batches broadcast against each other and against `shape`, at no cost where they agree."""
  leaves = jax.tree.leaves(trees)
  shape = np.broadcast_shapes(shape, *{v.shape[1:] for v in leaves})

  def widen(v):
    if v.shape[1:] == shape:
      return v
    library = jnp if isinstance(v, jax.Array) else np
    return library.broadcast_to(v.reshape(v.shape[:1] + (1,) * (len(shape) - v.ndim + 1) + v.shape[1:]), v.shape[:1] + shape)
  return jax.tree.map(widen, trees)


def stack(elements, axis=0):
  """One batch from equal batches, along a new axis of the batch."""
  return jax.tree.map(lambda *v: jnp.stack(v, axis + 1 if axis >= 0 else axis), *elements)


def concatenate(elements, axis=0):
  """One batch from several, joined along an axis of the batch."""
  return jax.tree.map(lambda *v: jnp.concatenate(v, axis + 1 if axis >= 0 else axis), *elements)


def lanewise(fn):
  """Makes a formula that treats every element alike callable on any batches that broadcast: compiled once a shape, in blocks if large.

  Args and result of `fn` are trees of leaves [rows, *batch]; a boolean result has no rows, [*batch].
  """
  compiled = jax.jit(lambda *trees: in_blocks(fn, *broadcast(*trees)))
  return functools.wraps(fn)(lambda *trees: compiled(*trees))


def in_blocks(fn, *trees, lanes=_BLOCK_LANES):
  """fn(*trees); on the CPU in blocks of `lanes` of the last batch axis if that is long.

  All results go into one array that is updated in place: XLA copies the whole of several arrays updated in one loop, at every step. The
  last block overlaps the one before it, because slices are clamped to the array.
  """
  shape = jax.tree.leaves(trees)[0].shape
  if len(shape) < 2 or shape[-1] <= _MAX_STRAIGHT_LANES:
    return fn(*trees)
  return lax.platform_dependent(*trees, cpu=functools.partial(_loop_over_lanes, fn, lanes), default=fn)


def _loop_over_lanes(fn, lanes, *trees):
  count = jax.tree.leaves(trees)[0].shape[-1]
  block = lambda i: jax.tree.map(lambda v: lax.dynamic_slice_in_dim(v, i * lanes, lanes, v.ndim - 1), trees)
  results, structure = jax.tree.flatten(jax.eval_shape(lambda: fn(*block(0))))
  rows = [v.size // lanes for v in results]
  flat = lambda tree: jnp.concatenate([v.astype(jnp.uint32).reshape((-1, lanes)) for v in jax.tree.leaves(tree)])
  step = lambda i, out: lax.dynamic_update_slice_in_dim(out, flat(fn(*block(i))), i * lanes, 1)
  out = lax.fori_loop(0, -(-count // lanes), step, jnp.zeros((sum(rows), count), jnp.uint32))
  parts = jnp.split(out, np.cumsum(rows)[:-1])
  return jax.tree.unflatten(structure, [p.astype(v.dtype).reshape(v.shape[:-1] + (count,)) for p, v in zip(parts, results)])


# Operators: one implementation for prime fields and their extension

def _multiplication(modulus):
  """The one place where prime field elements are multiplied: canonical uint32[words, *batch], equal batches. vmap adds a batch axis."""
  @jax.custom_batching.custom_vmap
  def mul(a, b):
    branches = {"cpu": _mul_in_blocks, "default": limbs.mul}
    if support.usable():
      from zkjax.ops.gpu import field as kernels
      branches["cuda"] = kernels.mul
    return lax.platform_dependent(a, b, **{name: functools.partial(branch, modulus) for name, branch in branches.items()})

  @mul.def_vmap
  def _(size, batched, a, b):
    inside = lambda v, mapped: jnp.moveaxis(v, 0, 1) if mapped else jnp.broadcast_to(v[:, None], v.shape[:1] + (size,) + v.shape[1:])
    return jnp.moveaxis(mul(inside(a, batched[0]), inside(b, batched[1])), 1, 0), True
  return mul


def _mul_in_blocks(modulus, a, b):
  """words.mul, in blocks that stay in the cache."""
  rows, lanes = a.shape[0], math.prod(a.shape[1:])
  if lanes <= 2 * _BLOCK_LANES:
    return words.mul(modulus, a, b)
  a_flat, b_flat = a.reshape((rows, lanes)), b.reshape((rows, lanes))

  def step(i, out):
    x, y = (lax.dynamic_slice_in_dim(v, i * _BLOCK_LANES, _BLOCK_LANES, 1) for v in (a_flat, b_flat))
    return lax.dynamic_update_slice_in_dim(out, words.mul(modulus, x, y), i * _BLOCK_LANES, 1)
  return lax.fori_loop(0, -(-lanes // _BLOCK_LANES), step, jnp.zeros_like(a_flat)).reshape(a.shape)


_product = lanewise(lambda a, b: a._times(b))
_sum = lanewise(lambda a, b: jax.tree.map(functools.partial(words.add, type(a)._base), a, b))
_difference = lanewise(lambda a, b: jax.tree.map(functools.partial(words.sub, type(a)._base), a, b))
_equal = lanewise(lambda a, b: functools.reduce(jnp.logical_and, [jnp.all(x == y, axis=0) for x, y in zip(*map(jax.tree.leaves, (a, b)))]))


@jax.jit
def _power(x, schedule, count):
  """The product of x and ones that the schedule describes: for each entry square (0) or multiply by x (1), from 1."""
  def run(x):
    step = lambda i, total: total * x.select(schedule[i] == 1, total)
    return lax.fori_loop(0, count, step, type(x).ones(x.shape))
  return in_blocks(run, x)


class _Field(Batched):
  """Operators of a field, and of vectors of its elements."""

  def __add__(self, other):
    return _sum(self, other) if type(other) is type(self) else NotImplemented

  def __sub__(self, other):
    return _difference(self, other) if type(other) is type(self) else NotImplemented

  def __mul__(self, other):
    return _product(self, other) if type(other) is type(self) else NotImplemented

  def __neg__(self):
    return type(self).zeros(()) - self

  def square(self):
    """self * self."""
    return self * self

  def double(self):
    """self + self."""
    return self + self

  def pow(self, exponent):
    """self^exponent for a Python integer >= 0, with 0^0 = 1. Binary, left to right: one compilation serves every exponent."""
    if exponent < 0:
      raise ValueError(f"exponent must be >= 0, got {exponent}; use inverse()")
    group = self.order - 1                                     # x^group = 1 for x != 0
    exponent = exponent if exponent <= group else (exponent - 1) % group + 1
    digits = bin(exponent)[2:].replace("1", "01")[1:] if exponent else ""
    schedule = np.array([digits.startswith("1")] + [int(d) for d in digits[1:]] if exponent else [], np.uint8)
    return _power(self, np.pad(schedule, (0, 2 * group.bit_length() - len(schedule))), len(schedule))

  def equals(self, other):
    """bool[*batch]."""
    return _equal(self, other)

  def is_zero(self):
    """bool[*batch]."""
    return _equal(self, type(self).zeros(()))


def products(*pairs):
  """[a * b for a, b in pairs], made by one multiplication of stacked operands."""
  size = len(pairs)
  operands = broadcast(*(v for pair in pairs for v in pair))
  product = stack(operands[::2]) * stack(operands[1::2])
  return [product[i] for i in range(size)]


class _PrimeField(_Field):
  @classmethod
  def from_ints(cls, values):
    """Field elements from Python ints (any sign and size, reduced mod the modulus), nested lists giving the batch shape."""
    array = np.array(values, dtype=object)
    data = b"".join((int(v) * cls.R % cls.modulus).to_bytes(4 * cls.num_limbs, "little") for v in array.reshape(-1))
    return cls(np.frombuffer(data, np.uint32).reshape((-1, cls.num_limbs)).T.reshape((cls.num_limbs,) + array.shape))

  def to_ints(self):
    """Canonical Python ints in [0, modulus): an int for a single element, else nested lists."""
    array = np.asarray(self.limbs)
    shape = array.shape[1:]
    rows = np.ascontiguousarray(array.reshape((self.num_limbs, -1)).T)
    width, inverse = 4 * self.num_limbs, pow(self.R, -1, self.modulus)
    data = rows.tobytes()
    ints = [int.from_bytes(data[i:i + width], "little") * inverse % self.modulus for i in range(0, len(data), width)]
    out = np.empty(len(ints), dtype=object)
    out[:] = ints
    return out.reshape(shape).tolist() if shape else ints[0]

  @classmethod
  def from_plain(cls, plain):
    """From plain (not Montgomery) canonical uint32[num_limbs, *batch]: v R^2 / R. Arrays give NumPy limbs, one compilation for all."""
    return cls(plain)._scaled(cls.R)

  def to_plain(self):
    """Plain canonical uint32[num_limbs, *batch]: (v R) 1 / R."""
    return self._scaled(pow(self.R, -1, self.modulus)).limbs

  def _scaled(self, factor):
    """self * factor. On the host chunk by chunk, all of one shape, so that a new length never compiles."""
    cls = type(self)
    if isinstance(self.limbs, jax.core.Tracer) or isinstance(self.limbs, jax.Array) and support.usable():
      return self * cls.from_ints(factor)       # what lies on a GPU stays there
    array = np.asarray(self.limbs)
    flat = array.reshape((cls.num_limbs, -1))
    count = flat.shape[1]
    if count <= _FEW:
      return cls.from_ints(np.array(self.to_ints(), dtype=object) * factor)
    out, constant = np.empty_like(flat, order="C"), cls.from_ints([factor])
    chunks = [(start, min(_CHUNK, count - start)) for start in range(0, count, _CHUNK)]
    calls = [_product_limbs(cls(np.pad(flat[:, a:a + n], ((0, 0), (0, _CHUNK - n)))), constant) for a, n in chunks]
    for (start, size), result in zip(chunks, calls):
      out[:, start:start + size] = np.asarray(result)[:, :size]
    return cls(out.reshape(array.shape))

  def bits(self):
    """uint32[num_bits, *batch], zeros and ones: the plain value, low bit first."""
    plain = self.to_plain()
    rows = [(plain[i // 32] >> np.uint32(i % 32)) & np.uint32(1) for i in range(self.modulus.bit_length())]
    return (jnp if isinstance(plain, jax.Array) else np).stack(rows)

  @classmethod
  def zeros(cls, shape):
    """The element 0, repeated."""
    return cls(np.zeros((cls.num_limbs,) + np.empty(shape, np.void).shape, np.uint32))

  @classmethod
  def ones(cls, shape):
    """The element 1, repeated."""
    return cls.from_ints(1).broadcast_to(shape)

  def _times(self, other):
    return type(self)(self._mul(self.limbs, other.limbs))

  def inverse(self):
    """1 / self by Fermat, self^(modulus - 2); 0 for 0. About 1.5 products a bit: use `batch_inverse` for many."""
    return self.pow(self.modulus - 2)


@stored
def _product_limbs(a, b):
  return (a * b).limbs


@pytree
class Fr(_PrimeField):
  """Scalars mod r: uint32[8, *batch], little-endian 32-bit limbs, Montgomery with R = 2^256, always < r."""
  limbs: object


@pytree
class Fp(_PrimeField):
  """Base field mod p: uint32[12, *batch], little-endian 32-bit limbs, Montgomery with R = 2^384, always < p."""
  limbs: object


for _cls, _base in ((Fr, limbs.FR), (Fp, limbs.FP)):
  _cls._base, _cls.num_limbs, _cls.modulus, _cls.order = _base, _base.words, _base.value, _base.value
  _cls.R, _cls._mul = (1 << 32 * _base.words) % _base.value, staticmethod(_multiplication(_base))


@pytree
class Fp2(_Field):
  """c0 + c1 u with u^2 = -1."""
  c0: Fp
  c1: Fp

  @classmethod
  def from_ints(cls, values):
    """From pairs (c0, c1): the last axis of nested `values` has length 2."""
    array = np.array(values, dtype=object)
    return cls(Fp.from_ints(array[..., 0]), Fp.from_ints(array[..., 1]))

  def to_ints(self):
    """A tuple (c0, c1) for a single element, else nested lists of tuples."""
    zipped = lambda a, b: [zipped(x, y) for x, y in zip(a, b)] if isinstance(a, list) else (a, b)
    return zipped(self.c0.to_ints(), self.c1.to_ints())

  @classmethod
  def zeros(cls, shape):
    """The element 0, repeated."""
    return cls(Fp.zeros(shape), Fp.zeros(shape))

  @classmethod
  def ones(cls, shape):
    """The element 1, repeated."""
    return cls(Fp.ones(shape), Fp.zeros(shape))

  def _times(self, other):
    """Karatsuba: (a0 b0 - a1 b1) + ((a0 + a1)(b0 + b1) - a0 b0 - a1 b1) u, the three products made by one multiplication."""
    sums = stack([self.c0, other.c0]) + stack([self.c1, other.c1])
    low, high, cross = products((self.c0, other.c0), (self.c1, other.c1), (sums[0], sums[1]))
    differences = stack([low, cross]) - stack([high, low])
    return Fp2(differences[0], differences[1] - high)

  def conjugate(self):
    """c0 - c1 u, which is self^p."""
    return Fp2(self.c0, -self.c1)

  def scale(self, factor):
    """self * factor for a factor in Fp."""
    return Fp2(*products((self.c0, factor), (self.c1, factor)))

  def norm(self):
    """c0^2 + c1^2 in Fp."""
    a, b = products((self.c0, self.c0), (self.c1, self.c1))
    return a + b

  def inverse(self):
    """conjugate / norm; 0 for 0."""
    return self.conjugate().scale(self.norm().inverse())


Fp2._base, Fp2.order = limbs.FP, bls12_381.P**2


# Many inverses for one

def batch_inverse(x):
  """1 / x along the last batch axis, 0 for 0: 3 products an element (Montgomery's trick, Math. Comp. 48, 1987) and a few inversions in all.

  The axis is folded into chains of about 500 elements, which one scan multiplies up side by side, and another, backwards, takes apart:
  with prefix[t] = x[0] ... x[t - 1], 1 / x[t] = prefix[t] / prefix[t + 1]. Every loop has one multiplication and one stacked result, the
  value carried in (XLA would copy others at every step). An element of Fp2 is inverted by its norm.
  """
  return _batch_inverse(x)


@jax.jit
def _batch_inverse(x):
  if isinstance(x, Fp2):
    return x.conjugate().scale(_batch_inverse(x.norm()))
  if not x.shape:
    return x.inverse()
  count = x.shape[-1]
  chains = max(_MIN_INVERSIONS, 1 << (-(-count // _CHAIN) - 1).bit_length())
  if count <= chains:
    return x.inverse()
  steps, lead, zero = -(-count // chains), x.shape[:-1], x.is_zero()
  safe = type(x).ones(()).select(zero, x)
  safe = concatenate([safe, type(x).ones(lead + (steps * chains - count,))], axis=-1).reshape(lead + (steps, chains))
  safe = jax.tree.map(lambda v: jnp.moveaxis(v, -2, 0), safe)   # [steps, limbs, *lead, chains]

  total, prefixes = lax.scan(lambda product, v: (product * v, product), type(x).ones(lead + (chains,)), safe)

  def step(state, v):
    suffix, previous = state
    return tuple(products((suffix, v[1]), (suffix, v[0]))), previous
  (_, first), others = lax.scan(step, (total.inverse(), total), (prefixes, safe), reverse=True)
  inverses = jax.tree.map(lambda a, b: jnp.moveaxis(jnp.concatenate([a[None], b[:-1]]), 0, -2), first, others)
  return type(x).zeros(()).select(zero, inverses.reshape(lead + (steps * chains,))[..., :count])
