"""Fixed bases on the GPU: tables of multiples of a proving key's points, and the sums over them, dispatched without waiting.

Every step is a program of its own, so that queries of equal sizes share the compiled one, and queries that take the same scalars share
digits, sort and pieces.
"""
import concurrent.futures
import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from zkjax.ops.field import Fp, Fr
from zkjax.ops.gpu import msm, points, simt, support
from zkjax.ops.gpu import msm_kernels as kernels
from zkjax.ops.int_curve import G1, G2
from zkjax.ops.limbs import FP

_DEFAULT_BYTES = 48 << 30                    # where the device does not say what it has
_SHARE = 0.6                                 # of the free memory that tables may take: sorting and transforms need the rest


@dataclasses.dataclass(frozen=True, eq=False)
class Bases:
  """rows: uint32[f num_scalars, 2 d 12], `msm.table_rows`. stage: what a trace calls the sum."""
  plan: msm.Plan
  rows: jax.Array
  num_scalars: int
  stage: str = "msm"


class Scalars:
  """Plain scalars uint32[8, n] below r on the device, and what the sums of several bases make of them. No repr of the content."""

  def __init__(self, words):
    self.words, self._schedules = jnp.asarray(words), {}

  def knows(self, plan):
    """Whether the Schedule of a plan has been made."""
    return plan in self._schedules

  def keep(self, plan, work):
    """Remembers the Schedule of a plan."""
    self._schedules[plan] = work

  def schedule(self, plan):
    """The Schedule of a plan."""
    if not self.knows(plan):
      self.keep(plan, _schedule(self.words, plan))
    return self._schedules[plan]


class Pending:
  """A sum that the device is working on: `result` waits for it. row: its words on the device, behind `offset` others that a program made
  with it; None for no points."""

  def __init__(self, row, degree, offset=0):
    self.row, self._degree, self.offset, self.num_words = row, degree, offset, points.xyzz_words(degree)

  def result(self):
    """The affine integer point, None for infinity."""
    if self.row is None:
      return None
    return affine(np.asarray(self.row)[self.offset:][:self.num_words], self._degree)


class PendingScalar:
  """A plain scalar in a row that the device is writing, as `Pending`."""
  num_words = Fr.num_limbs

  def __init__(self, row, offset=0):
    self.row, self.offset = row, offset

  def result(self):
    """The integer."""
    return int.from_bytes(np.asarray(self.row)[self.offset:][:self.num_words].tobytes(), "little")


class _Made(NamedTuple):
  """What is static of a sum with scalars that a function makes. Hashable."""
  plan: msm.Plan
  stage: str
  function: Callable
  static: tuple


def free_bytes():
  """What tables may take of the memory of the default device."""
  free = support.free_bytes()
  return int((_DEFAULT_BYTES if free is None else free) * _SHARE)


def prepare(affine_points, offset=0, budget=None, plan=None, launch=simt.launch, stage="msm"):
  """Bases from an Affine batch [n]; point i goes with scalar offset + i: infinite points stand before.

  Args: budget: bytes that the tables may take, None for what is free. plan: forces window and factor. stage: of the Bases.

  Raises: MemoryError: not even the points themselves fit. Cost: (f - 1) c s doublings and an inversion a point.
  """
  count = offset + affine_points.shape[0]
  if plan is None:
    plan, needed = _affordable_plan(affine_points, offset, budget)
    working = msm.working_bytes(len(jax.tree.leaves(affine_points)) // 2, count, plan)
    support.require(plan.factor * needed + working, f"tables of {count} points and a sum over them", "free some, or use fewer points")
  rows = jnp.pad(msm.point_rows(affine_points), ((offset, 0), (0, 0)))
  return Bases(plan, _table(rows, plan) if launch is simt.launch else msm.table_rows(rows, plan, launch), count, stage)


def table_bytes(affine_points, offset, budget):
  """The bytes of the tables that `prepare` would make."""
  plan, needed = _affordable_plan(affine_points, offset, budget)
  return plan.factor * needed


def _affordable_plan(affine_points, offset, budget):
  """(the plan with as many tables as `budget` allows, None for what is free; the bytes of one table)."""
  count = offset + affine_points.shape[0]
  budget, needed = free_bytes() if budget is None else budget, count * 4 * FP.words * len(jax.tree.leaves(affine_points))
  if needed > budget:
    raise MemoryError(f"{count} points need {needed} bytes on the device, {budget} may be used: free some, or use fewer points")
  return msm.default_plan(count, budget // needed if needed else 1), needed


def degree_of(rows):
  """1 for rows of points of G1, 2 for G2."""
  return rows.shape[1] // (2 * FP.words)


def start(bases, scalars):
  """Dispatches sum_i scalars[i] points[i] and returns a Pending. scalars: Scalars, or plain uint32[8, n]."""
  scalars = scalars if isinstance(scalars, Scalars) else Scalars(scalars)
  if scalars.words.shape != (8, bases.num_scalars):
    raise ValueError(f"expected scalars of shape (8, {bases.num_scalars}), one for each base, got {scalars.words.shape}")
  if not bases.num_scalars:
    return Pending(None, degree_of(bases.rows))
  if scalars.knows(bases.plan):
    return _pending([bases], _sums([bases.rows], scalars.schedule(bases.plan), bases.plan))[0]
  row, work = _sum_and_schedule(bases.rows, scalars.words, bases.plan)
  scalars.keep(bases.plan, work)
  return _pending([bases], row)[0]


def start_several(bases, values, more, made, function, arrays, static):
  """Dispatches the sums of several Bases with the same scalars, values and then more, and that of the Bases `made` with the scalars
  function(*arrays, *static): the Pendings of all, Scalars that know the schedule, and the first scalar, pending.

  One program where all but `made` have one plan, as the queries of a key do: a dispatch costs some hundred microseconds of the host.
  """
  plan = bases[0].plan
  if any(b.plan != plan for b in bases) or not made.num_scalars:
    scalars = Scalars(_plain(values, more))
    return [*(start(b, scalars) for b in bases), start(made, function(*arrays, *static))], scalars, PendingScalar(scalars.words[:, 0])
  row, words, work = _sums_and_made(
      [b.rows for b in bases], values, more, made.rows, arrays, plan, tuple(b.stage for b in bases), _made(made, function, static))
  scalars = Scalars(words)
  scalars.keep(plan, work)
  sums = _taken_apart([*bases, made], row)
  return sums, scalars, PendingScalar(row, sum(s.num_words for s in sums))


def start_combined(bases, scalars, factored, factors, plain):
  """Dispatches, as one program, a sum with Scalars, and sum k_i P_i + sum Q_j for pending sums P (factored) and Q (plain) in G1 and
  integers k below r. Returns the two Pendings."""
  rows, places = _places([*factored, *plain])
  work, halves = scalars.schedule(bases.plan), msm.halves(factors)
  row = _sum_and_combined(bases.rows, work, rows, halves, bases.plan, places, len(factored), bases.stage)
  row.copy_to_host_async()
  degree = degree_of(bases.rows)
  return Pending(row, degree), Pending(row, 1, points.xyzz_words(degree))


def _places(pendings):
  """The distinct rows of pending words, and for each (number of its row, offset, number of words). No points are a row of zeros."""
  rows = {id(p.row): jnp.zeros(p.num_words, jnp.uint32) if p.row is None else p.row for p in pendings}
  numbers = {name: k for k, name in enumerate(rows)}
  return list(rows.values()), tuple((numbers[id(p.row)], p.offset, p.num_words) for p in pendings)


def compile_together(several, values, more, other, made, function, arrays, static):
  """Compiles, in threads, what start_several(several, values, more, made, function, arrays, static) will run, and start_combined of `other`
  and its sums, the first two of them with factors. jit keeps for a call what was compiled ahead of it."""
  plan = several[0].plan
  if any(b.plan != plan for b in (*several, other)) or not (other.num_scalars and made.num_scalars):
    return
  rows, stages = [b.rows for b in several], tuple(b.stage for b in several)
  first = values, more, made.rows, arrays
  how = plan, stages, _made(made, function, static)
  row, _, work = jax.eval_shape(lambda *v: _sums_and_made(*v, *how), rows, *first)
  _, places = _places(_taken_apart([*several, made], row))
  rest = plan, places, 2, other.stage
  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    programs = [pool.submit(_sum_and_combined.lower(other.rows, work, [row], msm.halves([0, 0]), *rest).compile),
                pool.submit(_sums_and_made.lower(rows, *first, *how).compile)]
    for program in programs:
      program.result()


def _made(bases, function, static):
  return _Made(bases.plan, bases.stage, function, static)


@jax.jit
def _plain(values, more):
  return Fr(jnp.concatenate([values.limbs, more.limbs], axis=1)).to_plain()


def _pending(bases, row):
  row.copy_to_host_async()
  return _taken_apart(bases, row)


def _taken_apart(bases, row):
  """The Pendings of sums that lie one behind the other."""
  sums, offset = [], 0
  for b in bases:
    sums.append(Pending(row, degree_of(b.rows), offset))
    offset += sums[-1].num_words
  return sums


@functools.partial(jax.jit, static_argnums=(2, 3))
def _sums(rows, work, plan, stages=None):
  """The words of all sums, one behind the other: one array to fetch."""
  return jnp.concatenate([v for total in msm.sums_scheduled(rows, work, plan, stages=stages) for v in jax.tree.leaves(total)])


@functools.partial(jax.jit, static_argnums=(5, 6, 7))
def _sums_and_made(rows, values, more, made_rows, arrays, plan, stages, made):
  """The words of all sums and of the first scalar, one behind the other, the scalars and their Schedule."""
  with jax.named_scope("msm_schedule"):
    words = _plain(values, more)
    work = msm.schedule(words, plan)
  sums = _sums(rows, work, plan, stages)
  made_words = made.function(*arrays, *made.static)
  with jax.named_scope("msm_schedule"):
    made_work = msm.schedule(made_words, made.plan)
  return jnp.concatenate([sums, _sums([made_rows], made_work, made.plan, (made.stage,)), words[:, 0]]), words, work


@functools.partial(jax.jit, static_argnums=2)
def _sum_and_schedule(rows, words, plan):
  work = msm.schedule(words, plan)
  return _sums([rows], work, plan), work


@functools.partial(jax.jit, static_argnums=(4, 5, 6, 7))
def _sum_and_combined(rows, work, totals, halves, plan, places, num_factored, stage):
  """The words of the sum and of the combination. places: of the points in the rows `totals`, see `_places`."""
  parts = jnp.stack([totals[row][offset:offset + size] for row, offset, size in places])
  with jax.named_scope("msm_combined"):
    total = msm.combined(parts[:num_factored], parts[num_factored:], halves)
  return jnp.concatenate([_sums([rows], work, plan, (stage,)), *jax.tree.leaves(total)])


@functools.partial(jax.jit, static_argnums=1)
def _schedule(words, plan):
  return msm.schedule(words, plan)


@functools.partial(jax.jit, static_argnums=1)
def _table(rows, plan):
  return msm.table_rows(rows, plan)


def sums_of_entries(table, words, launch=simt.launch):
  """See `ops.msm`: Affine[n] on the device."""
  leaves, structure = jax.tree.flatten(table)
  rows = np.concatenate([np.asarray(v).transpose(0, 2, 1).reshape(-1, FP.words) for v in leaves], axis=1)
  make = _entry_sums if launch is simt.launch else functools.partial(_coordinates_of_sums, launch=launch)
  return jax.tree.unflatten(structure, make(rows, jnp.asarray(words)))


def _coordinates_of_sums(rows, words, launch=simt.launch):
  """uint32[12, n] of each coordinate."""
  if not words.shape[1]:
    return [jnp.zeros((FP.words, 0), jnp.uint32)] * (rows.shape[1] // FP.words)
  return jnp.split(kernels.sums_of_entries(degree_of(rows), rows, words, launch).T, rows.shape[1] // FP.words)


_entry_sums = jax.jit(_coordinates_of_sums)


def affine(row, degree):
  """The affine integer point, or None, of the words of one point in XYZZ coordinates."""
  curve = (G1, G2)[degree - 1]
  values = Fp(np.ascontiguousarray(row.reshape(4 * degree, FP.words).T)).to_ints()
  x, y, zz, zzz = values if degree == 1 else zip(values[::2], values[1::2])
  f = curve.field
  return None if zz == f.zero else (f.mul(x, f.inverse(zz)), f.mul(y, f.inverse(zzz)))
