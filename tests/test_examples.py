"""The scripts as a user runs them: flags, exit codes (0 done, 1 false proof, 2 error), files, and no secret in what they print."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from zkjax import groth16
from zkjax.ops.field import Fr

ROOT = pathlib.Path(__file__).resolve().parents[1]
EXAMPLE, MUL, REJECTED = ROOT / "examples" / "data", ROOT / "tests" / "data" / "mul", ROOT / "tests" / "data" / "rejected"
SECRET = 998877665544332211
REPORT = {"circuit", "device", "jax", "verified", "compile_seconds", "peak_rss_mb", "prove", "stages"}
PROVE = {"first_wall_seconds", "warm_wall_seconds", "warm_cpu_seconds"}
STAGES = ["load", "prepare", "quotient", "msm_a", "msm_b_g1", "msm_b_g2", "msm_h", "msm_l", "assemble", "verify"]


def run(script, *flags, expect, env=None):
  """Runs a script in another folder than the repository; returns what it printed on both streams. Never a traceback."""
  command = [sys.executable, str(ROOT / "examples" / f"{script}.py"), *map(str, flags)]
  result = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT.parent, env={**os.environ, **(env or {})},
                          stdin=subprocess.DEVNULL)
  text = result.stdout + result.stderr
  assert result.returncode == expect, text
  assert "Traceback" not in text
  if expect == 2:
    assert len([line for line in result.stderr.splitlines() if line.startswith("error: ")]) == 1 and not result.stdout
  return text


def prove_mul(*flags, expect=0, env=None):
  return run("prove", f"--zkey={MUL / 'mul.zkey'}", f"--wtns={MUL / 'witness.wtns'}", *flags, expect=expect, env=env)


def files_of(folder):
  return sorted(path.name for path in folder.iterdir())


# Done

def test_prove_without_flags():
  text = run("prove", expect=0)
  assert "purchase: 262 wires, 3 public" in text and re.search(r"^proof +verified$", text, re.M)


def test_prove_writes_files_that_verify(tmp_path):
  proof, public, report = (tmp_path / f"{name}.json" for name in ("proof", "public", "report"))
  text = prove_mul(f"--r1cs={MUL / 'mul.r1cs'}", f"--proof={proof}", f"--public={public}", f"--json={report}", "--repeat=2")
  assert files_of(tmp_path) == ["proof.json", "public.json", "report.json"]
  assert groth16.read_public(public) == groth16.read_public(MUL / "public.json")
  assert groth16.verify(groth16.read_vkey(MUL / "vkey.json"), groth16.read_proof(proof), groth16.read_public(public))
  assert all(str(path) in text for path in (proof, public, report))
  check_report(json.loads(report.read_text()))


def check_report(report):
  assert set(report) == REPORT and set(report["prove"]) == PROVE and list(report["stages"]) == STAGES
  assert report["circuit"] == "mul" and report["verified"] is True and report["device"] and report["jax"]
  numbers = [report["compile_seconds"], report["peak_rss_mb"], *report["prove"].values(), *report["stages"].values()]
  assert all(isinstance(value, float) and 0 <= value < 10000 for value in numbers)
  assert report["prove"]["warm_wall_seconds"] <= report["prove"]["first_wall_seconds"]
  assert 10 < report["peak_rss_mb"]


def test_fixed_blinding_gives_the_recorded_proof_and_a_warning(tmp_path):
  proof, report = tmp_path / "proof.json", tmp_path / "report.json"
  text = prove_mul("--test_blinding=7,11", f"--proof={proof}", f"--json={report}", "--repeat=0", "--noverify", "--nocompilation_cache")
  assert json.loads(proof.read_text()) == json.loads((MUL / "det_r7_s11" / "proof.json").read_text())
  assert "WARNING" in text and "never publish" in text and "not verified" in text
  data = json.loads(report.read_text())
  assert data["verified"] is None and data["stages"] == {} and data["prove"]["warm_wall_seconds"] is None
  assert data["prove"]["first_wall_seconds"] > 0


def test_verify_without_flags():
  assert "The proof is true." in run("verify", expect=0)


def test_setup_makes_keys_that_prove(tmp_path):
  zkey, vkey, proof, public = (tmp_path / name for name in ("mul.zkey", "vkey.json", "proof.json", "public.json"))
  text = run("setup", f"--r1cs={MUL / 'mul.r1cs'}", f"--zkey={zkey}", f"--vkey={vkey}", expect=0)
  assert "WARNING" in text and "forge" in text
  run("prove", f"--zkey={zkey}", f"--wtns={MUL / 'witness.wtns'}", f"--proof={proof}", f"--public={public}", expect=0)
  run("verify", f"--vkey={vkey}", f"--proof={proof}", f"--public={public}", expect=0)
  run("verify", f"--vkey={MUL / 'vkey.json'}", f"--proof={proof}", f"--public={public}", expect=1)


def test_keys_without_contribution_must_be_allowed():
  flags = f"--zkey={REJECTED / 'mul_uncontributed.zkey'}", f"--wtns={MUL / 'witness.wtns'}"
  assert "nobody contributed" in run("prove", *flags, expect=2)
  assert "verified" in run("prove", *flags, "--allow_uncontributed", expect=0)


def test_the_compilation_cache_is_where_the_environment_says(tmp_path):
  default, chosen = tmp_path / "default", tmp_path / "chosen"
  env = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_COMPILATION", "JAX_PERSISTENT"))}
  program = "import sys, command_line, jax; command_line.use_compilation_cache(sys.argv[1] == 'on'); jax.jit(lambda x: x * 3)(1)"
  for switch, extra in (("on", {}), ("on", {"JAX_COMPILATION_CACHE_DIR": str(chosen)}), ("off", {"XDG_CACHE_HOME": str(tmp_path / "off")})):
    subprocess.run([sys.executable, "-c", program, switch], check=True, cwd=ROOT / "examples",
                   env={**env, "XDG_CACHE_HOME": str(default), **extra})
  assert files_of(tmp_path) == ["chosen", "default"]
  assert files_of(default / "zkjax") and files_of(chosen)


@pytest.mark.parametrize("script", ["prove", "verify", "setup"])
def test_help(script):
  text = run(script, "--help", expect=0)
  assert f"python examples/{script}.py" in text and "Exit code" in text and "--[no]compilation_cache" in text
  assert max(map(len, text.splitlines())) <= 140


# False

def test_a_false_proof_is_not_written(tmp_path):
  proof, public, report = (tmp_path / f"{name}.json" for name in ("proof", "public", "report"))
  proof.write_text("old")
  text = run("prove", f"--zkey={MUL / 'mul.zkey'}", f"--wtns={REJECTED / 'wtns_wrong_private.wtns'}", f"--proof={proof}",
             f"--public={public}", f"--json={report}", expect=1)
  assert "FALSE" in text and "--r1cs" in text
  assert files_of(tmp_path) == ["proof.json"] and proof.read_text() == "old"


def test_verify_tells_false_from_malformed(tmp_path):
  public = tmp_path / "public.json"
  flags = f"--vkey={MUL / 'vkey.json'}", f"--proof={MUL / 'proof.json'}", f"--public={public}"
  public.write_text('["34"]')
  assert "FALSE" in run("verify", *flags, expect=1)
  for text, reason in (('["33", "1"]', "1 value"), ("[]", "1 value"), ('["-1"]', "value 0"), ("nonsense", "public.json")):
    public.write_text(text)
    assert reason in run("verify", *flags, expect=2)


@pytest.mark.parametrize("name,code", [
    ("proof_scaled", 0), ("proof_A_not_in_subgroup", 2), ("proof_A_not_on_curve", 2), ("proof_B_not_in_subgroup", 2)])
def test_verify_on_proofs_made_to_deceive(name, code):
  run("verify", f"--vkey={MUL / 'vkey.json'}", f"--proof={REJECTED / name}.json", f"--public={MUL / 'public.json'}", expect=code)


# Errors

def test_the_violated_constraint_is_named(tmp_path):
  text = run("prove", f"--zkey={MUL / 'mul.zkey'}", f"--wtns={REJECTED / 'wtns_wrong_private.wtns'}", f"--r1cs={MUL / 'mul.r1cs'}",
             f"--proof={tmp_path / 'proof.json'}", expect=2)
  assert re.search(r"constraint 0\b", text) and not files_of(tmp_path)


@pytest.mark.parametrize("name", ["wtns_truncated", "wtns_bn254_prime", "wtns_noncanonical_private", "wtns_noncanonical_public"])
def test_bad_witness_files_are_named(name):
  assert f"{name}.wtns" in run("prove", f"--zkey={MUL / 'mul.zkey'}", f"--wtns={REJECTED / name}.wtns", expect=2)


def test_the_witness_of_another_circuit():
  assert "4 wires" in run("prove", f"--zkey={MUL / 'mul.zkey'}", f"--wtns={EXAMPLE / 'witness.wtns'}", expect=2)


@pytest.mark.parametrize("script,flags,reason", [
    ("prove", ["--zkey=absent.zkey", f"--wtns={MUL / 'witness.wtns'}"], "absent.zkey: No such file"),
    ("prove", [f"--zkey={MUL / 'mul.zkey'}"], "--wtns missing"),
    ("prove", [f"--zkey={MUL}", f"--wtns={MUL / 'witness.wtns'}"], "Is a directory"),
    ("prove", ["--proof=/no/such/folder/proof.json"], "cannot be written"),
    ("prove", ["--proof=same.json", "--public=./same.json"], "the same"),
    ("prove", ["--repeat=-1"], "repeat"),
    ("prove", ["--zkez=1"], "zkez"),
    ("prove", ["witness.wtns"], "flags only"),
    ("verify", [f"--vkey={MUL / 'vkey.json'}"], "--proof and --public missing"),
    ("verify", [f"--vkey={MUL / 'mul.zkey'}", f"--proof={MUL / 'proof.json'}", f"--public={MUL / 'public.json'}"], "mul.zkey"),
    ("setup", [], "--r1cs and --zkey missing"),
    ("setup", ["--r1cs=absent.r1cs", "--zkey=out.zkey"], "absent.r1cs: No such file"),
    ("setup", [f"--r1cs={MUL / 'witness.wtns'}", "--zkey=out.zkey"], "magic"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_errors_are_one_clear_line(script, flags, reason, tmp_path):
  flags = [flag.replace("=out.zkey", f"={tmp_path / 'out.zkey'}") for flag in flags]
  assert reason in run(script, *flags, expect=2)
  assert not files_of(tmp_path)


@pytest.mark.parametrize("value", [f"{SECRET}", f"{SECRET},{SECRET},1", f"{SECRET},x", f"-{SECRET},1", f"1,{SECRET}" + "0" * 70, ""])
def test_a_bad_blinding_is_refused_without_repeating_it(value):
  assert str(SECRET) not in prove_mul(f"--test_blinding={value}", expect=2)


# Secrets

def test_nothing_printed_or_written_contains_the_witness_or_the_blinding(tmp_path):
  """In the witness: the two private factors, made large. Everything else of it is public."""
  witness, values = tmp_path / "witness.wtns", [1, SECRET * (SECRET + 2), SECRET, SECRET + 2]
  groth16.write_wtns(witness, Fr.from_ints(values))
  outputs = [tmp_path / f"{name}.json" for name in ("proof", "public", "json")]
  text = run("prove", f"--zkey={MUL / 'mul.zkey'}", f"--wtns={witness}", f"--r1cs={MUL / 'mul.r1cs'}", "--repeat=1",
             f"--test_blinding={SECRET + 4},{SECRET + 6}", *(f"--{path.stem}={path}" for path in outputs), expect=0)
  text += "".join(path.read_text() for path in outputs)
  for secret in (SECRET, SECRET + 2, SECRET + 4, SECRET + 6):
    assert str(secret) not in text and f"{secret:x}" not in text


def test_a_violated_constraint_is_named_without_values(tmp_path):
  witness = tmp_path / "witness.wtns"
  groth16.write_wtns(witness, Fr.from_ints([1, 6, SECRET, SECRET + 2]))
  text = run("prove", f"--zkey={MUL / 'mul.zkey'}", f"--wtns={witness}", f"--r1cs={MUL / 'mul.r1cs'}", expect=2)
  assert str(SECRET) not in text and str(SECRET + 2) not in text


# README

def test_the_python_of_the_readme_runs():
  blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
  assert blocks and any("assert" in block for block in blocks)
  for block in blocks:
    subprocess.run([sys.executable, "-c", block], check=True, cwd=ROOT, timeout=600)


def test_a_copy_of_the_examples_runs_anywhere(tmp_path):
  """With zkjax installed the folder needs nothing else of the repository."""
  shutil.copytree(ROOT / "examples", tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
  subprocess.run([sys.executable, tmp_path / "copy" / "verify.py"], check=True, cwd=tmp_path, timeout=600)
