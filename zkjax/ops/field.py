"""Prime fields Fr and Fp of BLS12-381 and the quadratic extension Fp2 (draft skeleton: conversions only)."""
import numpy as np

from zkjax.ops import bls12_381
from zkjax.pytree import pytree


def _map(value, fn):
  return [_map(v, fn) for v in value] if isinstance(value, (list, tuple)) else fn(int(value))


class _PrimeField:
  @classmethod
  def from_ints(cls, values):
    """Field elements from Python ints (any sign and size, reduced mod the modulus), nested lists giving the batch shape."""
    array = np.array(values, dtype=object)
    data = b"".join((int(v) * cls.R % cls.modulus).to_bytes(4 * cls.num_limbs, "little") for v in array.reshape(-1))
    limbs = np.frombuffer(data, np.uint32).reshape((-1, cls.num_limbs)).T.reshape((cls.num_limbs,) + array.shape)
    return cls(limbs)

  def to_ints(self):
    """Canonical Python ints in [0, modulus): an int for a single element, else nested lists."""
    limbs = np.asarray(self.limbs)
    shape = limbs.shape[1:]
    rows = np.ascontiguousarray(limbs.reshape((self.num_limbs, -1)).T)
    width, inverse = 4 * self.num_limbs, pow(self.R, -1, self.modulus)
    data = rows.tobytes()
    ints = [int.from_bytes(data[i:i + width], "little") * inverse % self.modulus for i in range(0, len(data), width)]
    out = np.empty(len(ints), dtype=object)
    out[:] = ints
    return out.reshape(shape).tolist() if shape else ints[0]

  @classmethod
  def from_plain(cls, limbs):
    """From plain (not Montgomery) canonical uint32[num_limbs, *batch]."""
    scaled = cls(np.asarray(limbs)).to_ints()                    # v / R
    return cls.from_ints(np.array(scaled, dtype=object) * cls.R)

  def to_plain(self):
    """Plain canonical uint32[num_limbs, *batch]."""
    return type(self).from_ints(np.array(self.to_ints(), dtype=object) * pow(self.R, -1, self.modulus)).limbs

  @property
  def shape(self):
    return self.limbs.shape[1:]


@pytree
class Fr(_PrimeField):
  """Scalars mod r: uint32[8, *batch], little-endian 32-bit limbs, Montgomery with R = 2^256, always < r."""
  limbs: object


@pytree
class Fp(_PrimeField):
  """Base field mod p: uint32[12, *batch], little-endian 32-bit limbs, Montgomery with R = 2^384, always < p."""
  limbs: object


for _cls, _n, _m in ((Fr, 8, bls12_381.R), (Fp, 12, bls12_381.P)):
  _cls.num_limbs, _cls.modulus, _cls.R = _n, _m, (1 << 32 * _n) % _m


@pytree
class Fp2:
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

  @property
  def shape(self):
    return self.c0.shape
