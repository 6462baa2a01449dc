"""The builder: control flow, shared memory and branches over NumPy and lowered for CUDA, and what is said of unknown machines."""
import types

import jax.numpy as jnp
import numpy as np
import numpy_builder
import pytest
from test_gpu_field import lowered_for_cuda

from zkjax.ops.gpu import simt, support


def control_flow(b, x, out, shared):
  """out[i] = (sum of k + x for k < x[neighbour] % 5, or 7 + x for odd x, exchanged through shared memory; ...)."""
  i, t = simt.thread_index(b), b.thread()
  value = b.load_row(x, i, 0, 4)
  b.store(shared, value[0], t)
  b.barrier()
  neighbour = b.load(shared, t ^ 1)
  total = b.repeat(neighbour % 5, b.word(0), lambda k, total: total + k + value[0])
  odd = (value[0] & 1).equals(1)
  chosen = b.when(odd, lambda: value[0] + 7, lambda: total)
  flipped = (~odd | (total < 3)).choose(1, 0)
  b.store_row(out, i, 0, (chosen, flipped, value[1] >> 3, 5 - value[2]))


def test_loops_branches_and_shared_memory():
  x = np.random.default_rng(0).integers(0, 1000, (256, 4)).astype(np.uint32)
  out, = numpy_builder.launch(control_flow, [x], [(256, 4)], 2, [(128,)])
  for i, row in enumerate(np.asarray(out).tolist()):
    v, (a, b, c, _) = int(x[i ^ 1, 0]), x[i].tolist()
    total = sum(k + a for k in range(v % 5))
    assert row == [a + 7 if a % 2 else total, int(a % 2 == 0 or total < 3), b >> 3, (5 - c) % 2**32]


def test_the_same_program_lowers_for_cuda():
  assert b"mosaic_gpu" in lowered_for_cuda(lambda x: simt.launch(control_flow, [x], [(256, 4)], 2, [(128,)]), (256, 4))


def test_barriers_are_known_to_the_compiler_as_such():
  """As assembly they may be copied into both sides of a branch that parts a warp: a transform of 64 values never ended."""
  def program(b, x, out):
    half = b.thread() < 16
    b.when(half, lambda: b.store(out, b.load(x, b.thread()), b.thread()))
    b.barrier()
    b.when(half & b.any_thread(half), lambda: b.store(out, b.word(1), b.thread() + 16))
  text = lowered_for_cuda(lambda x: simt.launch(program, [x], [(128,)], 1), (128,))
  assert b"barrier" in text and b"bar.sync" not in text and b"bar.red" in text


def test_the_numpy_builder_finds_races_and_indices_out_of_range():
  race = lambda b, x, out: b.store(out, b.load(x, b.thread()), b.thread() >> 1)
  outside = lambda b, x, out: b.store(out, b.load(x, b.thread() + 1), b.thread())
  for program, message in ((race, "two threads write"), (outside, "in an axis of")):
    with pytest.raises(Exception, match=message):
      np.asarray(numpy_builder.launch(program, [jnp.zeros(128, jnp.uint32)], [(128,)], 1)[0])


@pytest.mark.parametrize("version, capability, platform, reason", [
    ((0, 11, 2), "9.0", "CUDA 13000", ""), ((0, 12, 0), "10.0", "cuda 13000", ""), ((0, 9, 9), "9.0", "CUDA 13000", "tried on JAX"),
    ((0, 13, 0), "9.0", "CUDA 13000", "tried on JAX"), ((0, 11, 2), "8.0", "CUDA 12000", "compute capability 9.0"),
    ((0, 11, 2), "gfx942", "rocm 6", "NVIDIA GPU")])
def test_unknown_versions_and_old_devices_are_told_why(monkeypatch, version, capability, platform, reason):
  monkeypatch.setattr(support.jax, "__version_info__", version)
  client = types.SimpleNamespace(platform_version=platform)
  device = types.SimpleNamespace(client=client, compute_capability=capability, device_kind="a device")
  got = support.unsupported([device])
  assert reason in got and bool(got) == bool(reason)
