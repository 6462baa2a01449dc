"""Elementwise kernels: run over NumPy against integers, and lowered for CUDA, which needs no GPU."""
import cases
import jax
import jax.numpy as jnp
import numpy as np
import numpy_builder
import oracle
import pytest

from zkjax.ops.field import Fp, Fp2, Fr
from zkjax.ops.gpu import field, support
from zkjax.ops.limbs import FP, FR


def pairs_of(values, count):
  """`count` pairs that mix edge values with each other."""
  return [values[i % len(values)] for i in range(count)], [values[(7 * i + 3) % len(values)] for i in range(count)]


@pytest.mark.parametrize("size", [0, 1, 127, 128, 300])
@pytest.mark.parametrize("cls", [Fr, Fp])
def test_product_agrees_with_integers(cls, size):
  a, b = pairs_of(cases.scalar_field() if cls is Fr else cases.base_field(), size)
  got = cls(field.mul(cls._base, cls.from_ints(a).limbs, cls.from_ints(b).limbs, numpy_builder.launch))
  assert got.to_ints() == [x * y % cls.modulus for x, y in zip(a, b)]
  assert all(sum(int(w) << 32 * k for k, w in enumerate(column)) < cls.modulus for column in np.asarray(got.limbs).T)


def test_product_keeps_the_batch_shape():
  a, b = (Fr.from_ints(np.arange(6).reshape(2, 3) + k) for k in (1, 5))
  got = Fr(field.mul(FR, a.limbs, b.limbs, numpy_builder.launch))
  assert got.to_ints() == [[5, 12, 21], [32, 45, 60]]


def test_product_in_the_extension_agrees_with_integers():
  a, b = pairs_of(cases.quadratic_field() + list(zip(cases.random_elements(20, 1), cases.random_elements(20, 2))), 200)
  x, y = Fp2.from_ints(a), Fp2.from_ints(b)
  c0, c1 = field.mul_quadratic((x.c0.limbs, x.c1.limbs), (y.c0.limbs, y.c1.limbs), numpy_builder.launch)
  assert Fp2(Fp(c0), Fp(c1)).to_ints() == [oracle.fp2.mul(p, q) for p, q in zip(a, b)]


def lowered_for_cuda(fn, *shapes):
  """The serialized module of fn for arrays of uint32 of these shapes."""
  arguments = [jax.ShapeDtypeStruct(shape, jnp.uint32) for shape in shapes]
  return jax.export.export(jax.jit(fn), platforms=["cuda"])(*arguments).mlir_module_serialized


@pytest.mark.parametrize("modulus", [FR, FP], ids=["Fr", "Fp"])
def test_product_lowers_for_cuda(modulus):
  assert b"mosaic_gpu" in lowered_for_cuda(lambda a, b: field.mul(modulus, a, b), *[(modulus.words, 1000)] * 2)


def test_product_in_the_extension_lowers_for_cuda():
  assert b"mosaic_gpu" in lowered_for_cuda(lambda *v: field.mul_quadratic(v[:2], v[2:]), *[(12, 1000)] * 4)


def test_without_a_gpu_kernels_are_not_available():
  if jax.default_backend() == "gpu":
    pytest.skip("there is a GPU")
  assert support.usable() is False
