"""Fixed bases on the GPU: tables of multiples of a proving key's points, and the sums over them, dispatched without waiting.

Every step is a program of its own, so that queries of equal sizes share the compiled one, and queries that take the same scalars share
digits, sort and pieces.
"""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from zkjax.ops.field import Fp, Fr
from zkjax.ops.gpu import msm, simt
from zkjax.ops.gpu import msm_kernels as kernels
from zkjax.ops.int_curve import G1, G2
from zkjax.ops.limbs import FP

_DEFAULT_BYTES = 48 << 30                    # where the device does not say what it has
_SHARE = 0.6                                 # of the free memory that tables may take: sorting and transforms need the rest


@dataclasses.dataclass(frozen=True, eq=False)
class Bases:
  """rows: uint32[f num_scalars, 2 d 12], `msm.table_rows`."""
  plan: msm.Plan
  rows: jax.Array
  num_scalars: int


class Scalars:
  """Plain scalars uint32[8, n] below r on the device, and what the sums of several bases make of them. No repr of the content."""

  def __init__(self, words):
    self.words, self._schedules = jnp.asarray(words), {}

  def schedule(self, plan):
    """The Schedule of a plan."""
    if plan not in self._schedules:
      self._schedules[plan] = msm_schedule(self.words, plan)
    return self._schedules[plan]


class Pending:
  """A sum that the device is working on: `result` waits for it. row: its words on the device, None for no points."""

  def __init__(self, row, degree):
    self.row, self._degree = row, degree

  def result(self):
    """The affine integer point, None for infinity."""
    return None if self.row is None else affine(np.asarray(self.row), self._degree)


def free_bytes():
  """What tables may take of the memory of the default device."""
  stats = jax.devices()[0].memory_stats() or {}
  free = stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else _DEFAULT_BYTES
  return int(free * _SHARE)


def prepare(points, offset=0, budget=None, plan=None, launch=simt.launch):
  """Bases from an Affine batch [n]; point i goes with scalar offset + i: infinite points stand before.

  Args: budget: bytes that the tables may take, None for what is free. plan: forces window and factor.

  Raises: MemoryError: not even the points themselves fit. Cost: (f - 1) c s doublings and an inversion a point.
  """
  parts = [np.asarray(v).T for v in jax.tree.leaves(points)]
  rows = np.pad(np.concatenate(parts, axis=1), ((offset, 0), (0, 0)))
  count = len(rows)
  if plan is None:
    plan = _affordable_plan(count, rows.nbytes, budget)
  return Bases(plan, _table(jnp.asarray(rows), plan) if launch is simt.launch else msm.table_rows(rows, plan, launch), count)


def table_bytes(points, offset, budget):
  """The bytes of the tables that `prepare` would make of an Affine[n]."""
  count = offset + points.shape[0]
  needed = count * sum(v.shape[0] * v.dtype.itemsize for v in jax.tree.leaves(points))
  return needed * _affordable_plan(count, needed, budget).factor


def _affordable_plan(count, needed, budget):
  """The plan of so many points, whose rows take `needed` bytes, with as many tables as `budget` allows, None for what is free."""
  budget = free_bytes() if budget is None else budget
  if needed > budget:
    raise MemoryError(f"{count} points need {needed} bytes on the device, {budget} may be used: free some, or use fewer points")
  return msm.default_plan(count, budget // needed if needed else 1)


def degree_of(rows):
  """1 for rows of points of G1, 2 for G2."""
  return rows.shape[1] // (2 * FP.words)


def start(bases, scalars, stage="msm"):
  """Dispatches sum_i scalars[i] points[i] and returns a Pending. scalars: Scalars, or plain uint32[8, n]. stage: its name in a trace."""
  scalars = scalars if isinstance(scalars, Scalars) else Scalars(scalars)
  if scalars.words.shape != (8, bases.num_scalars):
    raise ValueError(f"expected scalars of shape (8, {bases.num_scalars}), one for each base, got {scalars.words.shape}")
  if not bases.num_scalars:
    return Pending(None, degree_of(bases.rows))
  return _pending([bases], _sums((stage,))([bases.rows], scalars.schedule(bases.plan), bases.plan))[0]


def start_several(bases, values, more, stages):
  """Dispatches the sums of several Bases with the same scalars, values and then more: their Pendings, and Scalars that know the schedule.

  One program where all have one plan, as the queries of a key do: a dispatch costs some hundred microseconds of the host.
  """
  plan = bases[0].plan
  if any(b.plan != plan for b in bases):
    scalars = Scalars(_plain(values, more))
    return [start(b, scalars, stage) for b, stage in zip(bases, stages)], scalars
  rows, words, work = _sums_and_schedule(stages)([b.rows for b in bases], values, more, plan)
  scalars = Scalars(words)
  scalars._schedules[plan] = work
  return _pending(bases, rows), scalars


@jax.jit
def _plain(values, more):
  return Fr(jnp.concatenate([values.limbs, more.limbs], axis=1)).to_plain()


def _pending(bases, rows):
  for row in rows:
    row.copy_to_host_async()
  return [Pending(row, degree_of(b.rows)) for row, b in zip(rows, bases)]


def _named(stages):
  """The name of a program that computes these stages: "msm_a_b_g1_l". XLA launches many kernels as one graph, and keeps no other name."""
  return "_".join([stages[0]] + [stage.removeprefix("msm_") for stage in stages[1:]])


@functools.cache
def _sums(stages):
  """The program of the sums of some stages, from tables, a Schedule and a plan."""
  def sums(rows, work, plan):
    return [jnp.concatenate(jax.tree.leaves(total)) for total in msm.sums_scheduled(rows, work, plan, stages=stages)]
  sums.__name__ = _named(stages)
  return jax.jit(sums, static_argnums=2)


@functools.cache
def _sums_and_schedule(stages):
  """As `_sums`, with the scalars' Schedule, from tables, values, further values and a plan."""
  def sums(rows, values, more, plan):
    with jax.named_scope("msm_schedule"):
      words = _plain(values, more)
      work = msm.schedule(words, plan)
    return _sums(stages)(rows, work, plan), words, work
  sums.__name__ = _named(stages)
  return jax.jit(sums, static_argnums=3)


@functools.partial(jax.jit, static_argnums=1)
def _table(rows, plan):
  return msm.table_rows(rows, plan)


@functools.partial(jax.jit, static_argnums=1)
def msm_schedule(words, plan):
  """The Schedule of plain scalars."""
  with jax.named_scope("msm_schedule"):
    return msm.schedule(words, plan)


def sums_of_entries(table, scalars, launch=simt.launch):
  """See `ops.msm`: on the host, Affine[n]."""
  leaves, structure = jax.tree.flatten(table)
  rows = np.concatenate([np.asarray(v).transpose(0, 2, 1).reshape(-1, FP.words) for v in leaves], axis=1)
  words = np.frombuffer(b"".join(int(k).to_bytes(32, "little") for k in scalars), np.uint32).reshape((-1, 8)).T
  make = _entry_sums if launch is simt.launch else functools.partial(kernels.sums_of_entries, launch=launch)
  made = np.asarray(make(len(leaves) // 2, rows, words)) if len(scalars) else np.zeros((0, rows.shape[1]), np.uint32)
  return jax.tree.unflatten(structure, [np.ascontiguousarray(v.T) for v in np.split(made, len(leaves), axis=1)])


_entry_sums = jax.jit(kernels.sums_of_entries, static_argnums=0)


def affine(row, degree):
  """The affine integer point, or None, of the words of one point in XYZZ coordinates."""
  curve = (G1, G2)[degree - 1]
  values = Fp(np.ascontiguousarray(row.reshape(4 * degree, FP.words).T)).to_ints()
  x, y, zz, zzz = values if degree == 1 else zip(values[::2], values[1::2])
  f = curve.field
  return None if zz == f.zero else (f.mul(x, f.inverse(zz)), f.mul(y, f.inverse(zzz)))
