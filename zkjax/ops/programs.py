"""Compiled programs, kept on disk between processes.

JAX's persistent cache keeps what XLA compiled, but a process must still trace and lower a function to find it there: seconds, for unrolled
arithmetic. Here an executable is found by the name of its function, the shapes of its arguments and a digest of everything else that
shapes it: the sources of zkjax, the versions and options of the compiler, the device. They lie in the folder of JAX's cache and
follow its switches: `jax_compilation_cache_dir` unset or `jax_enable_compilation_cache` off means that nothing is read or written. Like
JAX's own entries they are machine code: the folder must be one that only its user can write to.
"""
import ctypes
import functools
import hashlib
import inspect
import logging
import os
import pathlib
import pickle
import platform
import random
import tempfile
import threading

import jax
import jaxlib
from jax.experimental import serialize_executable

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
_LOG = logging.getLogger(__name__)
_LOADING = threading.Lock()                  # one after the other: a program takes a hundred times its size while it is being loaded


def stored(function, static_argnames=()):
  """`jax.jit(function, static_argnames)` whose executables are kept on disk; inside jit, grad and vmap, and on other devices than the first
  one, it is just that.

  The first arguments are pytrees of arrays, the static ones follow and have a repr that says all, and the result is an array or a tuple
  of arrays.
  """
  jitted, signature, made, lock = jax.jit(function, static_argnames=static_argnames), inspect.signature(function), {}, threading.Lock()

  @functools.wraps(function)
  def call(*args, **kwargs):
    given = signature.bind(*args, **kwargs).arguments
    static = tuple((name, given.pop(name)) for name in static_argnames)
    leaves, tree = jax.tree.flatten(tuple(given.values()))
    if not _on_first_device(leaves):
      return jitted(*args, **kwargs)
    shapes = tuple(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in leaves)
    case = tree, shapes, static
    with lock:
      if case not in made:
        flat = jax.jit(lambda *leaves: function(*tree.unflatten(leaves), **dict(static)))
        made[case] = executable(function, flat, shapes, (str(tree), static))
    return made[case](*leaves)
  return call


def _on_first_device(leaves):
  """Whether JAX would compute on these arrays on its first device: an executable takes no others."""
  first = jax.devices()[0]
  here = lambda v: not isinstance(v, jax.Array) or not isinstance(v, jax.core.Tracer) and v.devices() == {first}
  return jax.config.jax_default_device in (None, first) and all(map(here, leaves))


def executable(function, jitted, shapes, static=(), options=None, device=None):
  """The jax.stages.Compiled of `jitted` for arguments of `shapes`, read from disk if the same one was kept there.

  Args:
    function: names the program. jitted: jax.jit of it. shapes: tuple of ShapeDtypeStruct. static: everything else that `jitted` depends on,
      with a repr that says all and is the same in every process. options: of the compiler. device: by default the first.
  """
  device = jax.devices()[0] if device is None else device
  file = _file(function, shapes, static, options, device)
  if file is not None and (kept := _read(file, device)) is not None:
    return kept
  # What JAX reads from its own cache cannot be serialized again: XLA has lost the functions. An option that changes nothing but a report
  # of memory makes the program a new one to that cache.
  salt = {"xla_debug_buffer_assignment_show_max": str(random.randrange(1, 1 << 31))} if file else {}
  with jax.default_device(device):
    compiled = jitted.lower(*shapes).compile(compiler_options=salt | (options or {}))
  if file is not None:
    _write(file, compiled)
  _return_memory()
  return compiled


def _file(function, shapes, static, options, device):
  """Where the executable is kept, or None if nothing is."""
  folder = jax.config.jax_compilation_cache_dir
  if not folder or not jax.config.jax_enable_compilation_cache:
    return None
  name = f"{function.__module__}.{function.__name__}"
  parts = (name, [(s.shape, str(s.dtype)) for s in shapes], static, sorted((options or {}).items()), _environment(device), _sources())
  return pathlib.Path(folder) / f"{name}-{hashlib.sha256(repr(parts).encode()).hexdigest()}-zkjax"


def _environment(device):
  """Versions, options and device: what makes the same program another executable."""
  return (jax.__version__, jaxlib.__version__, device.client.platform_version, device.device_kind, jax.device_count(),
          os.environ.get("XLA_FLAGS", ""), _processor())


@functools.cache
def _processor():
  """The machine's kind and, where the system tells, the instructions that its processor knows."""
  info = pathlib.Path("/proc/cpuinfo")
  lines = info.read_text().splitlines() if info.exists() else []
  features = next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
  return platform.machine(), features


@functools.cache
def _sources():
  digest = hashlib.sha256()
  for path in sorted(path for path in _PACKAGE.rglob("*.py") if path.parent.name != "engine"):     # what no program can depend on
    digest.update(f"{path.relative_to(_PACKAGE)}\n".encode() + path.read_bytes())
  return digest.hexdigest()


def _read(file, device):
  """The executable in a file, or None: not there, damaged, or one that this process cannot load."""
  try:
    data = file.read_bytes()
  except OSError:
    return None
  if hashlib.sha256(data[32:]).digest() != data[:32]:
    _LOG.warning("%s is damaged: compiling again", file)
    return None
  try:
    with _LOADING:
      program = serialize_executable.deserialize_and_load(*pickle.loads(data[32:]), device.client, [device])
      _return_memory()
    return program
  except Exception as error:                  # whatever a runtime says about a program that it cannot load, compiling helps
    _LOG.warning("%s cannot be loaded (%s): compiling again", file, error)
    return None


def _return_memory():
  """Gives freed memory back to the system: loading and compiling take a hundred times a program's size, which glibc would keep."""
  trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
  if trim is not None:
    trim(0)


def _write(file, compiled):
  """Keeps an executable, all of it or nothing. A full disk or a runtime that cannot serialize costs the next process a compilation."""
  try:
    data = pickle.dumps(serialize_executable.serialize(compiled))
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
      temporary = pathlib.Path(folder) / "program"
      temporary.write_bytes(hashlib.sha256(data).digest() + data)
      os.replace(temporary, file)
  except Exception as error:
    _LOG.warning("%s cannot be kept: %s", file, error)
