"""Whether the kernels are used here: decided before any of them is loaded, because loading Mosaic GPU takes a good part of a second."""
import functools
import importlib.util
import logging
import os

import jax

SWITCH = "ZKJAX_NO_GPU_KERNELS"              # an environment variable: 1 turns the kernels off

_LOG = logging.getLogger(__name__)
_KNOWN = ((0, 10), (0, 12))                  # first and last JAX minor version that kernels were tried on
_MIN_CAPABILITY = 9.0                        # Hopper: Mosaic GPU supports nothing older


def usable():
  """Whether operations on the default backend run as kernels: it is a GPU of the Hopper generation or later, under a JAX that they were
  tried on, and the switch is not set. Where a GPU stays unused the log says so once."""
  return os.environ.get(SWITCH, "0") in ("", "0") and _available()


@functools.cache
def _available():
  if jax.default_backend() != "gpu":
    return False
  reason = unsupported(jax.devices())
  if reason:
    _LOG.warning("zkjax runs its portable code on this GPU, which is many times slower than its kernels: %s", reason)
  return not reason


def unsupported(devices):
  """Why the kernels cannot run on these devices, or ""."""
  version = jax.__version_info__[:2]
  if not _KNOWN[0] <= version <= _KNOWN[1] or importlib.util.find_spec("jax.experimental.pallas.mosaic_gpu") is None:
    return f"they were tried on JAX {'.'.join(map(str, _KNOWN[0]))} to {'.'.join(map(str, _KNOWN[1]))}, this is {jax.__version__}"
  capable = lambda d: "cuda" in d.client.platform_version.lower() and float(getattr(d, "compute_capability", 0)) >= _MIN_CAPABILITY
  old = [d for d in devices if not capable(d)]
  return f"they need an NVIDIA GPU of compute capability {_MIN_CAPABILITY} or more, this is {old[0].device_kind}" if old else ""


def free_bytes():
  """What is free of the memory of the default device, None where it does not say."""
  stats = jax.devices()[0].memory_stats() or {}
  return stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else None


def require(needed, work, remedy):
  """MemoryError if fewer than `needed` bytes are free: before anything of the work is launched, while it is traced or prepared."""
  free = free_bytes()
  if free is not None and needed > free:
    raise MemoryError(f"{work} need {needed} bytes on the device, {free} are free: {remedy}")
