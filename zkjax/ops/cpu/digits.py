"""The scalars of a sum on the CPU backend: their halves, signed digits, and these sorted into buckets, in NumPy. See `msm`."""
import collections
import threading
from typing import NamedTuple

import numpy as np

from zkjax.ops import bls12_381
from zkjax.ops.limbs import FP

SCALAR_BITS = bls12_381.R.bit_length()
SQUARE = bls12_381.X**2
HALF_BITS = SQUARE.bit_length()
_HALVED = 8192                               # scalars cut in half at a time: what stays in the second-level cache


def window_bits(num_points):
  """c, the widest window, that minimises additions: 2 points and 2 buckets a window, from the number of finite bases."""
  cost = lambda c: sum(2 * num_points + (1 << int(width)) for width in np.diff(window_places(c)))
  return min(range(2, 17), key=cost)


def num_windows(bits, scalar_bits=SCALAR_BITS):
  """Windows of a scalar; the top window keeps a spare bit for the carry of the signed digits below it."""
  return scalar_bits // bits + 1


def window_places(bits):
  """Where the windows of a half begin, in bits, and where the last one ends: as many as of `bits` bits, no wider than they need be."""
  count = num_windows(bits, HALF_BITS)
  width, wider = divmod(HALF_BITS + 1, count)
  return [w * width + min(w, wider) for w in range(count + 1)]


def halves(scalars):
  """uint32[4, 2n]: k0 and k1 of plain scalars uint32[8, n] below r, k = k0 + k1 x^2, beside each other."""
  out = np.empty((4, scalars.shape[1], 2), np.uint32)
  for start in range(0, scalars.shape[1], _HALVED):
    block = slice(start, start + _HALVED)
    out[:, block] = _halves(scalars[:, block, None].astype(np.int64))
  return out.reshape(4, -1)


def _halves(words):
  """As `halves`, int64[4, n, 2] of int64[8, n, 1], in limbs of 28 bits; the words have further bits above their 32.

  The quotient is estimated as floor(floor(k / 2^112) m / 2^168), m = floor(2^280 / x^2), without the lowest columns of that product:
  each of the three losses is below 2^-14, so that the estimate is at most one too small.
  """
  k = [bits_at(words, FP.bits * i) for i in range(10)]
  factor, divisor = ([v >> FP.bits * i & FP.mask for i in range(6)] for v in ((1 << 280) // SQUARE, SQUARE))
  columns = [sum(k[4 + i] * factor[c - i] for i in range(max(0, c - 5), min(5, c) + 1)) for c in range(4, 11)]
  quotient = carried(columns)[2:]             # of columns 6 to 10
  rest = carried([k[c] - sum(quotient[i] * divisor[c - i] for i in range(c + 1)) for c in range(5)])
  rest[4] &= FP.mask                           # mod 2^140, of a number below 2 x^2 < 2^129
  less = carried([v - d for v, d in zip(rest, divisor)])
  too_small = less[4] >= 0
  quotient[0] += too_small
  both = carried(np.concatenate([np.where(too_small, less, rest), quotient], -1))
  moved = lambda v, places: v << places if places >= 0 else v >> -places
  return np.stack([sum(moved(both[i], FP.bits * i - 32 * w) for i in range(5) if -FP.bits < FP.bits * i - 32 * w < 32) for w in range(4)])


def signed_digits(scalars, places):
  """int32[windows, n] of plain numbers uint32[words, n]: digits in [-2^(c-1), 2^(c-1)] of windows that begin at `places` and are c bits
  wide, the last of which has a spare bit."""
  words = [w.astype(np.int64) for w in scalars] + [np.zeros(scalars.shape[1], np.int64)] * 2
  digits, carry = np.empty((len(places) - 1, scalars.shape[1]), np.int32), 0
  for w, (place, end) in enumerate(zip(places, places[1:])):
    j, offset = divmod(place, 32)
    digit = (((words[j] >> offset) | (words[j + 1] << (32 - offset))) & ((1 << (end - place)) - 1)) + carry
    carry = (digit > 1 << (end - place - 1)).astype(np.int64)
    digits[w] = digit - (carry << (end - place))
  return digits


class Buckets(NamedTuple):
  """Digits sorted by bucket. keys: window << bits | |digit| of the non-empty buckets, in order, counts: their sizes; for every entry of
  a bucket in turn, `codes` is 4 i + 2 j + s for half j of scalar i, s = 1 where its digit is negative."""
  keys: np.ndarray
  counts: np.ndarray
  codes: np.ndarray


def buckets(digits, bits, windows, chosen=None):
  """Buckets of int32[windows, 2n], digits of `halves`, in a range of windows. chosen: the scalars that count, None for all of them;
  i in a code is a place in this list. The sort of one window is a radix sort (16-bit keys), and windows are already in order."""
  keys, counts, codes = [], [], []
  for w in windows:
    digit = digits[w] if chosen is None else digits[w].reshape(-1, 2)[chosen].reshape(-1)
    size = np.abs(digit).astype(np.uint16)
    count = np.bincount(size, minlength=1)
    if 2 * count[0] > len(size):
      nonzero = np.flatnonzero(size)
      order = nonzero[np.argsort(size[nonzero], kind="stable")].astype(np.int32)
    else:
      order = np.argsort(size, kind="stable")[count[0]:].astype(np.int32)
    used = np.flatnonzero(count[1:]) + 1
    keys.append((w << bits) + used)
    counts.append(count[used])
    codes.append(2 * order + (digit[order] < 0))
  return Buckets(*(np.concatenate([np.zeros(0, np.int32), *v]) for v in (keys, counts, codes)))


class Scalars:
  """Plain scalars uint32[8, n] below r, and their buckets: made once for all bases that take the same scalars. No repr of the content."""

  def __init__(self, words):
    self.words, self._made, self._locks = words, {}, collections.defaultdict(threading.Lock)

  def large(self):
    """bool[n]: which are above 2^32."""
    return self.words[1:].any(axis=0)

  def buckets(self, bits, windows, chosen):
    """The Buckets of a range of windows up to `bits` wide, see `window_places`, and of the scalars int32[k] `chosen`, in order."""
    chosen = None if len(chosen) == self.words.shape[1] else chosen
    what = bits, windows, chosen if chosen is None else chosen.tobytes()
    return self._once(what, lambda: buckets(self._digits(bits), bits, windows, chosen))

  def _digits(self, bits):
    halved = self._once("halves", lambda: halves(self.words))
    return self._once(bits, lambda: signed_digits(halved, window_places(bits)))

  def _once(self, what, make):
    with self._locks[what]:
      if what not in self._made:
        self._made[what] = make()
      return self._made[what]


def bits_at(words, position):
  """FP.bits bits of int64[words, ...] from a bit position on, which may be negative."""
  j, offset = divmod(position, 32)
  low = words[j] >> offset if j >= 0 else 0
  high = words[j + 1] << (32 - offset) if j + 1 < len(words) else 0
  return (low | high) & FP.mask


def carried(limbs):
  """int64[..., limbs, degree, n], every limb but the last in [0, 2^bits), of signed limbs [..., degree, n]."""
  out, carry = [], 0
  for v in limbs[:-1]:
    v = v + carry
    out.append(v & FP.mask)
    carry = v >> FP.bits
  return np.stack(out + [limbs[-1] + carry], axis=-3)
