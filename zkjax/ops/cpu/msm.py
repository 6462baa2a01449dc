"""Multi-scalar multiplication on the CPU backend: plans in NumPy, additions in `affine.batch_add`.

sum_i k_i P_i by signed windows (Pippenger): k_i = sum_w d_(i,w) 2^place_w with |d| <= 2^(c-1). Point i falls into bucket |d| of window w
with its sign, a bucket's sum S_(w,b) counts b times, and sum_b b S_(w,b) is taken bit by bit: first over the two halves of the bits of
b, then over the bits. Each of these steps is the same operation, `group_sums`: given points grouped into lists, the sum of every list.

Points have order r, so that half of the windows are enough, for twice as many points (Gallant, Lambert, Vanstone 2001): k = k0 + k1 x^2
with the curve parameter x, both below x^2 < 2^128, and [x^2](X, Y) = (beta X, -Y) with a cube root of unity beta in Fp.

A list is cut into pieces of bounded length, so that no distribution of scalars leaves one lane with all the work; a piece is added
serially, one entry a step, while tens of thousands of pieces share each step's inversion. Zero digits and infinite bases cost nothing.
See `affine` for what happens when points coincide.
"""
import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from zkjax.ops.cpu import affine
from zkjax.ops.cpu.digits import Scalars, bits_at, carried, window_bits, window_places
from zkjax.ops.int_curve import G1, G2
from zkjax.ops.limbs import FP

_BLOCK = affine.ROWS * affine.LANES
_GATHERED = 32                               # rows of lanes gathered at a time: what stays in the second-level cache
_FEW = 32                                    # up to so many points Python integers take a few milliseconds, and nothing is compiled


@dataclasses.dataclass(frozen=True, eq=False)
class Bases:
  """Prepared fixed bases of order r: finite points only.

  rows: uint32[kept, 4, point_limbs / 2]: X, beta X, Y, -Y of a point (X, Y). kept: the scalars, of `num_scalars`, that the points go with.
  """
  degree: int
  num_scalars: int
  kept: np.ndarray
  rows: np.ndarray


def prepare(points, offset=0):
  """Bases from an Affine batch [n] of G1 or G2 points of order r (host arrays are read in place); point i goes with scalar offset + i."""
  parts = [points.x.c0, points.x.c1, points.y.c0, points.y.c1] if hasattr(points.x, "c0") else [points.x, points.y]
  degree = len(parts) // 2
  words = np.stack([np.asarray(v.limbs).T for v in parts], axis=1).reshape(-1, len(parts) * FP.words)
  kept = np.flatnonzero(words.any(axis=1)).astype(np.int32)
  words = words[kept]
  rows = np.empty((len(words), 4, affine.point_limbs(degree) // 2), np.uint32)
  block = affine.PRODUCTS // degree
  for start in range(0, len(words), block):
    _fill_rows(rows[start:start + block], words[start:start + block], degree)
  return Bases(degree, offset + points.x.shape[0], offset + kept, rows)


def _fill_rows(rows, words, degree):
  """Writes the rows of a few finite points, uint32[n, 4, limbs]; see `Bases` and `_coordinates`."""
  x, y, negative = (v.reshape(FP.num, -1) for v in _coordinates(words, degree))
  rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3] = (
      v.reshape(-1, len(rows)).T for v in (x, affine.products(x, (G1, G2)[degree - 1].cube_root), y, negative))


def _coordinates(words, degree):
  """x, y, -y as inner limbs uint32[limbs, degree, n], from outer 32-bit words uint32[n, 2 * degree * 12] of finite points.

  Inner form is outer form times 2^shift mod p. The quotient of that by p is estimated from the two top words, a little low: the error of
  a float64 is below 2^-44, so that the remainder is below (1 + 2^-39) p.
  """
  coordinates = words.reshape(len(words), 2 * degree, FP.words).transpose(2, 1, 0).astype(np.int64)
  top = coordinates[-1] * 2.0**32 + coordinates[-2]
  quotient = np.maximum(top * (2.0**(32 * FP.words - 64 + FP.shift) / FP.value) - 2.0**-40, 0).astype(np.int64)
  shifted = [bits_at(coordinates, FP.bits * k - FP.shift) for k in range(FP.num)]
  x, y = carried([(v - quotient * p).reshape(2, degree, -1) for v, p in zip(shifted, FP.limbs)])
  return tuple(v.astype(np.uint32) for v in (x, y, carried([p - v for v, p in zip(y, FP.split(2 * FP.value))])))


class _Points(NamedTuple):
  """Half rows uint32[n, point_limbs / 2], and where those of x and y are for an array of indices."""
  rows: np.ndarray
  places: Callable

  @classmethod
  def of_bases(cls, bases):
    """Indices are the codes of `Buckets`: x or beta x, then y or -y, half j = 1 having the other sign."""
    half = lambda codes: codes >> 1 & 1
    return cls(bases.rows.reshape(-1, bases.rows.shape[2]), lambda c: (c & ~3 | half(c), (c | 2) ^ half(c)))

  @classmethod
  def of_sums(cls, sums):
    """Indices are the rows of uint32[n, point_limbs]."""
    return cls(sums.reshape(2 * len(sums), sums.shape[1] // 2), lambda i: (2 * i, 2 * i + 1))

  def take(self, index, out):
    """Writes x and y of the points to out, uint32[2, >= len(index), point_limbs / 2]."""
    for rows, part in zip(self.places(index), out):
      np.take(self.rows, rows, axis=0, mode="clip", out=part[:len(index)])

  def copy(self, index, out):
    """Writes the points to out, uint32[len(index), point_limbs]."""
    np.take(self.rows, np.stack(self.places(index), axis=1).reshape(-1), axis=0, mode="clip", out=out.reshape(2 * len(out), -1))


class _GroupSums(NamedTuple):
  """The sum of group g is row places[g] of uint32[n, point_limbs]."""
  rows: np.ndarray
  places: np.ndarray


class _Run(NamedTuple):
  """A queued addition: its operands, its result and whether a pair broke the precondition (meaningless if `complete`)."""
  acc: jax.Array
  entries: np.ndarray
  active: int
  out: jax.Array
  bad: jax.Array
  complete: bool


class _Buffers:
  """What additions read and write, for one sum at a time. It is kept for the next sum: to make it takes as long as 10,000 additions.

  turned: entries and their filler, three that take turns: a step reads two of them at most while the next one is being filled. The
  fillers are arbitrary residues, so that those of accumulators and entries are not an exceptional pair. spares: results to write.
  """

  def __init__(self, degree):
    limbs, device = affine.point_limbs(degree), jax.devices("cpu")[0]
    self.rows = np.zeros((2, _GATHERED * affine.LANES, limbs // 2), np.uint32)
    fillers = np.random.default_rng(0).integers(0, 1 << 16, (3, 2, 1, limbs // 2), dtype=np.uint32)
    self.turned = [(_aligned_zeros(affine.ROWS, limbs, affine.LANES), filler) for filler in fillers]
    self.spares = [jax.device_put(np.zeros((affine.ROWS, limbs, affine.LANES), np.uint32), device) for _ in range(3)]
    self.scratch = jax.device_put(np.zeros((affine.ROWS, limbs // 2, affine.LANES), np.uint32), device)


_IDLE = {1: [], 2: []}                       # buffers by degree


def free_buffers():
  """Frees the memory that sums have left for the next ones: up to 25 MB a thread in G1, 50 MB in G2."""
  for buffers in _IDLE.values():
    buffers.clear()


class _Sums:
  """`group_sums` with its memory of whether an exceptional pair or an infinite sum has turned up: from then on additions are complete."""

  def __init__(self, degree):
    self.degree, self.complete = degree, False
    self.additions = self.calls = 0
    try:
      self.buffers = _IDLE[degree].pop()
    except IndexError:
      self.buffers = _Buffers(degree)

  def close(self):
    """Leaves the buffers to another sum."""
    _IDLE[self.degree].append(self.buffers)
    self.buffers = None

  def group_sums(self, points, rows, counts):
    """_GroupSums: group g sums the next counts[g] >= 1 of the `_Points` at rows."""
    kind = np.int32 if counts.sum() < 1 << 31 else np.int64     # arrays as long as the list of pieces: half the memory
    longest, counts = kind(piece_length(counts)), counts.astype(kind)
    pieces = -(-counts // longest)
    first, group_start = (np.cumsum(v, dtype=kind) - v for v in (pieces, counts))
    offset = (np.arange(pieces.sum(), dtype=kind) - np.repeat(first, pieces)) * longest
    starts = np.repeat(group_start, pieces) + offset
    lengths = np.minimum(longest, np.repeat(counts, pieces) - offset)
    sums, places = of_pieces = self._piece_sums(points, rows, starts, lengths)
    several = np.flatnonzero(pieces > 1)
    if not len(several):
      return of_pieces
    again = np.flatnonzero(np.repeat(pieces > 1, pieces))
    joined = self.group_sums(_Points.of_sums(sums), places[again], pieces[several])
    if len(several) == len(counts):
      return joined
    places = places[first]
    sums[places[several]] = joined.rows[joined.places]
    return _GroupSums(sums, places)

  def _piece_sums(self, points, rows, starts, lengths):
    """_GroupSums of pieces, which lie in the order of their lengths, the longest first."""
    order = np.argsort(_sortable(lengths.max() - lengths), kind="stable")
    sums = np.empty((-(-len(order) // affine.LANES) * affine.LANES, affine.point_limbs(self.degree)), np.uint32)
    for begin in range(0, len(order), _BLOCK):
      block = order[begin:begin + _BLOCK]
      self._block_sums(points, rows, starts[block], lengths[block], sums[begin:begin + _BLOCK])
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    return _GroupSums(sums, places)

  def _block_sums(self, points, rows, starts, lengths, sums):
    """Writes the sums of up to _BLOCK pieces, longest first, to the first rows of whole rows of lanes. One entry a step: those still active
    are a prefix, and a piece is read when it is finished."""
    if lengths[0] == 1:
      points.copy(rows[starts], sums[:len(starts)])
      return
    active = [int(np.searchsorted(-lengths, -step, side="left")) for step in range(lengths[0] + 1)]   # pieces with length > step
    entries = lambda step: self._gather(points, rows[starts[:active[step]] + step])
    acc, pending = self._gather(points, rows[starts]), None
    coming = entries(1)
    for step in range(1, lengths[0] + 1):
      # a step is queued before the one ahead of it has been checked, so that the device never waits for this thread
      running = self._launch(pending.out if pending else acc, coming, active[step]) if active[step] else None
      if pending:
        acc, repeated = self._settle(pending)
        if repeated and running:
          self._discard(running)
          running = self._launch(acc, coming, active[step])
      if active[step] < active[step - 1]:
        _read(np.asarray(acc), active[step], active[step - 1], sums)
      if running:
        coming = entries(step + 1)
      pending = running
    self.buffers.spares = self.buffers.spares[:2] + [acc]
    self.complete = self.complete or _any_infinite(sums[:len(starts)])

  def _launch(self, acc, entries, active):
    """Queues acc + entries on the first `active` pairs, garbage behind."""
    self.additions += active
    self.calls += 1
    run, buffers = affine.batch_add(self.degree, self.complete), self.buffers
    out, buffers.scratch, bad = run(acc, entries, buffers.spares.pop(), buffers.scratch, np.int32(-(-active // affine.LANES)))
    return _Run(acc, entries, active, out, bad, self.complete)

  def _settle(self, run):
    """Waits for a run: (its result, whether it had to be repeated because it met an exceptional pair)."""
    if run.complete or not run.bad:
      self.buffers.spares += [run.acc] if isinstance(run.acc, jax.Array) else []      # the first one is a buffer of `_gather`
      return jax.block_until_ready(run.out), False
    self.complete = True
    self.buffers.spares.append(run.out)
    return self._settle(self._launch(run.acc, run.entries, run.active))[0], True

  def _discard(self, run):
    self.buffers.spares.append(jax.block_until_ready(run.out))

  def _gather(self, points, index):
    """points[index] as uint32[ROWS, limbs, LANES], behind them a filler to the end of the last row."""
    buffers = self.buffers
    buffers.turned = buffers.turned[1:] + buffers.turned[:1]
    turned, filler = buffers.turned[0]
    for start in range(0, len(index), buffers.rows.shape[1]):
      part = index[start:start + buffers.rows.shape[1]]
      used = -(-len(part) // affine.LANES)
      points.take(part, buffers.rows)
      buffers.rows[:, len(part):used * affine.LANES] = filler
      lanes = buffers.rows.reshape(2, _GATHERED, affine.LANES, -1)[:, :used].transpose(1, 0, 3, 2)
      first = start // affine.LANES
      np.copyto(turned[first:first + used].reshape(used, 2, -1, affine.LANES), lanes)
    return turned


def _sortable(numbers):
  """The same numbers, in 16 bits if they fit: then the stable sort is a radix sort."""
  return numbers.astype(np.uint16) if numbers.max(initial=0) < 1 << 16 else numbers


def _read(lanes, begin, end, sums):
  """Copies points begin to end of uint32[ROWS, limbs, LANES] to the same rows of sums, which are whole rows of lanes."""
  first, last = begin // affine.LANES, -(-end // affine.LANES)
  rows, behind = sums[first * affine.LANES:last * affine.LANES], sums[end:last * affine.LANES].copy()
  np.copyto(rows.reshape(last - first, affine.LANES, -1), lanes[first:last].transpose(0, 2, 1))
  sums[end:last * affine.LANES] = behind


def _any_infinite(sums):
  """Whether a row is zero."""
  return not sums[sums[:, 0] == 0].any(axis=1).all()


def _aligned_zeros(*shape):
  """uint32 zeros at an address that XLA can use as it is: others it copies at every call."""
  data = np.zeros(4 * math.prod(shape) + 64, np.uint8)
  return data[-data.ctypes.data % 64:][:4 * math.prod(shape)].view(np.uint32).reshape(shape)


def piece_length(counts):
  """The longest piece: about twice the mean list, less where few lists would leave lanes empty."""
  total = int(counts.sum())
  return max(2, min(-(-2 * total // len(counts)), total // (_BLOCK // 2)))


def _weighted(sums, state, keys, bits):
  """(window, shift, rows of points) whose sum of 2^shift * point is sum of |digit| * S over each window, S being the _GroupSums."""
  half = bits // 2
  window, digit = keys >> bits, keys & ((1 << bits) - 1)
  parts = ((window, 0, digit & ((1 << half) - 1)), (window, 1, digit >> half))
  group = np.concatenate([((w * 2 + part) << bits) + v for w, part, v in parts])
  rows = np.tile(np.arange(len(keys)), 2)
  value = np.concatenate([v for _, _, v in parts])
  partial, keys = _regroup(sums, state, rows, group, value > 0)
  del sums                                     # the largest array
  value, group = keys & ((1 << bits) - 1), keys >> bits
  spread = np.arange(bits - half)
  chosen = (value[None] >> spread[:, None]) & 1 > 0
  rows = np.broadcast_to(np.arange(len(keys)), chosen.shape)
  single, keys = _regroup(partial, state, rows[chosen], (group[None] * bits + spread[:, None])[chosen], None)
  group, bit = keys // bits, keys % bits
  return group // 2, (group % 2) * half + bit, single.rows[single.places]


def _regroup(sums, state, chosen, group, keep):
  """The _GroupSums of chosen ones of _GroupSums by equal `group`, and the group numbers in order."""
  if keep is not None:
    chosen, group = chosen[keep], group[keep]
  order = np.argsort(group, kind="stable")
  keys, counts = np.unique(group[order], return_counts=True)
  return state.group_sums(_Points.of_sums(sums.rows), sums.places[chosen[order]], counts), keys


def _to_ints(rows, degree):
  """Affine integer points (None for infinity) of rows of inner limbs."""
  inverse = pow(FP.radix, -1, FP.value)
  rows = rows.reshape(len(rows), 2, FP.num // 2, 2, degree).astype(np.uint64)
  pairs = rows[:, :, :, 0] | rows[:, :, :, 1] << FP.bits                      # two limbs are seven bytes
  data = np.ascontiguousarray(pairs.swapaxes(2, 3)).view(np.uint8).reshape(-1, FP.num // 2, 8)[:, :, :2 * FP.bits // 8].tobytes()
  size = FP.num * FP.bits // 8
  coordinates = [int.from_bytes(data[i:i + size], "little") * inverse % FP.value for i in range(0, len(data), size)]
  points = []
  for row in range(len(rows)):
    c = coordinates[row * 2 * degree:(row + 1) * 2 * degree]
    point = tuple(c) if degree == 1 else ((c[0], c[1]), (c[2], c[3]))
    points.append(point if any(c) else None)
  return points


def _plain_ints(scalars):
  data = np.ascontiguousarray(scalars.T).tobytes()
  return [int.from_bytes(data[i:i + 32], "little") for i in range(0, len(data), 32)]


def msm(bases, scalars, bits=None):
  """sum_i scalars[i] * points[i] as an affine integer point (None for infinity).

  bases: Bases; scalars: plain uint32[8, num_scalars], each below r, or Scalars; bits: of the widest window, None chooses it by size.
  """
  return curve_of(bases).combination(terms(bases, scalars, bits=bits))


def curve_of(bases):
  """G1 or G2."""
  return (G1, G2)[bases.degree - 1]


def terms(bases, scalars, part=0, parts=1, bits=None):
  """[(k, P)] whose sum of k P, over all `parts`, is that of `msm`: each part does its share of the windows, so that threads can share one
  sum."""
  scalars = scalars if isinstance(scalars, Scalars) else Scalars(np.asarray(scalars))
  if scalars.words.shape != (8, bases.num_scalars):
    raise ValueError(f"expected scalars of shape (8, {bases.num_scalars}), one for each base, got {scalars.words.shape}")
  if bits is None and len(bases.kept) <= _FEW:
    points = _to_ints(bases.rows[:, ::2].reshape(len(bases.rows), 2 * bases.rows.shape[2]), bases.degree)
    return list(zip(_plain_ints(scalars.words[:, bases.kept]), points)) if part == 0 else []
  bits = window_bits(len(bases.kept)) if bits is None else bits
  begin = window_places(bits)
  windows = range(*((len(begin) - 1) * k // parts for k in (part, part + 1)))
  keys, counts, codes = scalars.buckets(bits, windows, bases.kept)
  if not len(keys):
    return []
  state = _Sums(bases.degree)
  window, shift, single = _weighted(state.group_sums(_Points.of_bases(bases), codes, counts), state, keys, bits)
  state.close()
  return [(1 << (begin[w] + int(s)), p) for w, s, p in zip(window, shift, _to_ints(single, bases.degree))]
