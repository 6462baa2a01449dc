"""The XLA options of the package: appended in time, never overwriting, and loud when too late. Each case is a process of its own."""
import os
import pathlib
import subprocess
import sys
import tomllib

import pytest

import zkjax
from zkjax import xla_flags

ROOT = pathlib.Path(__file__).resolve().parents[1]
OPTIONS = "xla_cpu_use_multi_output_fusion=true,xla_cpu_small_while_loop_byte_threshold=100000000"
FLAGS = " --xla_cpu_prefer_vector_width=512 --xla_disable_hlo_passes=cpu_multi_output_fusion"
OURS = OPTIONS + FLAGS
EXTRA = "--xla_backend_extra_options="


def run(program, flags=None, **variables):
  """(XLA_FLAGS at the end, standard error) of a fresh Python that runs `program`."""
  environment = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "ZKJAX_NO_XLA_FLAGS")}
  environment |= variables | ({} if flags is None else {"XLA_FLAGS": flags}) | {"JAX_PLATFORMS": "cpu"}
  done = subprocess.run([sys.executable, "-c", program + "\nimport os; print(os.environ.get('XLA_FLAGS'))"], cwd=ROOT, env=environment,
                        capture_output=True, text=True, check=True)
  return done.stdout.strip().splitlines()[-1], done.stderr


@pytest.mark.parametrize("before,after", [
    ("", EXTRA + OURS),
    ("--xla_dump_to=x", "--xla_dump_to=x " + EXTRA + OURS),
    (EXTRA, EXTRA + OURS),
    (EXTRA + "a=b,c=d --xla_dump_to=x", EXTRA + f"a=b,c=d,{OPTIONS} --xla_dump_to=x" + FLAGS),
    (EXTRA + "xla_cpu_use_multi_output_fusion=false",
     EXTRA + "xla_cpu_use_multi_output_fusion=false,xla_cpu_small_while_loop_byte_threshold=100000000" + FLAGS),
    ("--xla_cpu_prefer_vector_width=256",
     "--xla_cpu_prefer_vector_width=256 " + EXTRA + OPTIONS + " --xla_disable_hlo_passes=cpu_multi_output_fusion"),
])
def test_options_join_those_of_the_user(before, after):
  assert xla_flags.merged(before) == after
  assert xla_flags.merged(after) == after


@pytest.mark.parametrize("program", ["import zkjax", "import jax, jax.numpy\nimport zkjax"])
def test_import_appends(program):
  assert run(program) == (EXTRA + OURS, "")
  assert run(program, "--xla_cpu_enable_fast_math=false")[0] == "--xla_cpu_enable_fast_math=false " + EXTRA + OURS


def test_too_late_is_one_warning():
  flags, errors = run("import jax; jax.devices()\nimport zkjax, importlib; importlib.reload(zkjax.ops)")
  assert flags == "None" and errors.count("five times slower") == 1 and "Import zkjax before" in errors


def test_nothing_to_say_when_the_user_set_them():
  assert run("import jax; jax.devices()\nimport zkjax", EXTRA + OURS) == (EXTRA + OURS, "")


def test_switch_turns_it_off():
  assert run("import jax; jax.devices()\nimport zkjax", ZKJAX_NO_XLA_FLAGS="1") == ("None", "")
  assert run("import zkjax", ZKJAX_NO_XLA_FLAGS="0")[0] == EXTRA + OURS


def test_a_file_of_flags_is_left_alone(tmp_path):
  path = tmp_path / "flags"
  path.write_text("--xla_cpu_enable_fast_math=false")
  flags, errors = run("import zkjax", str(path))
  assert flags == str(path) and "names a file" in errors


def test_the_options_reach_the_compiler():
  """One product is one loop with them, and a loop for every limb without."""
  program = """
import zkjax, jax, numpy as np
from zkjax.ops import limbs
a = np.ones((12, 64), np.uint32)
text = jax.jit(lambda a, b: limbs.mul(limbs.FP, a, b)).lower(a, a).compile().as_text()
import os; os.environ["XLA_FLAGS"] = str(text.count(" multiply("))
"""
  with_them, without = (int(run(program, ZKJAX_NO_XLA_FLAGS=switch)[0]) for switch in "01")
  assert with_them < 600 < without                           # 14 * 14 * 2 limb products, once


def test_jax_still_tells_whether_it_has_started():
  """The question is asked of a private module: where it moves, the warning would be lost, and this fails."""
  run("""
import jax
from zkjax.xla_flags import backend_has_started
assert not backend_has_started()
jax.devices()
assert backend_has_started()
""")


def test_version_is_that_of_the_project():
  assert zkjax.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
