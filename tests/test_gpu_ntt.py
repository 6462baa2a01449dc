"""Transforms as the GPU does them: run over NumPy against the oracle, and lowered for CUDA."""
import cases
import numpy as np
import numpy_builder
import oracle
import pytest
from test_gpu_field import lowered_for_cuda

from zkjax.ops.field import Fr
from zkjax.ops.gpu import ntt


def bit_reversed(values):
  bits = len(values).bit_length() - 1
  return [values[int(bin(i)[2:].zfill(bits)[::-1], 2) if bits else 0] for i in range(len(values))]


def transform(rows, root, shift, inverse):
  words = np.stack([np.asarray(Fr.from_ints(row).limbs) for row in rows])
  return [Fr(v).to_ints() for v in ntt.transform(words, root, shift, inverse, numpy_builder.launch)]


@pytest.mark.parametrize("shift", [1, 7])
@pytest.mark.parametrize("log2_size", [0, 1, 2, 3, 6, 7])
def test_forward_agrees_with_the_oracle_and_inverse_takes_it_back(log2_size, shift):
  values, root = cases.random_scalars(1 << log2_size, log2_size), oracle.root_of_unity(log2_size, 7)
  out, = transform([values], root, shift, False)
  assert out == bit_reversed(oracle.dft(values, root, shift))
  assert transform([out], root, shift, True) == [values]


def test_polynomials_of_a_batch_do_not_mix():
  rows, root = [cases.scalars()[:8], [oracle.R - 1] * 8, [0] * 8], oracle.root_of_unity(3, 5)
  assert transform(rows, root, 1, False) == [bit_reversed(oracle.dft(row, root)) for row in rows]


@pytest.mark.parametrize("log2_size", [10, 14])
def test_many_passes_evaluate_at_a_point_of_the_coset(log2_size):
  n, root = 1 << log2_size, oracle.root_of_unity(log2_size, 7)
  values = cases.random_scalars(n, 1)
  out, = transform([values], root, 7, False)
  for place in (0, 1, n // 2, n - 1, 3 * n // 8 + 1):
    k = int(bin(place)[2:].zfill(log2_size)[::-1], 2)
    assert out[place] == oracle.evaluate_polynomial(values, 7 * pow(root, k, oracle.R) % oracle.R)


def test_a_root_of_another_order_is_refused():
  with pytest.raises(ValueError, match="root of that order"):
    transform([[1, 2, 3, 4]], oracle.root_of_unity(3, 7), 1, False)


@pytest.mark.parametrize("inverse", [False, True])
def test_transforms_lower_for_cuda(inverse):
  root = oracle.root_of_unity(14, 7)
  assert b"mosaic_gpu" in lowered_for_cuda(lambda v: ntt.transform(v, root, 7, inverse), (2, 8, 1 << 14))
