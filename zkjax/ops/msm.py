"""Multi-scalar multiplication: sum_i k_i P_i by signed windows (Pippenger).

Three implementations meet in `msm`: `ops.cpu.msm`, plans in NumPy around compiled batches of affine additions; `ops.gpu.msm`, kernels;
and the portable one here, which is one program of JAX and works inside jit and vmap on every platform, as the kernels do on theirs.

The portable program is a list of jobs `slot[target] += slot[source]`. With k_i = sum_w d_(i,w) 2^(c w), 0 < |d| <= 2^(c-1), they are
1. add the point sign(d) P_i to slot |d| - 1 of window w, for all i and w: its sum is S_(w,b), b = |d| - 1. A list of more than `_PIECE`
   points is cut into pieces with slots of their own, added up in a tree afterwards, so that no scalars cost more than uniform ones;
2. fold the slots of a window over their bits, from the top: round k adds slot j + 2^k to slot j for j < 2^k, and likewise inside each
   interval [2^i, 2^(i+1)), i > k, that was folded off before. Then slot 2^k holds T_(w,k), the sum of all S_(w,b) with bit k of b set,
   and slot 0 the sum of all S_(w,b). As b + 1 = |d|, sum_b (b + 1) S_(w,b) = slot 0 + sum_k 2^k T_(w,k). Two additions a slot;
3. sum_i 2^i B_i over the 256 bit positions i = c w + k, in a tree: level l doubles every second partial sum 2^l times and adds it to
   its neighbour.
Jobs of one round are independent and run in blocks of lanes. The addition of the curve is complete, so one addition, compiled once,
does all jobs, doublings included.
"""
import dataclasses
import functools
from typing import NamedTuple, Optional

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from zkjax.ops.cpu import digits
from zkjax.ops.cpu import msm as cpu
from zkjax.ops.curve import XYZZ, Affine
from zkjax.ops.gpu import support

_PIECE = 8                                   # points added to one slot one after the other: as many rounds, an eighth as many further slots
_POSITIONS = 256                             # bit positions of a scalar, a power of two; carries of signed digits reach bit 255 at most
_NOTHING = np.iinfo(np.int32).max            # sorts behind every slot and round


@dataclasses.dataclass(frozen=True)
class MsmConfig:
  """How to compute a multi-scalar multiplication. The result does not depend on it.

  window_bits: c in 2..16; None chooses by the number of points.
  backend: "cpu", "gpu" or "portable"; None takes "cpu" for concrete arrays on the host, "gpu" on a GPU where the kernels run (see
    `gpu.support`), inside jit and vmap too, and else "portable".
  block_lanes: additions that the portable program makes at a time; 128 stay in the cache of a CPU, a GPU needs thousands.
  """
  window_bits: Optional[int] = None
  backend: Optional[str] = None
  block_lanes: int = 128

  def checked(self):
    """self, or ValueError."""
    if self.window_bits not in (None, *range(2, 17)):
      raise ValueError(f"window_bits must be None or in 2..16, got {self.window_bits}")
    if self.backend not in (None, "cpu", "gpu", "portable"):
      raise ValueError(f'backend must be None, "cpu", "gpu" or "portable", got {self.backend!r}')
    if self.block_lanes < 1:
      raise ValueError(f"block_lanes must be positive, got {self.block_lanes}")
    return self


class _Ready(NamedTuple):
  """A sum that has been made already."""
  point: object

  def result(self):
    return self.point


@dataclasses.dataclass(frozen=True, eq=False)
class FixedBases:
  """Bases that do not change, such as a query of a proving key, prepared for the platform that will use them.

  on_gpu: whether they lie there, with tables of multiples.
  """
  prepared: object                           # cpu.Bases or gpu.fixed.Bases
  on_gpu: bool = False

  @classmethod
  def prepare(cls, points, offset=0, budget=None, stage="msm"):
    """From an Affine batch [n] in G1 or G2, of order r; point i goes with scalar offset + i. Infinite points are dropped here once.

    budget: on a GPU, the bytes that tables of multiples may take; None for what is free. stage: what a trace of a GPU calls the sums.
    """
    if support.usable():
      from zkjax.ops.gpu import fixed
      return cls(fixed.prepare(points, offset, budget, stage=stage), True)
    return cls(cpu.prepare(points, offset))

  @staticmethod
  def device_bytes(points, offset=0, budget=None):
    """Bytes of a GPU's memory that `prepare` takes there."""
    from zkjax.ops.gpu import fixed
    return fixed.table_bytes(points, offset, budget)

  def msm(self, scalars):
    """sum_i scalars[offset + i] * points[i] as an affine integer point, None for infinity.

    scalars: plain uint32[8, offset + n] below r, or what `shared_scalars` made of them for several bases.
    """
    return self.start(scalars).result()

  def terms(self, scalars, part, parts):
    """On the CPU, what `total` adds up: the terms of one of the `parts` of `msm`, so that threads can share its work."""
    return cpu.terms(self.prepared, scalars, part, parts)

  def cost(self, large=None):
    """About what all terms cost on the CPU, in additions of a bucket in G1: one a finite point, of those whose scalar is `large`, bool[n],
    and three in G2."""
    kept = self.prepared.kept
    return (1, 3)[self.prepared.degree - 1] * (len(kept) if large is None else np.count_nonzero(large[kept]))

  def total(self, terms):
    """The sum of the terms of all parts, as `msm` returns it."""
    return cpu.curve_of(self.prepared).combination(terms)

  def start(self, scalars):
    """As `msm`, but returns an object whose `result()` is the point: on a GPU at once, while the device works."""
    if self.on_gpu:
      from zkjax.ops.gpu import fixed
      return fixed.start(self.prepared, scalars)
    return _Ready(cpu.msm(self.prepared, scalars))


def on_gpu():
  """Whether bases are prepared on a GPU, and their sums are queued there."""
  return support.usable()


def sums_of_entries(table, scalars):
  """Affine[n] on the GPU: sum_w table[w, byte w of the scalar] for an Affine table [32, 256] (leaves [32, limbs, 256]) and plain scalars
  uint32[8, n]; None where the kernels do not run."""
  if not support.usable():
    return None
  from zkjax.ops.gpu import fixed
  return fixed.sums_of_entries(table, scalars)


def free_buffers():
  """Frees the memory that sums on the CPU have left for the next ones."""
  cpu.free_buffers()


def shared_scalars(words):
  """Plain scalars uint32[8, n] below r for several bases, which share the digits and their order."""
  if support.usable():
    from zkjax.ops.gpu import fixed
    return fixed.Scalars(words)
  return digits.Scalars(np.asarray(words))


def table_budget():
  """Bytes that all tables of a proving key together may take on the GPU, None where there are none."""
  if not support.usable():
    return None
  from zkjax.ops.gpu import fixed
  return fixed.free_bytes()


def msm(points, scalars, config=MsmConfig()):
  """Returns sum_i scalars[i] points[i].

  Right for every input: infinite, equal and opposite points, zero scalars, any length from 0. Under vmap, over the scalars or over
  both, all partitions run in one program and shared points are not copied.

  Args:
    points: Affine[n] in G1 or G2, of order r. scalars: Fr[n]. config: MsmConfig.

  Returns:
    XYZZ, one point: partial sums can be added before the one inversion of `to_affine`, which takes as long to compile as the whole sum.

  Raises:
    ValueError: shapes that differ, an unknown config, or backend "cpu" inside jit.

  Cost: about 256 / c (n + 2^c) additions, c = window_bits; the portable program has 270 rounds of at least block_lanes lanes more.
  Not constant time.
  """
  config = config.checked()
  if len(points.shape) != 1 or points.shape != scalars.shape:
    raise ValueError(f"expected Affine[n] and Fr[n], got batches {points.shape} and {scalars.shape}; use jax.vmap for leading axes")
  leaves = jax.tree.leaves((points, scalars))
  traced = any(isinstance(v, jax.core.Tracer) for v in leaves)
  if traced and config.backend == "cpu":
    raise ValueError('backend "cpu" plans on the host and needs concrete arrays: use "portable", or None, inside jit and vmap')
  if config.backend == "cpu" or config.backend is None and not traced and _platform(leaves) == "cpu":
    return _on_host(points, scalars, config)
  if config.backend is None:
    config = dataclasses.replace(config, backend="gpu" if support.usable() else "portable")
  return _in_graph(points, scalars, config)


def _platform(leaves):
  """Where concrete arrays lie; NumPy arrays go to the default backend."""
  devices = {device.platform for v in leaves if isinstance(v, jax.Array) for device in v.devices()}
  return devices.pop() if len(devices) == 1 else jax.default_backend()


def _on_host(points, scalars, config):
  total = cpu.msm(cpu.prepare(points), np.asarray(scalars.to_plain()), config.window_bits)
  field = points.field
  if total is None:
    return XYZZ.infinity(field)
  affine, one = Affine.from_ints(field, total), field.ones(())
  return XYZZ(affine.x, affine.y, one, one)


@functools.partial(jax.jit, static_argnames="config")
def _in_graph(points, scalars, config):
  total = _partitions(config)(points.reshape((1, -1)), scalars.reshape((1, -1)))
  return total[0]


def _partitions(config):
  """The sums of partitions, Affine[Q, n] and Fr[P, n] to XYZZ[P], Q = 1 (shared points) or P; vmap makes more partitions of it."""
  @jax.custom_batching.custom_vmap
  def run(points, scalars):
    portable = lambda points, scalars: _sums(points, scalars, config)
    if config.backend == "portable":
      return portable(points, scalars)
    return lax.platform_dependent(points, scalars, cuda=functools.partial(_kernel_sums, config=config), default=portable)

  @run.def_vmap
  def _(size, batched, points, scalars):
    partitions = jax.tree.leaves(scalars)[0].shape[-2]
    if any(jax.tree.leaves(batched[0])) or jax.tree.leaves(points)[0].shape[-2] > 1:
      points = _merged(points, batched[0], size, partitions)
    total = run(points, _merged(scalars, batched[1], size, partitions))
    return jax.tree.map(lambda v: jnp.moveaxis(v.reshape((-1, size, partitions)), 1, 0), total), jax.tree.map(lambda _: True, total)
  return run


def _merged(tree, batched, size, partitions):
  """Leaves [size, limbs, partitions or 1, n], or without the first axis where not batched, to [limbs, size * partitions, n]."""
  def merge(v, has_axis):
    v = v if has_axis else jnp.broadcast_to(v, (size,) + v.shape)
    v = jnp.broadcast_to(v, v.shape[:2] + (partitions,) + v.shape[3:])
    return jnp.moveaxis(v, 0, 1).reshape((v.shape[1], size * partitions) + v.shape[3:])
  return jax.tree.map(merge, tree, batched)


def _kernel_sums(points, scalars, config):
  """As `_sums`, by the kernels: one partition after the other, since each fills the device."""
  from zkjax.ops.gpu import msm as gpu
  shared, plan = points.shape[0] == 1, config.window_bits and gpu.Plan(config.window_bits)
  plain = jnp.moveaxis(scalars.to_plain(), 1, 0)
  apart = None if shared else jax.tree.map(lambda v: jnp.moveaxis(v, 1, 0), points)
  totals = lax.map(lambda v: gpu.msm(points[0] if shared else v[0], v[1], plan), (apart, plain))
  return jax.tree.map(lambda v: jnp.moveaxis(v, 0, 1), totals)


# The portable program

class _Layout(NamedTuple):
  """Slots: [the windows, groups * 2^(bits - 1) | further pieces | partitions * _POSITIONS]. A group is a window of a partition.

  Sources from `points` on are no slots: points + 2 i and points + 2 i + 1 are point i and its negative.
  """
  partitions: int
  count: int
  bits: int

  @property
  def groups(self):
    return self.partitions * digits.num_windows(self.bits)

  @property
  def pieces(self):
    return self.groups << (self.bits - 1)

  @property
  def positions(self):
    return self.pieces + self.groups * self.count // _PIECE

  @property
  def points(self):
    return self.positions + self.partitions * _POSITIONS


def _window_bits(count):
  """c that minimises the additions of `_sums`."""
  return min(range(2, 17), key=lambda c: digits.num_windows(c) * (count + (2 << (c - 1))))


def _sums(points, scalars, config):
  """XYZZ[P] from Affine[Q, n] and Fr[P, n], Q = 1 or P."""
  partitions, count = scalars.shape
  nothing = XYZZ.infinity(points.field, (1,))
  if not count:
    return nothing.broadcast_to((partitions,))
  layout = _Layout(partitions, count, config.window_bits or _window_bits(count))
  *gathering, rounds = _gathering_jobs(_digits(scalars.to_plain(), layout.bits), layout, points.shape[0] == 1)
  folding, joining = _folding_jobs(layout), _joining_jobs(layout)
  target, source = (jnp.concatenate([a, *b, np.concatenate(c)]) for a, b, c in zip(gathering, zip(*folding), zip(*joining)))
  ends = np.cumsum([len(gathering[0])] + [len(t) for t, _ in folding + joining], dtype=np.int32)
  starts, ends = jnp.concatenate([rounds[:-1], ends[:-1]]), jnp.concatenate([rounds[1:], ends[1:]])
  state = jnp.tile(_rows(nothing), (layout.points, 1))
  state = _run(state, points.reshape(-1), (target, source), (starts, ends), config.block_lanes)
  return _elements(state[layout.positions::_POSITIONS], nothing)


def _digits(scalars, bits):
  """int32[num_windows, *batch] in (-2^(bits-1), 2^(bits-1)]: `digits.signed_digits` in the graph, for plain scalars uint32[8, *batch]."""
  words = jnp.concatenate([scalars, jnp.zeros_like(scalars[:1])])
  places = np.arange(digits.num_windows(bits), dtype=np.int32) * bits

  def window(carry, place):
    word, offset = place // 32, (place % 32).astype(jnp.uint32)
    low, high = words[word] >> offset, words[word + 1] << 1 << (31 - offset)
    digit = ((low | high) & np.uint32((1 << bits) - 1)).astype(jnp.int32) + carry
    carry = (digit > 1 << (bits - 1)).astype(jnp.int32)
    return carry, digit - (carry << bits)
  return lax.scan(window, jnp.zeros(scalars.shape[1:], jnp.int32), places)[1]


def _gathering_jobs(digits, layout, shared):
  """Step 1: target and source, sorted by round, and the first job of each round and the end. digits int32[windows, P, n]."""
  windows, partitions, count = digits.shape
  window, partition, point = (lax.broadcasted_iota(jnp.int32, digits.shape, k) for k in range(3))
  slot = ((partition * windows + window) << (layout.bits - 1)) + jnp.abs(digits) - 1
  slot = jnp.where(digits == 0, _NOTHING, slot).reshape(-1)
  source = layout.points + 2 * (point if shared else partition * count + point) + (digits < 0)
  slot, source = lax.sort((slot, source.reshape(-1)), num_keys=1)
  index = jnp.arange(slot.shape[0], dtype=jnp.int32)
  first = lax.cummax(jnp.where(jnp.concatenate([jnp.ones(1, bool), slot[1:] != slot[:-1]]), index, 0))
  used, piece, step = slot != _NOTHING, (index - first) // _PIECE, (index - first) % _PIECE
  opens = used & (piece > 0) & (step == 0)
  piece_slot = jnp.where(piece > 0, layout.pieces - 1 + jnp.cumsum(opens, dtype=jnp.int32), slot)

  # piece j > 0 is added to piece j - low, low its lowest bit, in the round of that bit: by then both have their own halves
  extra = layout.positions - layout.pieces
  chosen = jnp.nonzero(opens, size=extra, fill_value=0)[0]
  merged, home, number = piece_slot[chosen], slot[chosen], piece[chosen]
  low = number & -number
  merge_round = jnp.where(jnp.arange(extra) < jnp.sum(opens), _PIECE + lax.population_count(low - 1), _NOTHING)
  rounds = jnp.concatenate([jnp.where(used, step, _NOTHING), merge_round])
  target = jnp.concatenate([piece_slot, jnp.where(low == number, home, merged - low)])
  rounds, target, source = lax.sort((rounds, target, jnp.concatenate([source, merged])), num_keys=1)
  numbers = np.arange(_PIECE + extra.bit_length() + 1, dtype=np.int32)
  return target, source, jnp.searchsorted(rounds, numbers).astype(jnp.int32)


def _folding_jobs(layout):
  """Step 2: [(target, source)] for each round k, from the top: slot j + 2^k to slot j, j < 2^k counted from 0 and from each 2^i, i > k."""
  group = jnp.arange(layout.groups, dtype=jnp.int32)[:, None] << (layout.bits - 1)
  jobs = []
  for k in reversed(range(layout.bits - 1)):
    start = np.array([0] + [1 << i for i in range(k + 1, layout.bits - 1)], np.int32)
    target = (group + (start[:, None] + np.arange(1 << k, dtype=np.int32)).reshape(-1)).reshape(-1)
    jobs.append((target, target + (1 << k)))
  return jobs


def _joining_jobs(layout):
  """Step 3: the slots 2^k of all windows to their bit positions, the slots 0 to the same as 2^0, and the tree."""
  windows = digits.num_windows(layout.bits)
  partition, window, k = np.ogrid[:layout.partitions, :windows, :layout.bits - 1]
  group = (partition * windows + window) << (layout.bits - 1)
  position = layout.bits * window + k
  keep = np.broadcast_to(position < _POSITIONS, (layout.partitions, windows, layout.bits - 1))   # what lies above is infinity
  target = np.broadcast_to(layout.positions + partition * _POSITIONS + position, keep.shape)
  jobs = [(target[keep], (group + (1 << k))[keep]), (target[..., 0].reshape(-1), group.reshape(-1))]
  for level in range(_POSITIONS.bit_length() - 1):
    left = layout.positions + np.arange(0, layout.partitions * _POSITIONS, 2 << level)
    right = left + (1 << level)
    jobs += [(right, right)] * (1 << level) + [(left, right)]
  return [(t.astype(np.int32), s.astype(np.int32)) for t, s in jobs]


def _run(state, points, jobs, rounds, lanes):
  """state[target] += state or point[source] for all jobs, round after round: round i is jobs starts[i] to ends[i], in blocks of `lanes`.

  state: uint32[slots, words], points: Affine[n]. The trip count depends on the scalars, the cost of a trip does not.
  """
  target, source = (jnp.pad(v, (0, lanes)) for v in jobs)
  starts, ends = rounds
  blocks = (ends - starts + lanes - 1) // lanes
  before = jnp.cumsum(blocks, dtype=jnp.int32)          # blocks of this round and those before it
  offset = starts - (before - blocks) * lanes
  slots, table, point_like, slot_like = state.shape[0], _rows(points), points[:1], XYZZ.infinity(points.field, (1,))

  def step(i, state):
    turn = jnp.sum(before <= i, dtype=jnp.int32)
    begin = offset[turn] + i * lanes
    active = begin + np.arange(lanes, dtype=np.int32) < ends[turn]
    to, by = (lax.dynamic_slice_in_dim(v, begin, lanes) for v in (target, source))
    place = jnp.maximum(by - slots, 0)
    point = _elements(table[place >> 1], point_like)
    point = point.negate().select(place & 1 == 1, point).to_xyzz()
    total = _elements(state[to], slot_like).add(point.select(by >= slots, _elements(state[by], slot_like)))
    return state.at[jnp.where(active, to, slots)].set(_rows(total), mode="drop")
  return lax.fori_loop(0, before[-1], step, state)


def _rows(elements):
  """uint32[n, words]: an element a row, so that a random access touches one place."""
  return jnp.concatenate(jax.tree.leaves(elements)).T


def _elements(rows, like):
  """The inverse of `_rows`, for a tree like `like`."""
  leaves, structure = jax.tree.flatten(like)
  return jax.tree.unflatten(structure, jnp.split(rows.T, len(leaves)))
