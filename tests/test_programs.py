"""Programs on disk: the second process compiles nothing, and whatever changes a program or is wrong with a file makes a new one."""
import logging
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zkjax.ops import programs

X = np.arange(5, dtype=np.uint32)


def scaled(x, pair, factor):
  TRACES.append(factor)
  return x * factor + pair["a"] - pair["b"]


TRACES = []


@pytest.fixture
def settings():
  saved = jax.config.jax_compilation_cache_dir, jax.config.jax_enable_compilation_cache
  jax.config.update("jax_enable_compilation_cache", True)
  yield
  jax.config.update("jax_compilation_cache_dir", saved[0])
  jax.config.update("jax_enable_compilation_cache", saved[1])


@pytest.fixture
def folder(tmp_path, settings):
  """An empty cache, with what a process knows forgotten."""
  jax.config.update("jax_compilation_cache_dir", str(tmp_path))
  TRACES.clear()
  return tmp_path


def call(x=X, factor=3):
  """scaled on a fresh `stored`, as in a new process."""
  return np.asarray(programs.stored(scaled, ("factor",))(x, {"a": x, "b": x + 1}, factor=factor))


def files(folder):
  return sorted(folder.glob("*-zkjax"))


def test_the_second_call_traces_nothing(folder):
  assert (call() == 3 * X - 1).all() and TRACES == [3] and len(files(folder)) == 1
  assert (call() == 3 * X - 1).all() and TRACES == [3]


def test_one_object_asks_the_disk_once(folder):
  function = programs.stored(scaled, ("factor",))
  function(X, {"a": X, "b": X}, 3)
  for file in files(folder):
    file.unlink()
  function(X, {"a": X, "b": X}, factor=3)
  assert TRACES == [3] and not files(folder)


def test_shapes_types_and_static_arguments_are_told_apart(folder):
  for x, factor in ((X, 3), (X, 4), (X[:3], 3), (X.astype(np.int32), 3), (X.reshape(1, 5), 3)):
    result = call(x, factor)
    assert (result == factor * x - 1).all() and result.shape == x.shape and result.dtype == x.dtype
  assert len(files(folder)) == len(TRACES) == 5


@pytest.mark.parametrize("name", ["_sources", "_environment", "_processor"])
def test_other_sources_versions_or_processors_make_another_program(folder, monkeypatch, name):
  call()
  monkeypatch.setattr(programs, name, lambda *_: ("another",))
  call()
  assert TRACES == [3, 3] and len(files(folder)) == 2


def test_the_options_of_the_compiler_are_part_of_the_key(folder):
  shapes = (jax.ShapeDtypeStruct((5,), jnp.uint32),)
  double = lambda x: 2 * x
  for options in (None, {"xla_cpu_prefer_vector_width": "128"}, {"xla_cpu_prefer_vector_width": "256"}):
    assert (programs.executable(double, jax.jit(double), shapes, options=options)(X) == 2 * X).all()
  assert len(files(folder)) == 3


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-1], lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
                                    lambda data: bytes([data[0] ^ 1]) + data[1:]], ids=["empty", "truncated", "flipped", "digest"])
def test_a_damaged_file_is_replaced(folder, damage, caplog):
  call()
  file, = files(folder)
  good = file.read_bytes()
  file.write_bytes(damage(good))
  with caplog.at_level(logging.WARNING):
    assert (call() == 3 * X - 1).all()
  assert TRACES == [3, 3] and str(file) in caplog.text
  assert (call() == 3 * X - 1).all() and TRACES == [3, 3]


def test_a_program_that_cannot_be_loaded_is_compiled_again(folder, monkeypatch, caplog):
  call()
  monkeypatch.setattr(programs.serialize_executable, "deserialize_and_load", lambda *_: 1 / 0)
  with caplog.at_level(logging.WARNING):
    assert (call() == 3 * X - 1).all() and TRACES == [3, 3]
  assert "division by zero" in caplog.text


def test_a_program_that_cannot_be_kept_still_runs(folder, monkeypatch, caplog):
  monkeypatch.setattr(programs.os, "replace", lambda *_: 1 / 0)
  with caplog.at_level(logging.WARNING):
    assert (call() == 3 * X - 1).all()
  assert not files(folder) and "division by zero" in caplog.text
  assert [path for path in folder.iterdir() if path.name.startswith("tmp")] == []


def test_nothing_is_kept_without_a_cache(folder):
  jax.config.update("jax_enable_compilation_cache", False)
  call()
  jax.config.update("jax_enable_compilation_cache", True)
  jax.config.update("jax_compilation_cache_dir", None)
  call()
  assert not files(folder)


def test_under_transformations_it_is_jit(folder):
  function = programs.stored(scaled, ("factor",))
  pair = {"a": X, "b": X + 1}
  assert (jax.jit(lambda x: function(x, pair, factor=3))(X) == 3 * X - 1).all()
  assert (jax.vmap(lambda x: function(x, pair, factor=3))(np.stack([X, X])) == 3 * X - 1).all()
  assert not files(folder)


def test_another_process_finds_it(folder):
  """The key says the same in every process: no addresses, no order of sets."""
  script = ("import sys; sys.path.insert(0, sys.argv[1]); import test_programs as t, jax\n"
            "jax.config.update('jax_compilation_cache_dir', sys.argv[2]); t.call(); print(len(t.TRACES))")
  run = lambda seed: subprocess.run([sys.executable, "-c", script, os.path.dirname(__file__), str(folder)], check=True, text=True,
                                    capture_output=True, env=os.environ | {"PYTHONHASHSEED": seed}).stdout.strip()
  assert (run("1"), run("2")) == ("1", "0") and len(files(folder)) == 1


def test_several_devices(folder):
  """A program is loaded for one device. Arrays on another, or another default, are computed on there."""
  script = ("import sys; sys.path.insert(0, sys.argv[1]); import test_programs as t, jax\n"
            "jax.config.update('jax_compilation_cache_dir', sys.argv[2]); one, two = jax.devices()\n"
            "f = t.programs.stored(t.scaled, ('factor',)); run = lambda x: f(x, {'a': x, 'b': x + 1}, factor=3)\n"
            "out = [run(t.X), run(jax.device_put(t.X, two))]\n"
            "with jax.default_device(two): out.append(run(t.X))\n"
            "assert all((v == 3 * t.X - 1).all() for v in out)\n"
            "print([v.devices() == {d} for v, d in zip(out, (one, two, two))], len(t.TRACES))")
  flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
  run = lambda: subprocess.run([sys.executable, "-c", script, os.path.dirname(__file__), str(folder)], check=True, text=True,
                               capture_output=True, env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}).stdout.strip()
  first, second = run(), run()
  assert first.startswith("[True, True, True]") and second.startswith("[True, True, True]")
  assert int(second.split()[-1]) == int(first.split()[-1]) - 1
