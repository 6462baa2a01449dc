"""The house rules that a machine can check: who imports whom, sizes, docstrings, and no side effects on import."""
import ast
import importlib.util
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PATHS = sorted((ROOT / "zkjax").rglob("*.py"))

# {pytree, limbs, bls12_381} <- field <- {curve <- msm, ntt} <- types <- {r1cs, qap} <- {setup, prove, verify} <- engine
LAYERS = [
    {"zkjax.pytree", "zkjax.ops.limbs", "zkjax.ops.bls12_381"},
    {"zkjax.ops.field"},
    {"zkjax.ops.curve", "zkjax.ops.ntt"},
    {"zkjax.ops.msm"},
    {"zkjax.groth16.types"},
    {"zkjax.groth16.r1cs", "zkjax.groth16.qap"},
    {"zkjax.groth16.setup", "zkjax.groth16.prove", "zkjax.groth16.verify"},
    {"zkjax.engine"},
]
# On Python integers, beside the layers: what they may import of zkjax.
INTEGERS = {
    "zkjax.ops.int_curve": {"zkjax.ops.bls12_381"},
    "zkjax.groth16.pairing": {"zkjax.ops.bls12_381", "zkjax.ops.int_curve"},
}
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 60


def module_name(path):
  parts = path.relative_to(ROOT).with_suffix("").parts
  return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {path: ast.parse(path.read_text(), str(path)) for path in PATHS}
MODULES = {module_name(path): path for path in PATHS}
EACH = pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(ROOT)))


def is_inside(name, package):
  return name == package or name.startswith(package + ".")


def imported(name, nodes):
  """The zkjax modules that the import statements among `nodes` of module `name` load."""
  package = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
  for node in nodes:
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names if is_inside(alias.name, "zkjax"))
    elif isinstance(node, ast.ImportFrom):
      base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
      if is_inside(base, "zkjax"):
        children = [f"{base}.{alias.name}" for alias in node.names]
        yield from (child if child in MODULES else base for child in children)


def all_imports(name):
  return set(imported(name, ast.walk(TREES[MODULES[name]])))


def layer(name):
  """The index of the layer that a module belongs to, or None; the modules of a package belong to the package's layer."""
  return next((i for i, names in enumerate(LAYERS) if any(is_inside(name, member) for member in names)), None)


def calls(tree):
  return [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]


# Imports

def test_the_checks_see_the_modules():
  assert {"zkjax", "zkjax.pytree", "zkjax.ops.field", "zkjax.groth16.types", "zkjax.groth16.verify"} <= set(MODULES)
  assert all_imports("zkjax.groth16.verify") >= {"zkjax.groth16.pairing", "zkjax.groth16.types", "zkjax.ops.curve"}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_never_go_up(name):
  if layer(name) is not None:
    above = [other for other in all_imports(name) if layer(other) is not None and layer(other) > layer(name)]
    assert not above, f"{name} imports {above} from a higher layer"


@pytest.mark.parametrize("name", sorted(name for name in MODULES if is_inside(name, "zkjax.ops")))
def test_ops_know_nothing_of_proofs(name):
  above = [other for other in all_imports(name) if not is_inside(other, "zkjax.ops") and layer(other) != 0]
  assert not above or all("xla" in other for other in above), f"{name} imports {above}"


@pytest.mark.parametrize("name", sorted(name for name in MODULES if not is_inside(name, "zkjax.ops")))
def test_gpu_kernels_are_reached_through_ops(name):
  assert not [other for other in all_imports(name) if is_inside(other, "zkjax.ops.gpu")]


@pytest.mark.parametrize("name", sorted(name for name in MODULES if is_inside(name, "zkjax.groth16.formats")))
def test_formats_see_types_only(name):
  allowed = ("zkjax.groth16.types", "zkjax.ops.int_curve", "zkjax.groth16.formats", "zkjax.ops", "zkjax.pytree")
  others = [other for other in all_imports(name) if not any(is_inside(other, package) for package in allowed)]
  assert not others and "zkjax.groth16" not in all_imports(name), f"{name} imports {others}"


@pytest.mark.parametrize("name", sorted(name for name in MODULES if is_inside(name, "zkjax.groth16")))
def test_proofs_know_nothing_of_the_engine(name):
  assert not [other for other in all_imports(name) if is_inside(other, "zkjax.engine")]


@pytest.mark.parametrize("name", sorted(INTEGERS))
def test_integer_modules_need_no_arrays(name):
  assert all_imports(name) <= INTEGERS[name]


def test_imports_have_no_cycle():
  graph = {name: set(imported(name, TREES[path].body)) - {name} for name, path in MODULES.items() if path.name != "__init__.py"}
  while graph:
    leaves = [name for name, others in graph.items() if not others & set(graph)]
    assert leaves, f"import cycle among {sorted(graph)}"
    for name in leaves:
      del graph[name]


# Text

@EACH
def test_no_drawer_modules(path):
  assert path.stem.strip("_") not in {"util", "utils", "misc", "common", "helper", "helpers"}


@EACH
def test_no_print(path):
  assert "print" not in calls(TREES[path])


@EACH
def test_no_global_configuration(path):
  tree = TREES[path]
  if path.name == "processes.py":               # what it starts are processes of its own, and `_serve` is the life of one
    tree = ast.Module([node for node in tree.body if getattr(node, "name", "") != "_serve"], [])
  assert not [call for call in calls(tree) if call.endswith("config.update")]


@EACH
def test_docstrings(path):
  tree = TREES[path]
  public = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")]
  missing = [node.name for node in public if not ast.get_docstring(node)]
  assert not missing, f"no docstring: {missing}"
  assert ast.get_docstring(tree) or not tree.body, "no module docstring"


@EACH
def test_no_name_is_defined_twice(path):
  """A merge can leave two, of which the later one counts; a linter does not mind where the first has been decorated."""
  names = [node.name for node in TREES[path].body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
  assert sorted(set(names)) == sorted(names)


@EACH
def test_sizes(path):
  lines = len(path.read_text().splitlines())
  assert lines <= MAX_FILE_LINES, f"{lines} lines: two jobs, split it"
  functions = [node for node in ast.walk(TREES[path]) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
  too_long = [node.name for node in functions if node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES]
  assert not too_long, f"two jobs, split: {too_long}"


# Side effects

def test_import_leaves_the_jax_configuration_alone():
  """Of the package and of every module in it that can be imported on this machine."""
  program = """
import importlib, pkgutil
import jax
before = dict(jax.config.values)
import zkjax
for module in pkgutil.walk_packages(zkjax.__path__, "zkjax."):
  try:
    importlib.import_module(module.name)
  except ImportError as error:
    assert ".gpu" in module.name, error
after = dict(jax.config.values)
changed = {name: (value, after.get(name)) for name, value in before.items() if after.get(name) != value}
assert not changed, changed
"""
  subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
