"""Compiled programs are kept for the next run, here and in the scripts that tests start.

`--no-compilation-cache` or ZKJAX_NO_CACHE=1 turns that off; JAX_COMPILATION_CACHE_DIR moves it.
"""
import os
import pathlib

import pytest

SHARED = pathlib.Path(__file__).resolve().parents[2] / "shared"


def pytest_addoption(parser):
  parser.addoption("--no-compilation-cache", action="store_true", help="compile everything anew")


def pytest_configure(config):
  """Before any test module imports JAX. What the environment says comes first."""
  if config.getoption("--no-compilation-cache") or os.environ.get("ZKJAX_NO_CACHE", "0") not in ("", "0"):
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    return
  user_cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
  os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(user_cache / "zkjax"))
  os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


@pytest.fixture(scope="session")
def shared():
  """shared("circuits", "mul"): a path in the folder of foreign vectors and circuits beside the repository, or a skipped test."""
  def find(*parts):
    path = SHARED.joinpath(*parts)
    if not path.exists():
      pytest.skip(f"{'/'.join(('..', 'shared') + parts)} is not there")
    return path
  return find
