"""Which implementation an operation takes: kernels where they can run, found by lowering for CUDA, which needs no GPU."""
import logging
import types

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from zkjax.groth16.qap import quotient
from zkjax.ops import msm as msm_module
from zkjax.ops.curve import Affine
from zkjax.ops.field import Fp, Fr
from zkjax.ops.gpu import support
from zkjax.ops.msm import FixedBases, MsmConfig, msm, shared_scalars, table_budget
from zkjax.ops.ntt import Domain, extend, intt, ntt


def points(count):
  return Affine.from_ints(Fp, cases.random_points(oracle.g1, count))


OPERATIONS = {
    "product": lambda a, b: (Fr(a) * Fr(b)).limbs,
    "product under vmap": lambda a, b: jax.vmap(lambda x: (Fr(x) * Fr(b)).limbs)(jnp.stack([a, a])),
    "product of the base field": lambda a, b: (Fp(jnp.concatenate([a, a[:4]])) * Fp(jnp.concatenate([b, b[:4]]))).limbs,
    "ntt": lambda a, b: ntt(Domain(4), Fr(a)).limbs,
    "intt": lambda a, b: intt(Domain(4, shift=3), Fr(a), "bit_reversed").limbs,
    "extend": lambda a, b: extend(Domain(4), Domain(4).odd_coset(), Fr(a)).limbs,
    "quotient": lambda a, b: quotient(Fr(a), Fr(b), Fr(a), Domain(4), "coset").limbs,
    "msm": lambda a, b: msm(points(16), Fr(a)).x.limbs,
    "msm under vmap": lambda a, b: jax.vmap(lambda s: msm(points(16), Fr(s)))(jnp.stack([a, b])).x.limbs,
}


def lowered(name, platform="cuda"):
  shape = jax.ShapeDtypeStruct((8, 16), jnp.uint32)
  return jax.export.export(jax.jit(lambda *v: OPERATIONS[name](*v)), platforms=[platform])(shape, shape).mlir_module_serialized


@pytest.fixture
def kernels(monkeypatch):
  """As on a GPU that the kernels know; what was traced before or is traced meanwhile is not used by others."""
  jax.clear_caches()
  monkeypatch.setattr(support, "usable", lambda: True)
  yield
  jax.clear_caches()


@pytest.mark.parametrize("name", OPERATIONS)
def test_kernels_are_taken_for_cuda_only(kernels, name):
  assert b"mosaic_gpu" in lowered(name)
  if name in ("product", "ntt"):
    assert b"mosaic_gpu" not in lowered(name, "cpu")


@pytest.mark.parametrize("name", ["product", "ntt"])
def test_the_portable_path_is_taken_elsewhere(name):
  assert b"mosaic_gpu" not in lowered(name)


def test_a_backend_can_be_forced(kernels):
  text = lambda config: jax.export.export(jax.jit(lambda s: msm(points(16), Fr(s), config).x.limbs), platforms=["cuda"])(
      jax.ShapeDtypeStruct((8, 16), jnp.uint32)).mlir_module_serialized
  assert b"sort" in text(MsmConfig(backend="gpu", window_bits=5))
  with pytest.raises(ValueError, match="backend must be"):
    msm(points(2), Fr.from_ints([1, 2]), MsmConfig(backend="tpu"))


def test_the_processor_still_runs_what_was_made_for_both(kernels):
  """On a machine with a GPU, arrays on its processor: the program holds both, and the processor takes the portable one."""
  a, b = Fr.from_ints(cases.scalars()[:16]), Fr.from_ints(cases.random_scalars(16, 2))
  assert (a * b).to_ints() == [x * y % oracle.R for x, y in zip(a.to_ints(), b.to_ints())]
  domain = Domain(4)
  assert extend(domain, domain.odd_coset(), a).to_ints() == ntt(domain.odd_coset(), intt(domain, a)).to_ints()


def test_extension_needs_cosets_of_the_same_roots():
  with pytest.raises(ValueError, match="same roots"):
    extend(Domain(3, 5), Domain(3, 7), Fr.from_ints(list(range(8))))


def test_fixed_bases_lie_where_the_kernels_run(monkeypatch):
  from zkjax.ops.gpu import fixed
  made = []
  monkeypatch.setattr(fixed, "prepare", lambda *a, stage: made.append(a) or "bases")
  monkeypatch.setattr(fixed, "start", lambda bases, scalars: types.SimpleNamespace(result=lambda: (bases, scalars)))
  assert not FixedBases.prepare(points(2)).on_gpu and table_budget() is None and not made
  monkeypatch.setattr(support, "usable", lambda: True)
  assert FixedBases.prepare("points", 3, 99).msm("scalars") == ("bases", "scalars") and made == [("points", 3, 99)]
  assert isinstance(shared_scalars(np.zeros((8, 2), np.uint32)), fixed.Scalars) and table_budget() > 1 << 30


def test_the_switch_turns_kernels_off(monkeypatch):
  monkeypatch.setattr(support, "_available", lambda: True)
  monkeypatch.delenv(support.SWITCH, raising=False)
  assert support.usable()
  monkeypatch.setenv(support.SWITCH, "1")
  assert not support.usable()


def test_an_unknown_gpu_is_reported_once(monkeypatch, caplog):
  old = types.SimpleNamespace(client=types.SimpleNamespace(platform_version="CUDA 12000"), compute_capability="8.0", device_kind="A100")
  monkeypatch.setattr(support.jax, "default_backend", lambda: "gpu")
  monkeypatch.setattr(support.jax, "devices", lambda: [old])
  support._available.cache_clear()
  with caplog.at_level(logging.WARNING):
    assert not support.usable() and not support.usable()
  support._available.cache_clear()
  assert len(caplog.records) == 1 and "portable code" in caplog.text and "A100" in caplog.text


def test_msm_on_the_host_is_left_alone(kernels, monkeypatch):
  monkeypatch.setattr(msm_module, "_in_graph", None)
  p = cases.random_points(oracle.g1, 4)
  assert int(msm(Affine.from_ints(Fp, p), Fr.from_ints([0, 0, 0, 0])).zz.limbs.max()) == 0
