"""Points joined and folded by teams: over NumPy against the oracle, with lists that end in one tile, cross tiles, and tiles of tiles."""
import cases
import jax
import jax.numpy as jnp
import numpy as np
import numpy_builder
import oracle
import pytest

from zkjax.ops.curve import Affine
from zkjax.ops.field import Fp, Fp2
from zkjax.ops.gpu import joins, msm, points, teams

CURVES = {"G1": (oracle.g1, Fp, 1), "G2": (oracle.g2, Fp2, 2)}


def xyzz(field, degree, affine):
  """Rows of affine points or None."""
  one = field.ones((len(affine),))
  z = field.zeros((len(affine),)).select(np.array([p is None for p in affine]), one)
  leaves = jax.tree.leaves((Affine.from_ints(field, affine), z, z))
  return np.concatenate([np.asarray(v).T for v in leaves], axis=1)


def affine_of(curve, row, degree):
  f, p = curve.field, msm._point(jnp.asarray(row), degree)
  x, y, zz, zzz = (v.to_ints() for v in (p.x, p.y, p.zz, p.zzz))
  return None if zz == f.zero else (f.mul(x, f.inverse(zz)), f.mul(y, f.inverse(zzz)))


@pytest.mark.parametrize("group", CURVES)
def test_additions_and_doublings_of_a_team(group):
  """Every pair of special points, then their doubles; slots of lanes that are not active stay."""
  curve, field, degree = CURVES[group]
  q, lanes = cases.random_points(curve, 1, 9)[0], teams.lanes_of(degree)
  pairs = [(curve.double(q), q), (curve.neg(curve.double(q)), q)] + cases.point_pairs(curve)
  pairs = pairs[:lanes - 1]
  left, right = (xyzz(field, degree, [p[k] for p in pairs] + [curve.generator] * (lanes - len(pairs))) for k in (0, 1))

  def program(b, p, q, out, memory):
    team = teams.Team(b, degree, memory)
    team.fill(0, lanes, lambda slot, part: teams.load_part(b, p, slot, 4 * degree, part))
    team.fill(team.tile, lanes, lambda slot, part: teams.load_part(b, q, slot, 4 * degree, part))
    b.barrier()
    active = team.addition < len(pairs)
    team.double(team.addition + team.tile, active)
    team.add(team.addition, team.addition + team.tile, active)
    team.drain(lanes, lambda slot, part, load: teams.store_part(b, out, slot, 4 * degree, part, load().reduced()))
  out, = numpy_builder.launch(program, [v.reshape(-1, 12) for v in (left, right)], [(left.size // 12, 12)], 1, [teams.SHARED])
  rows = np.asarray(out).reshape(lanes, -1)
  want = [curve.add(p, curve.double(q)) for p, q in pairs] + [curve.generator] * (lanes - len(pairs))
  assert [affine_of(curve, row, degree) for row in rows] == want
  assert any(q is None for _, q in pairs) and any(p is None for p, _ in pairs)


def cut(sizes, length):
  """starts, owners, and of each bucket the list of its chunks, for buckets of so many entries and 3 entries that belong to none."""
  starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint32)
  first_entries = np.arange(0, int(starts[-1]) + 3, length)
  owners = np.searchsorted(starts, first_entries, "right").astype(np.uint32) - 1
  lists = [[j for j, e in enumerate(first_entries) if begin < e < end] for begin, end in zip(starts, starts[1:])]
  return starts, owners, lists


@pytest.mark.parametrize("many", [1 << 16, 40])
@pytest.mark.parametrize("group, tables, sizes, length, depth", [
    ("G1", 2, [3, 0, 1, 200, 4, 4, 9, 8], 2, 3), ("G1", 1, [1, 0, 5, 2] * 32, 4, 5), ("G2", 1, [3, 2300, 0, 1, 2, 5, 1, 0], 2, 2)])
def test_buckets_are_joined_and_folded(monkeypatch, many, group, tables, sizes, length, depth):
  monkeypatch.setattr(joins, "_MANY", many)
  curve, field, degree = CURVES[group]
  starts, owners, lists = cut(sizes, length)
  rng = np.random.default_rng(1)
  few = [None] + cases.random_points(curve, 12, 3)
  few += [curve.neg(few[1]), curve.double(few[2])]
  pick = lambda n: rng.integers(0, len(few), n)
  heads, chunks = pick(tables * len(sizes)), pick(tables * len(owners))
  table = xyzz(field, degree, few)
  with jax.disable_jit():
    work = msm.Schedule(None, None, None, None, starts, owners)
    head_rows, chunk_rows = jnp.asarray(table[heads]), jnp.asarray(table[chunks]).reshape((tables, len(owners), -1))
    plan = msm.Plan(2, chunk=length)
    joined, rest = msm._join(degree, head_rows, chunk_rows, work, plan, numpy_builder.launch)
    assert (rest is None) == (len(owners) <= teams.tile_of(degree)) and (many == 40) == (joins.levels_of(degree, len(owners))[0][1] == 8)
    rows = joins.fold_buckets(degree, length, head_rows, joined, rest, starts, depth, numpy_builder.launch)
  total = lambda ps: curve.msm(list(ps), [1] * len(ps)) if ps else None
  sums = [total([few[heads[t * len(sizes) + b]]] + [few[chunks[t * len(owners) + j]] for j in lists[b]])
          for t in range(tables) for b in range(len(sizes))]
  nodes = len(sums) >> depth
  for node in range(nodes):
    group_sums = sums[node << depth:(node + 1) << depth]
    assert affine_of(curve, rows[node], degree) == total(group_sums)
    for k in range(depth):
      assert affine_of(curve, rows[(1 + k) * nodes + node], degree) == total([s for i, s in enumerate(group_sums) if i >> k & 1])


@pytest.mark.parametrize("nodes, values, depth", [(12, 3, 2), (2, 70, 1), (96, 1, 5)])
def test_further_levels_of_the_tree(nodes, values, depth):
  curve, few = oracle.g1, [None] + cases.random_points(oracle.g1, 12, 3)
  names = np.random.default_rng(2).integers(0, len(few), nodes * values)
  rows = jnp.asarray(xyzz(Fp, 1, few)[names])
  with jax.disable_jit():
    out = joins.fold(1, rows, np.array([nodes, values, depth], np.uint32), numpy_builder.launch)
  total = lambda ps: curve.msm(list(ps), [1] * len(ps))
  for value in range(values + depth):
    for node in range(nodes >> depth):
      old = min(value, values) % values if value < values else 0
      members = [few[names[old * nodes + (node << depth) + i]] for i in range(1 << depth)]
      if value >= values:
        members = [p for i, p in enumerate(members) if i >> (value - values) & 1]
      assert affine_of(curve, out[value * (nodes >> depth) + node], 1) == total(members)


@pytest.mark.parametrize("group", CURVES)
def test_the_end_of_a_sum(group):
  curve, field, degree = CURVES[group]
  few = [None] + cases.random_points(curve, 4, 3)
  index, doublings = np.array([[1, 2, 2, 3, 4], [0, 1, 1, 2, 1]]), np.array([[0, 3, 3, 1, 5], [2, 0, 0, 1, 1]])
  lanes = joins.lanes_for(degree, index, doublings)
  with jax.disable_jit():
    rows = joins.finish(degree, jnp.asarray(xyzz(field, degree, few)), *lanes, np.array([5], np.uint32), numpy_builder.launch)
  assert rows.shape == (2, points.xyzz_words(degree))
  want = [curve.msm([few[i] for i in ii], [1 << int(d) for d in dd]) for ii, dd in zip(index, doublings)]
  assert [affine_of(curve, row, degree) for row in rows] == want


@pytest.mark.parametrize("group", CURVES)
def test_tiles_of_infinite_points_are_not_added(monkeypatch, group):
  """One point among four tiles: the additions of its tile, and no others."""
  curve, field, degree = CURVES[group]
  tile, blocks = teams.tile_of(degree), []
  add = teams.Team.add
  monkeypatch.setattr(teams.Team, "add", lambda self, *v: blocks.append(self.builder.mask.reshape(-1, 128).any(1)) or add(self, *v))
  rows = jnp.asarray(xyzz(field, degree, [None] * (2 * tile + 5) + [curve.generator] + [None] * (2 * tile - 6)))
  with jax.disable_jit():
    out = joins.fold(degree, rows, np.array([4 * tile, 1, 2], np.uint32), numpy_builder.launch)
  assert len(blocks) == 2 and all(b.tolist() == [False, False, True, False] for b in blocks)
  found = {(int(k), affine_of(curve, out[k], degree)) for k in np.nonzero(np.asarray(out[:3 * tile]).any(1))[0]}
  assert found == {((2 * tile + 5) // 4, curve.generator), (tile + (2 * tile + 5) // 4, curve.generator)}
