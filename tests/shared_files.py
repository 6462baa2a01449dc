"""Where the files of circuits are, and a piece of their formats."""
import pathlib

import pytest

DATA = pathlib.Path(__file__).resolve().parent / "data"
CIRCUITS = pathlib.Path(__file__).resolve().parents[2] / "shared" / "circuits"


def circuit(name):
  folder = DATA / name if name == "mul" else CIRCUITS / name
  if not folder.exists():
    pytest.skip(f"../shared/circuits/{name} is not there")
  return folder


def u32(value):
  return value.to_bytes(4, "little")
