"""On a GPU that the kernels know, and only there: what the other tests lower or run over NumPy, run by the device.

Nearly all of their time is compiling: `pytest -n 4 tests/test_on_gpu.py`, and XLA_PYTHON_CLIENT_MEM_FRACTION=.1 in the environment, so that
four processes share the memory.
"""
import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from zkjax import groth16
from zkjax.groth16.r1cs import constraints_from_rows
from zkjax.groth16.setup import generator_multiples
from zkjax.ops.curve import Affine
from zkjax.ops.field import Fp, Fp2, Fr
from zkjax.ops.gpu import msm as gpu_msm
from zkjax.ops.gpu import support
from zkjax.ops.msm import FixedBases, MsmConfig, msm, shared_scalars
from zkjax.ops.ntt import Domain, intt, ntt

pytestmark = pytest.mark.skipif(not support.usable(), reason="needs an NVIDIA GPU of the Hopper generation or later")
CURVES = {"G1": (oracle.g1, Fp), "G2": (oracle.g2, Fp2)}


def affine(p):
  return jax.tree.map(np.asarray, p.to_affine()).to_ints()


def special(curve):
  p = cases.random_points(curve, 6, 5)
  bases = p + [None, p[0], p[0], p[0], curve.neg(p[0]), curve.double(p[0]), None, p[1], curve.neg(p[1]), curve.neg(p[1]), p[2]]
  return bases, cases.random_scalars(6, 7) + [5, 1, 1, 1, 3, oracle.R - 1, 0, 9, 9, 9, oracle.R - 2]


@pytest.mark.parametrize("group", CURVES)
def test_sums_of_special_points(group):
  curve, field = CURVES[group]
  bases, scalars = special(curve)
  want = curve.msm(bases, scalars)
  assert affine(msm(Affine.from_ints(field, bases), Fr.from_ints(scalars), MsmConfig(window_bits=5))) == want
  assert FixedBases.prepare(Affine.from_ints(field, bases)).msm(np.asarray(Fr.from_ints(scalars).to_plain())) == want


def test_one_bucket_over_all_levels_of_joining():
  """Equal points, so that additions double, and opposite ones, so that they cancel; tens of thousands of chunks of one bucket."""
  count = 1 << 16
  points = generator_multiples(Fp, [1] * (count - 5) + [oracle.R - 1] * 5)
  scalars = Fr.from_ints([oracle.R - 2]).broadcast_to((count,))
  want = oracle.g1.multiply(oracle.G1, -2 * (count - 10) % oracle.R)
  assert FixedBases.prepare(points).msm(np.asarray(scalars.to_plain())) == want


def test_more_points_than_fit_are_summed_in_pieces(monkeypatch):
  """Two pieces, with a bound that is smaller than the true one."""
  monkeypatch.setattr(gpu_msm, "_MOST", 1000)
  logs, numbers = cases.random_scalars(1500, 1), cases.random_scalars(1500, 2)
  got = msm(generator_multiples(Fp, logs), Fr.from_ints(numbers))
  assert affine(got) == oracle.g1.multiply(oracle.G1, sum(x * y for x, y in zip(logs, numbers)) % oracle.R)


def test_what_does_not_fit_the_memory_is_named_before_anything_is_launched():
  """A vector that takes more than half of what is free, so that no other fits beside it; it is never made."""
  free = support.free_bytes()
  domain = Domain(min((free // (4 * Fr.num_limbs)).bit_length(), 32))
  vector = jax.ShapeDtypeStruct((Fr.num_limbs, domain.size), jnp.uint32)
  with pytest.raises(MemoryError, match=rf"transforms of 1 times {domain.size} values need \d+ bytes on the device, {free} are free"):
    jax.eval_shape(lambda v: ntt(domain, Fr(v), "bit_reversed").limbs, vector)


def test_partitions_under_vmap():
  """Shared points and points of each partition; transforms and products too."""
  logs = [cases.random_scalars(100, k) for k in (1, 2, 3)]
  numbers = [cases.random_scalars(100, k) for k in (4, 5, 6)]
  scalars = Fr(jnp.stack([jnp.asarray(Fr.from_ints(v).limbs) for v in numbers]))
  points = [generator_multiples(Fp, v) for v in logs]
  want = lambda a, b: oracle.g1.multiply(oracle.G1, sum(x * y for x, y in zip(a, b)) % oracle.R)
  shared = jax.jit(jax.vmap(lambda s: msm(points[0], s)))(scalars)
  apart = jax.jit(jax.vmap(msm))(jax.tree.map(lambda *v: jnp.stack(v), *points), scalars)
  at = lambda p, k: affine(jax.tree.map(lambda v: v[k], p))
  assert [at(shared, k) for k in range(3)] == [want(logs[0], v) for v in numbers]
  assert [at(apart, k) for k in range(3)] == [want(a, b) for a, b in zip(logs, numbers)]
  domain = Domain(8)
  values = Fr(jnp.stack([jnp.asarray(Fr.from_ints(cases.random_scalars(256, k)).limbs) for k in (1, 2)]))
  out = jax.jit(jax.vmap(lambda v: ntt(domain, v)))(values)
  for k in range(2):
    assert np.array_equal(out.limbs[k], ntt(domain, Fr(values.limbs[k])).limbs)
  assert np.array_equal(jax.vmap(lambda v: intt(domain, v))(out).limbs, values.limbs)


@pytest.mark.parametrize("log2_size", [1, 4, 6, 7])
def test_small_transforms_end(log2_size):
  """In which fewer threads than a warp have something to do between barriers."""
  domain, values = Domain(log2_size), cases.random_scalars(1 << log2_size, 1)
  out = jax.jit(lambda v: ntt(domain, v))(Fr.from_ints(values))
  assert jax.tree.map(np.asarray, out).to_ints() == oracle.dft(values, domain.root)
  assert jax.tree.map(np.asarray, jax.jit(lambda v: intt(domain, v))(out)).to_ints() == values


def test_partitions_of_a_proof_and_keys_made_on_the_device():
  rows = [{k + 2: 1} for k in range(40)]
  constraints = constraints_from_rows(rows, rows, [{k + 3: 1} for k in range(39)] + [{1: 1}], 42, 1)
  key = groth16.setup(constraints)
  assert isinstance(key.a_query.x.limbs, jax.Array)
  witnesses = []
  for x in (3, 5, 7):
    chain = [x]
    for _ in range(40):
      chain.append(chain[-1] ** 2 % oracle.R)
    witnesses.append([1, chain[-1]] + chain[:-1])
  for proof, witness in zip(groth16.prove_batch(key, witnesses), witnesses):
    assert groth16.verify(key.vk, proof, witness[1:2]) and not groth16.verify(key.vk, proof, [witness[1] ^ 1])


def test_several_bases_share_a_schedule():
  logs, numbers = [cases.random_scalars(300, k) for k in (1, 2)], cases.random_scalars(300, 3)
  scalars = shared_scalars(np.asarray(Fr.from_ints(numbers).to_plain()))
  for v in logs:
    want = oracle.g1.multiply(oracle.G1, sum(x * y for x, y in zip(v, numbers)) % oracle.R)
    assert FixedBases.prepare(generator_multiples(Fp, v)).msm(scalars) == want
