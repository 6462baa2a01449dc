"""Number-theoretic transforms: polynomials mod r between coefficients and evaluations on the cosets of the 2-power roots of unity."""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from zkjax.ops import bls12_381
from zkjax.ops.bls12_381 import R
from zkjax.ops.cpu import ntt as portable
from zkjax.ops.field import Fr
from zkjax.ops.gpu import support

_ORDERS = ("natural", "bit_reversed")


@dataclasses.dataclass(frozen=True)
class Domain:
  """The coset shift * <w> of 2^log2_size points, w = generator^((r - 1) / 2^log2_size).

  The non-residue `generator` is 5 for snarkjs and 7 for bellman, arkworks and gnark: domains of more than 4 points differ. Hashable: a
  static argument under jit.
  """
  log2_size: int
  generator: int = bls12_381.SNARKJS_GENERATOR
  shift: int = 1

  def __post_init__(self):
    if not 0 <= self.log2_size <= bls12_381.TWO_ADICITY:
      raise ValueError(f"log2_size must be in [0, {bls12_381.TWO_ADICITY}], the 2-adicity of r - 1, got {self.log2_size}")
    if pow(self.generator, (R - 1) // 2, R) != R - 1:
      raise ValueError(f"generator must be a quadratic non-residue mod r such as 5 or 7, got {self.generator}")
    if not 0 < self.shift < R:
      raise ValueError(f"shift must be in [1, r), got {self.shift}")

  @property
  def size(self):
    """n, the number of points."""
    return 1 << self.log2_size

  @property
  def root(self):
    """w, of order n."""
    return bls12_381.root_of_unity(self.log2_size, self.generator)

  def coset(self, shift):
    """The coset shift * <w> of the same size. bellman and arkworks: shift = generator; snarkjs: see `odd_coset`."""
    return dataclasses.replace(self, shift=shift % R)

  def odd_coset(self):
    """snarkjs' coset w_2n * <w>, the odd powers of the root of order 2n, where X^n - 1 = -2. For 2^32 points its shift is generator^2."""
    if self.log2_size == bls12_381.TWO_ADICITY:
      return self.coset(self.generator**2)
    return self.coset(bls12_381.root_of_unity(self.log2_size + 1, self.generator))

  @property
  def vanishing(self):
    """x^n - 1 for x in the coset, an integer: shift^n - 1. Zero on <w> itself."""
    return (pow(self.shift, self.size, R) - 1) % R

  @property
  def inverse_vanishing(self):
    """1 / (x^n - 1) for x in the coset. Raises ValueError on <w> itself, where x^n - 1 = 0."""
    if self.vanishing == 0:
      raise ValueError("X^n - 1 vanishes on this domain, there is nothing to divide by: use a coset")
    return pow(self.vanishing, -1, R)

  def elements(self):
    """[shift * w^i for i < n], as integers."""
    points, root = [self.shift], self.root
    for _ in range(self.size - 1):
      points.append(points[-1] * root % R)
    return points


def twiddles(domain):
  """Tables of the roots of unity for a GPU's kernels, None elsewhere: given to the functions below they need not be made each time."""
  if not support.usable():
    return None
  from zkjax.ops.gpu import ntt as gpu
  return tuple(jax.jit(gpu.twiddles, static_argnums=(0, 1))(root, domain.log2_size) for root in (domain.root, pow(domain.root, -1, R)))


def ntt(domain, values, order="natural", tables=None):
  """Evaluations on `domain`: out[k] = sum_j values[j] x_k^j, x_k = shift w^k.

  Args:
    domain: Domain of n points.
    values: Fr[n], coefficients from the constant term up. Batches: vmap over a leading axis of the leaf.
    order: of the result. "natural", or "bit_reversed": out[k] at the place of k with its bits reversed.
    tables: `twiddles(domain)`, or of a coset of it.

  Returns:
    Fr[n].

  Raises:
    ValueError: another number of values than points, or another order.

  Cost: (n / 2) log2 n products, and on the CPU n for twiddles, once for all vectors of a batch. On an accelerator "bit_reversed" saves a
  permutation that an inverse transform with the same order does not need; on the CPU "natural" is the cheap one.
  """
  return Fr(_dispatch(functools.partial(_transform, domain, False, order), _checked(domain, values, order), tables))


def intt(domain, values, order="natural", tables=None):
  """The inverse of `ntt`: coefficients (in natural order) from evaluations in the given order, c_j = shift^-j / n sum_k values[k] w^(-jk).

  Args, raises and cost: as `ntt`; n more products on a coset.
  """
  return Fr(_dispatch(functools.partial(_transform, domain, True, order), _checked(domain, values, order), tables))


def extend(domain, coset, values, tables=None):
  """Evaluations on `coset` of the polynomial of degree < n with the given evaluations on `domain`: ntt(coset, intt(domain, values)).

  Args: domain, coset: Domains that differ in their shift only. values: Fr[n], in natural order, as the result is.

  Raises: ValueError: as `ntt`, or domains of another size or root.

  Cost: of the two transforms; where the kernels run, no permutation.
  """
  if dataclasses.replace(coset, shift=domain.shift) != domain:
    raise ValueError(f"expected cosets of the same roots of unity, got {domain} and {coset}")
  return Fr(_dispatch(functools.partial(_extended, domain, coset), _checked(domain, values, "natural"), tables))


def _checked(domain, values, order):
  if order not in _ORDERS:
    raise ValueError(f"order must be one of {_ORDERS}, got {order!r}")
  if not isinstance(values, Fr) or values.shape != (domain.size,):
    got = f"Fr of shape {values.shape}" if isinstance(values, Fr) else type(values).__name__
    raise ValueError(f"the domain has {domain.size} points and takes Fr of that shape, got {got}; batches go through jax.vmap")
  return jnp.asarray(values.limbs)


def _dispatch(function, words, tables):
  """`function` of uint32[P, 8, n] on uint32[8, n]; under vmap all batch axes become one, as a block of lanes must stay in the cache."""
  @jax.custom_batching.custom_vmap
  def batched(words, tables):
    return function(words, tables)

  @batched.def_vmap
  def _(axis_size, in_batched, words, tables):
    if any(jax.tree.leaves(in_batched[1])):
      raise ValueError("tables of roots of unity are shared: do not map over them")
    flat = words.reshape((-1,) + words.shape[2:])
    return batched(flat, tables).reshape((axis_size,) + words.shape[1:]), True
  return batched(words[None], tables)[0]


def _transform(domain, inverse, order, words, tables):
  """uint32[P, 8, n] to uint32[P, 8, n]: where implementations meet, chosen by the platform this is lowered for."""
  def kernels(words, tables):
    from zkjax.ops.gpu import ntt as gpu
    flip = _reversed(domain.log2_size) if order == "natural" else slice(None)
    if inverse:
      return gpu.transform(words[:, :, flip], domain.root, domain.shift, True, tables=tables)
    return gpu.transform(words, domain.root, domain.shift, tables=tables)[:, :, flip]
  return _by_platform(functools.partial(_portable, domain, inverse, order), kernels, words, tables)


def _extended(domain, coset, words, tables):
  def portable_extension(words):
    ratio = None if domain.shift == 1 else 1                # so that both plans have one form
    return portable.transforms(words, [_inverse_plan(domain), portable.plan(coset.log2_size, coset.root, coset.shift, 1, ratio)])

  def kernels(words, tables):
    from zkjax.ops.gpu import ntt as gpu
    return gpu.extend(words, domain.root, coset.shift * pow(domain.shift, -1, R) % R, tables=tables)
  return _by_platform(portable_extension, kernels, words, tables)


def _by_platform(portable, kernels, words, tables):
  if not support.usable():
    return portable(words)
  return lax.platform_dependent(words, tables, cuda=kernels, default=lambda words, _: portable(words))


def _portable(domain, inverse, order, words):
  if inverse:
    words = words if order == "natural" else words[:, :, _reversed(domain.log2_size)]
    return portable.transform(words, _inverse_plan(domain))
  out = portable.transform(words, portable.plan(domain.log2_size, domain.root, domain.shift))
  return out if order == "natural" else out[:, :, _reversed(domain.log2_size)]


def _inverse_plan(domain):
  root, size, shift = (pow(v, -1, R) for v in (domain.root, domain.size, domain.shift))
  return portable.plan(domain.log2_size, root, scale=size, ratio=None if shift == 1 else shift)


def _reversed(num_bits):
  """int32[2^num_bits] of bit-reversed indices, made in the graph: a constant of that size would be megabytes."""
  index, out = jnp.arange(1 << num_bits, dtype=jnp.uint32), jnp.zeros(1 << num_bits, jnp.uint32)
  for bit in range(num_bits):
    out = out | ((index >> np.uint32(bit)) & np.uint32(1)) << np.uint32(num_bits - 1 - bit)
  return out.astype(jnp.int32)
