"""The peers that examples/benchmark.py runs beside zkjax. Nothing is installed: a peer that is not found is an error with advice."""
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

from zkjax.ops.int_curve import G1

_WORKER = """
const snarkjs = require(process.argv[1]);
const [zkey, wtns] = process.argv.slice(2);
require("readline").createInterface({input: process.stdin}).on("line", async () => {
  const start = process.hrtime.bigint(), cpu = process.cpuUsage();
  await snarkjs.groth16.prove(zkey, wtns);
  const used = process.cpuUsage(cpu);
  console.log(JSON.stringify([Number(process.hrtime.bigint() - start) / 1e9, (used.user + used.system) / 1e6]));
}).on("close", () => process.exit(0));
"""


def make(name, work):
  """The peer `name` for a Work: its seconds() runs it once and returns (wall, CPU) seconds. Raises ValueError if it cannot run."""
  return {"snarkjs": Snarkjs, "arkworks": Arkworks}[name](work)


class Snarkjs:
  """Proofs by snarkjs in one warm Node process, which counts its own CPU seconds."""

  def __init__(self, work):
    if not work.extra.get("zkey"):
      raise ValueError("snarkjs is compared on proofs of a key file: give --op=prove, --zkey and --wtns")
    places = [os.environ.get("SNARKJS"), "node_modules/snarkjs"]
    found = next((pathlib.Path(p).resolve() for p in places if p and pathlib.Path(p, "package.json").exists()), None)
    if found is None:
      raise ValueError("snarkjs was not found: run `npm install snarkjs` here, or name its folder in SNARKJS")
    files = [str(pathlib.Path(work.extra[k]).resolve()) for k in ("zkey", "wtns")]
    self._node = subprocess.Popen(["node", "-e", _WORKER, str(found), *files], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

  def seconds(self):
    """One proof."""
    self._node.stdin.write("\n")
    self._node.stdin.flush()
    line = self._node.stdout.readline()
    if not line:
      raise ValueError("snarkjs ended without a proof")
    return tuple(json.loads(line))


class Arkworks:
  """Multi-scalar multiplications by py_arkworks_bls12381 (Rust), without its checks of the points; the sum must be ours."""

  def __init__(self, work):
    if "logs" not in work.extra:
      raise ValueError("arkworks is compared on multi-scalar multiplications: give --op=msm_g1 or --op=msm_g2")
    try:
      import py_arkworks_bls12381 as arkworks
    except ImportError as error:
      raise ValueError(f"{error}: run `pip install py_arkworks_bls12381` for {sys.executable}") from error
    self._point = arkworks.G1Point if work.extra["curve"] is G1 else arkworks.G2Point
    scalar = lambda v: arkworks.Scalar.from_le_bytes(v.to_bytes(32, "little"))
    generator = self._point()
    self._points, self._scalars = [generator * scalar(v) for v in work.extra["logs"]], [scalar(v) for v in work.extra["scalars"]]

  def seconds(self):
    """One multi-scalar multiplication."""
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    self._point.multiexp_unchecked(self._points, self._scalars)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
