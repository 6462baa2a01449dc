"""The benchmark script at tiny sizes: rows, checks and errors."""
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


def benchmark(*flags):
  done = subprocess.run([sys.executable, str(ROOT / "examples/benchmark.py"), *flags], capture_output=True, text=True, timeout=600)
  return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("flags", [("--op=fr_mul", "--log2_size=4"), ("--op=msm_g1", "--log2_size=3", "--scalars=bits"),
                                   ("--op=intt", "--log2_size=2", "--batch=2"), ("--op=setup", "--log2_size=3")])
def test_rows_are_added_and_replaced(tmp_path, flags):
  path = tmp_path / "rows.json"
  for _ in range(2):
    code, out, errors = benchmark(*flags, f"--json={path}")
    assert code == 0, errors
  rows = json.loads(path.read_text())["rows"]
  assert len(rows) == 1 and rows[0] == json.loads(out) and rows[0]["runs"] == 7 and rows[0]["peer"] is None
  assert rows[0]["wall_seconds"] > 0 and rows[0]["spread"][0] <= rows[0]["wall_seconds"] <= rows[0]["spread"][1]


def test_arkworks_is_run_beside_ours():
  pytest.importorskip("py_arkworks_bls12381")
  code, out, errors = benchmark("--op=msm_g2", "--log2_size=3", "--compare=arkworks")
  row = json.loads(out) if code == 0 else {}
  assert code == 0 and row["peer"] == "arkworks" and row["ratio"] > 0 and len(row["ratio_spread"]) == 2, errors


@pytest.mark.parametrize("flags,what", [(("--op=ntt", "--compare=snarkjs"), "--op=prove"),
                                        (("--op=ntt", "--compare=arkworks"), "--op=msm_g1"),
                                        (("--op=prove", "--zkey=x"), "--wtns"), (("--op=frobnicate",), "--op")])
def test_errors_name_the_flag(flags, what):
  code, _, errors = benchmark("--log2_size=3", *flags)
  assert code == 2 and what in errors and "Traceback" not in errors


def test_a_chain_of_squarings_made_as_arrays_is_the_one_made_of_rows():
  sys.path.insert(0, str(ROOT / "examples"))
  import jax
  import workloads

  from zkjax.groth16.r1cs import constraints_from_rows, first_unsatisfied
  constraints, witness = workloads.squarings(3)
  wires = [2, 3, 4, 5, 6, 1]
  rows = [[{wire: 1} for wire in part] for part in (wires[:-1], wires[:-1], wires[1:])]
  expected = constraints_from_rows(*rows, 7, 2)
  assert jax.tree.structure(constraints) == jax.tree.structure(expected)
  assert all((a == b).all() for a, b in zip(jax.tree.leaves(constraints), jax.tree.leaves(expected)))
  assert first_unsatisfied(constraints, witness) is None
