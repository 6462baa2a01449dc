"""What each stage of a proof launches: counts, which no busy machine changes, for a stored baseline.

  python tests/stage_counts.py            prints the counts beside those of tests/data/stage_counts.json
  python tests/stage_counts.py --update   and writes them there

gpu: kernels of zkjax in the programs that a GPU runs for a proof with a domain of 2^16, from their traces: what stands in a loop counts
once. cpu: batched additions of sums of 2^10 points. For times see examples/pipeline.py with --mode=attribution, and profiles/.
"""
import collections
import itertools
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

from zkjax.groth16.prove import quotient_scalars_with
from zkjax.groth16.types import SparseMatrix, StackedConstraints
from zkjax.ops.bls12_381 import R
from zkjax.ops.cpu import affine
from zkjax.ops.cpu import msm as cpu_msm
from zkjax.ops.curve import Affine
from zkjax.ops.field import Fp, Fp2, Fr
from zkjax.ops.gpu import fixed, msm, points
from zkjax.ops.int_curve import G1, G2
from zkjax.ops.msm import FixedBases
from zkjax.ops.ntt import Domain

PATH = pathlib.Path(__file__).resolve().parent / "data" / "stage_counts.json"
LOG2_SIZE, SIZE = 16, 1 << 10
STAGES = ("matvec", "quotient", "msm_")


def gpu():
  """{stage: kernels}. `support.usable` must say yes."""
  size = 1 << LOG2_SIZE
  shape = lambda *dims: jax.ShapeDtypeStruct(dims, jnp.uint32)
  index = jax.ShapeDtypeStruct((size,), jnp.int32)
  matrix, witness, domain = SparseMatrix(index, index, Fr(shape(8, size))), Fr(shape(8, size)), Domain(LOG2_SIZE)
  constraints = StackedConstraints(jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape[:-1] + (2 * size,), v.dtype), matrix), size, 2)
  plan, h_plan = msm.default_plan(size + 4, 64), msm.default_plan(size, 64)
  rows = lambda plan, count, words: shape(plan.factor * count, words)

  def proof(g1, g2, h, witness, more, constraints):
    arrays, made = (constraints, witness, None), fixed._Made(h_plan, "msm_h", quotient_scalars_with, (domain, "coset"))
    row, _, work = fixed._sums_and_made([g1] * 3, witness, more, h, arrays, plan, ("msm_a", "msm_b_g1", "msm_l"), made)
    words = points.xyzz_words(1)
    places = tuple((0, k * words, words) for k in range(4))
    return fixed._sum_and_combined(g2, work, [row], msm.halves([1, 1]), plan, places, 2, "msm_b_g2")
  traced = jax.make_jaxpr(proof)(
      rows(plan, size + 4, 24), rows(plan, size + 4, 48), rows(h_plan, size, 24), witness, Fr(shape(8, 4)), constraints)
  counts = collections.Counter()
  _count_kernels(traced.jaxpr, "", counts)
  return dict(sorted(counts.items()))


def _count_kernels(jaxpr, outer, counts):
  for equation in jaxpr.eqns:
    path = f"{outer}/{equation.source_info.name_stack}"
    if equation.primitive.name in ("core_map", "mpmd_map"):      # how a kernel is launched, in older and newer JAX
      counts[next((part for part in reversed(path.split("/")) if part.startswith(STAGES)), "other")] += 1
      continue
    is_jaxpr = lambda v: hasattr(v, "eqns") or hasattr(v, "jaxpr")
    for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=is_jaxpr):
      if is_jaxpr(inner):
        _count_kernels(getattr(inner, "jaxpr", inner), path, counts)


def cpu():
  """{work: additions, those in rows that are not full included}."""
  counts, batch_add, rng = {}, affine.batch_add, np.random.default_rng(1)
  words = rng.integers(0, 1 << 32, (8, SIZE), np.uint32)
  words[-1] %= R >> 224
  bits = np.where(np.arange(8)[:, None] == 0, words & 1, np.uint32(0))
  for name, curve, field, scalars in (("msm g1", G1, Fp, words), ("msm g1 of bits", G1, Fp, bits), ("msm g2", G2, Fp2, words)):
    rows = []

    def counted(*kind, rows=rows):
      run = batch_add(*kind)
      return lambda *arguments: rows.append(int(arguments[-1])) or run(*arguments)
    points = list(itertools.accumulate([curve.generator] * SIZE, lambda p, q, curve=curve: curve.sum([p, q])))
    affine.batch_add = counted
    try:
      FixedBases(cpu_msm.prepare(Affine.from_ints(field, points))).msm(scalars)
    finally:
      affine.batch_add = batch_add
    counts[name] = sum(rows) * affine.LANES
  return counts


if __name__ == "__main__":
  from zkjax.ops.gpu import support
  support.usable = lambda: False
  here = {"cpu": cpu()}
  support.usable = lambda: True
  here["gpu"] = gpu()
  stored = json.loads(PATH.read_text()) if PATH.exists() else {}
  for kind, counts in here.items():
    for name, count in counts.items():
      print(f"{kind:<5}{name:<28}{count:>6}  stored {stored.get(kind, {}).get(name, '-')}")
  if "--update" in sys.argv:
    PATH.write_text(json.dumps(here, indent=2) + "\n")
