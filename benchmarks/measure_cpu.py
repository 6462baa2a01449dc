"""Measures the rows of cpu.json on this machine: proofs beside snarkjs, sums beside arkworks, and how cost grows with size.

  python benchmarks/measure_cpu.py --circuits=folder          # a folder for each circuit, with its .zkey and witness.wtns
  python benchmarks/measure_cpu.py --circuits=folder --only=process

Needs an idle machine, about fifteen minutes, `npm install snarkjs` here (or its folder in SNARKJS) and `pip install py_arkworks_bls12381`.
Every row comes from a process of its own, with the compilation cache warm. Then `python benchmarks/report.py` writes table and plot.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from absl import app, flags

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))
import benchmark  # noqa: E402  (after the path)
import measure  # noqa: E402

ROWS = ROOT / "benchmarks" / "cpu.json"
CIRCUITS = ("chain14", "chain16", "merkle20_poseidon", "sha256_64")
GROWTH = {"ntt": range(10, 19, 2), "quotient": range(10, 19, 2), "msm_g1": range(10, 19, 2), "msm_g2": range(10, 17, 2),
          "prove": range(10, 17, 2)}
PROCESSES = 3                                                  # whole processes of each side

FLAGS = flags.FLAGS
flags.DEFINE_string("circuits", None, "Folder with a folder for each circuit.", required=True)
flags.DEFINE_multi_enum("only", None, ["process", "prove", "msm", "growth"], "Measure these rows only.")


def main(_):
  parts = {"process": processes, "prove": proofs, "msm": sums, "growth": growth}
  for name in FLAGS.only or parts:
    parts[name]()


def files(circuit):
  """(zkey, wtns) of a circuit, as strings."""
  folder = pathlib.Path(FLAGS.circuits, circuit)
  return str(next(folder.glob("*.zkey"))), str(next(folder.glob("*.wtns")))


def proofs():
  for circuit in CIRCUITS:
    zkey, wtns = files(circuit)
    run_benchmark("--op=prove", f"--zkey={zkey}", f"--wtns={wtns}", "--compare=snarkjs")


def sums():
  for op in ("msm_g1", "msm_g2"):
    run_benchmark(f"--op={op}", "--log2_size=16", "--compare=arkworks")


def growth():
  for op, sizes in GROWTH.items():
    for log2_size in sizes:
      run_benchmark(f"--op={op}", f"--log2_size={log2_size}")


def run_benchmark(*arguments):
  """Twice: the first process fills the compilation cache."""
  command = [sys.executable, str(ROOT / "examples/benchmark.py"), *arguments]
  subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
  subprocess.run([*command, f"--json={ROWS}"], check=True)


def processes():
  """Whole processes, examples/prove.py and snarkjs' command line, alternately."""
  snarkjs = pathlib.Path(os.environ.get("SNARKJS", "node_modules/snarkjs"), "build/cli.cjs")
  for circuit in CIRCUITS:
    zkey, wtns = files(circuit)
    with tempfile.TemporaryDirectory() as folder:
      proof, public = f"{folder}/proof.json", f"{folder}/public.json"
      ours = [sys.executable, str(ROOT / "examples/prove.py"), f"--zkey={zkey}", f"--wtns={wtns}", f"--proof={proof}", f"--public={public}"]
      theirs = ["node", str(snarkjs), "groth16", "prove", zkey, wtns, proof, public]
      run_process(ours)
      pairs = [(run_process(ours), run_process(theirs)) for _ in range(PROCESSES)]
    add_process_row(circuit, pairs)


def run_process(command):
  """(wall seconds, CPU seconds, peak bytes) of a command that must succeed."""
  start = time.perf_counter()
  process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
  _, status, usage = os.wait4(process.pid, 0)
  process.returncode = os.waitstatus_to_exitcode(status)
  if process.returncode:
    raise RuntimeError(f"{command} ended with {process.returncode}")
  return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def add_process_row(circuit, pairs):
  ours, theirs = zip(*pairs)
  wall, cpu, peak = ([run[k] for run in ours] for k in range(3))
  ratios = [t[1] / o[1] for o, t in pairs]
  row = {"work": f"process_{circuit}", "log2_size": None, "wall_seconds": statistics.median(wall), "cpu_seconds": statistics.median(cpu),
         "spread": [min(wall), max(wall)], "peak_rss_mb": max(peak) / 1e6, "peer": "snarkjs",
         "peer_cpu_seconds": statistics.median(t[1] for t in theirs), "peer_wall_seconds": statistics.median(t[0] for t in theirs),
         "ratio": statistics.median(ratios), "ratio_spread": [min(ratios), max(ratios)], "device": measure.device_name(),
         "jax": benchmark.jax.__version__, "runs": len(pairs), "commit": benchmark.commit()}
  benchmark.add_row(ROWS, row)
  print(json.dumps(row, indent=1))


if __name__ == "__main__":
  app.run(main)
