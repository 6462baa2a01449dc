"""Counts of what a formula costs, for budgets."""
import jax
import numpy as np

from zkjax.ops import field


def count_products(monkeypatch, fn, *args):
  """[batch size of each multiplication that `fn` calls], not counting those in Fp that one in Fp2 is made of."""
  sizes, depth, multiply = [], [0], field._product

  def counted(a, b):
    if not depth[0]:
      sizes.append(int(np.prod(np.broadcast_shapes(a.shape, b.shape))))
    depth[0] += 1
    product = multiply(a, b)
    depth[0] -= 1
    return product
  monkeypatch.setattr(field, "_product", counted)
  jax.eval_shape(fn, *args)
  return sizes


def count_equations(jaxpr):
  """The equations of a jaxpr and of everything inside it: time to trace, lower, compile and load follows their number."""
  is_jaxpr = lambda v: hasattr(v, "eqns") or hasattr(v, "jaxpr")
  inner = [getattr(v, "jaxpr", v) for e in jaxpr.eqns for v in jax.tree.leaves(list(e.params.values()), is_leaf=is_jaxpr) if is_jaxpr(v)]
  return len(jaxpr.eqns) + sum(map(count_equations, inner))
