"""Times one operation on random inputs, checks its result, and reports median, spread, CPU seconds and peak memory.

  python examples/benchmark.py --op=msm_g1 --log2_size=16
  python examples/benchmark.py --op=prove --zkey=circuit.zkey --wtns=witness.wtns --compare=snarkjs
  python examples/benchmark.py --op=msm_g2 --log2_size=14 --compare=arkworks --json=rows.json

A warm-up run comes first (its time, which includes compiling, is reported apart), then at least seven runs. Every time is taken when the
result is there. --compare runs a peer alternately with zkjax in the same run, if it is installed: snarkjs (a folder named by SNARKJS, or
node_modules here; proofs, in one warm process) or arkworks (py_arkworks_bls12381; multi-scalar multiplications). Exit code: 0 done, 1 a
result was wrong, 2 an error.
"""
import json
import pathlib
import statistics
import subprocess

import command_line
import jax
import measure
import peers
import workloads
from absl import flags

from zkjax.groth16.formats.container import replace_file

FLAGS = flags.FLAGS
flags.DEFINE_enum("op", "msm_g1", workloads.OPERATIONS, "What to time.")
flags.DEFINE_integer("log2_size", 14, "Number of elements, points or rows, as a power of two.", lower_bound=0, upper_bound=26)
flags.DEFINE_enum("bases", "fixed", ["fixed", "variable"], "msm: whether the bases are prepared before the clock starts.")
flags.DEFINE_enum("scalars", "uniform", ["uniform", "bits", "equal"], "msm: uniform mod r, 90 % zero or one, or all the same.")
flags.DEFINE_integer("batch", 1, "ntt, intt, quotient, prove: so many at once.", lower_bound=1)
flags.DEFINE_integer("repeat", 7, "Timed runs.", lower_bound=7)
flags.DEFINE_string("zkey", None, "prove: proving key of snarkjs. Without it a squaring chain that fills the domain is set up.")
flags.DEFINE_string("wtns", None, "prove: witness of circom or snarkjs.")
flags.DEFINE_enum("compare", None, ["snarkjs", "arkworks"], "Peer to run alternately.")
flags.DEFINE_string("json", None, "File of rows to which this result is added.")


def main():
  command_line.check_outputs(FLAGS.json)
  with command_line.progress("making the input"):
    work = workloads.make(FLAGS.op, FLAGS.log2_size, batch=FLAGS.batch, fixed=FLAGS.bases == "fixed", scalars=FLAGS.scalars,
                          files=(FLAGS.zkey, FLAGS.wtns))
    peer = peers.make(FLAGS.compare, work) if FLAGS.compare else None
  with command_line.progress("the first run, which compiles"):
    result, first, _ = measure.timed(work.run)
  if not work.is_right(result):
    print("The result is WRONG.")
    return command_line.FALSE_PROOF
  ours, theirs = [], []
  with command_line.progress("timing"):
    if peer:
      peer.seconds()
    for _ in range(FLAGS.repeat):
      result, wall, cpu = measure.timed(work.run)
      ours.append((wall, cpu))
      if peer:
        theirs.append(peer.seconds())
  if not work.is_right(result):
    print("The last result is WRONG.")
    return command_line.FALSE_PROOF
  row = make_row(work, first, ours, theirs)
  print(json.dumps(row, indent=1))
  if FLAGS.json:
    add_row(pathlib.Path(FLAGS.json), row)
  return command_line.DONE


def make_row(work, first, ours, theirs):
  """The measurement as a dict; ratio = peer's CPU seconds over ours, pair by pair, its spread as [smallest, largest]."""
  wall, cpu = ([v[k] for v in ours] for k in (0, 1))
  row = {"work": work.name, "log2_size": work.log2_size, "wall_seconds": statistics.median(wall), "cpu_seconds": statistics.median(cpu),
         "spread": [min(wall), max(wall)], "first_wall_seconds": first, "elements_per_second": work.count / statistics.median(wall),
         "share_of_peak": share_of_peak(work, statistics.median(wall)), "peak_rss_mb": measure.peak_rss_mb(),
         "peer": None, "peer_cpu_seconds": None, "ratio": None, "ratio_spread": None,
         "device": measure.device_name(), "jax": jax.__version__, "runs": len(ours), "commit": commit()}
  if theirs:
    ratios = [t[1] / c for t, c in zip(theirs, cpu)]
    row |= {"peer": FLAGS.compare, "peer_cpu_seconds": statistics.median(t[1] for t in theirs), "peer_wall_seconds": statistics.median(
        t[0] for t in theirs), "ratio": statistics.median(ratios), "ratio_spread": [min(ratios), max(ratios)]}
  return row


# 32 x 32 -> 64 bit multiply-adds a second, measured with a loop of independent ones
_PEAKS = {"NVIDIA H200": 7.7e12}


def share_of_peak(work, seconds):
  """The part of the device's multiply-add rate that the operation's field products take, where the rate is known; else None."""
  peak = _PEAKS.get(jax.devices()[0].device_kind)
  return work.multiply_adds / seconds / peak if peak and work.multiply_adds else None


def commit():
  """The commit of the working tree, with a + where it has changes; None outside a checkout."""
  git = lambda *args: subprocess.run(["git", "-C", str(pathlib.Path(__file__).parent), *args], capture_output=True, text=True)
  head = git("rev-parse", "--short", "HEAD")
  if head.returncode:
    return None
  return head.stdout.strip() + ("+" if git("status", "--porcelain", "--untracked-files=no").stdout.strip() else "")


def add_row(path, row):
  """Adds the row to {"rows": [...]}, in place of an older one of the same work, size, device, JAX and peer."""
  rows = json.loads(path.read_text())["rows"] if path.exists() and path.stat().st_size else []
  same = ("work", "log2_size", "device", "jax", "peer")
  rows = [r for r in rows if any(r.get(k) != row[k] for k in same)] + [row]
  with replace_file(path) as file:
    file.write((json.dumps({"rows": rows}, indent=1) + "\n").encode())


if __name__ == "__main__":
  command_line.run(main)
