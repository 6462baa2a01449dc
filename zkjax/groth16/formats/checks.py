"""What every reader asks of untrusted numbers: below the modulus, on the curve, in the subgroup. Failures name file and offset."""
import dataclasses

import jax
import numpy as np

from zkjax.groth16.types import FormatError
from zkjax.ops import bls12_381, curve
from zkjax.ops.field import Fp2
from zkjax.ops.int_curve import G1, G2

CHECKS = ("none", "points", "full")
_FEW_POINTS = 1024                            # up to this many, Python ints (1 ms a point) cost less than compiling for JAX
_BLOCK_POINTS = 1 << 14                       # more are checked in blocks of one shape: one compilation, bounded memory


@dataclasses.dataclass(frozen=True)
class Place:
  """Where bytes come from, for error messages: offsets given to `error` count from `start`."""
  file: object = None
  section: object = None
  start: int = 0

  def error(self, message, offset=0):
    """A FormatError to raise, `offset` bytes after the start of this place."""
    return FormatError(message, file=self.file, section=self.section, offset=self.start + offset)


def check_level(check):
  """Returns `check`, one of "none", "points" (coordinates below p, on the curve) and "full" (in the subgroup too)."""
  if check not in CHECKS:
    raise ValueError(f"check must be one of {CHECKS}, got {check!r}")
  return check


def little_endian_words(value, num_words):
  """`value` as uint32[num_words], least significant first."""
  return np.frombuffer(value.to_bytes(4 * num_words, "little"), "<u4")


def first_not_below(words, modulus):
  """Index of the first row of `words` (uint32[n, k], little-endian rows) that is not below `modulus`, or None.

  Rows whose top word is below the modulus's are done; the few others are compared word by word.
  """
  limit = little_endian_words(modulus, words.shape[1])
  rows = np.flatnonzero(words[:, -1] >= limit[-1])
  below, equal = np.zeros(len(rows), bool), np.ones(len(rows), bool)
  for k in reversed(range(words.shape[1])):
    column = words[rows, k]
    below |= equal & (column < limit[k])
    equal &= column == limit[k]
  return None if below.all() else int(rows[np.argmin(below)])


def check_below(words, modulus, name, place, *, offset=0, stride):
  """Raises FormatError unless every row of `words` is below `modulus`. Row i lies at offset + i * stride of `place`."""
  index = first_not_below(words, modulus)
  if index is not None:
    raise place.error(f"{name} {index} is not below the modulus", offset + index * stride)


def check_coordinates(words, name, place, *, offset=0):
  """Raises FormatError unless all coordinates are below p. words: uint32[n, 12 * coordinates], n points one after the other."""
  size = 4 * words.shape[1]
  for k in range(words.shape[1] // 12):
    check_below(words[:, 12 * k:12 * k + 12], bls12_381.P, name, place, offset=offset + 48 * k, stride=size)


def check_points(points, check, name, place, *, offset=0, stride):
  """Raises FormatError at the first point that is off the curve or, with check="full", outside the subgroup of order r.

  Args: points: Affine[n], coordinates already known to be below p, point i at offset + i * stride of `place`.
  """
  if check == "none" or points.x.shape[0] == 0:
    return
  few = points.x.shape[0] <= _FEW_POINTS
  group = G2 if isinstance(points.x, Fp2) else G1
  integers = points.to_ints() if few else None
  tests = [(group.is_on_curve, curve.is_on_curve, "is not on the curve")]
  tests += [(group.is_in_subgroup, curve.is_in_subgroup, "is not in the subgroup of order r")] if check == "full" else []
  for on_ints, on_arrays, message in tests:
    good = np.array([on_ints(p) for p in integers]) if few else _in_blocks(on_arrays, points)
    if not good.all():
      index = int(np.argmin(good))
      raise place.error(f"{name} {index} {message}", offset + index * stride)


def _in_blocks(test, points):
  """bool[n]: test(points), on blocks of equal size; the last one is filled up with infinity."""
  count, results = points.x.shape[0], []
  for start in range(0, count, _BLOCK_POINTS):
    size = min(_BLOCK_POINTS, count - start)
    pad = lambda limbs, a=start, n=size: np.pad(np.asarray(limbs[:, a:a + n]), ((0, 0), (0, _BLOCK_POINTS - n)))
    results.append(np.asarray(test(jax.tree.map(pad, points)))[:size])
  return np.concatenate(results)
