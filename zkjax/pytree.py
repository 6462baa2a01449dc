"""`@pytree`: frozen dataclasses that JAX can trace. The only place that knows `register_dataclass`."""
import dataclasses

import jax


def static(**kwargs):
  """A dataclass field that is part of the type (hashable, compared by jit), not an array."""
  return dataclasses.field(metadata={"static": True}, **kwargs)


def pytree(cls):
  """Makes `cls` a frozen dataclass registered with JAX.

  `eq=False`: the generated `==` and `hash` would compare arrays. No checks belong in `__post_init__`, because JAX rebuilds
  pytrees with placeholder leaves.
  """
  cls = dataclasses.dataclass(frozen=True, eq=False)(cls)
  fields = dataclasses.fields(cls)
  meta = [f.name for f in fields if f.metadata.get("static")]
  data = [f.name for f in fields if not f.metadata.get("static")]
  return jax.tree_util.register_dataclass(cls, data_fields=data, meta_fields=meta)
