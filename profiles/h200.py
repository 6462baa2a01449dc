"""Measures zkjax's kernels on the GPU of this machine, checks every result, and adds rows to benchmarks/h200.json.

  python profiles/h200.py msm_g1:20 msm_g1:20:bits msm_g1:20:uniform:variable ntt:20 quotient:22 prove:16

A row is op:log2_size[:scalars[:bases]], for proofs prove:log2_size[:batch]; scalars are uniform, bits (90 % zero or one) or equal. Data lie
on the device before the clock starts, and results are compared with integers: sums with the discrete logarithms of the points, transforms,
quotients and keys at random places, proofs by the verifier, and the last result with the first. One run warms up; then eleven times (setup:
three), of which the median, least and greatest are reported: of a whole proof from the witness to the proof, of a setup from the circuit to
the key on the device, of an operation the mean of ten calls queued one behind the other, so that the device is timed and not the host's
dispatch. single_call_ms is the median of calls each of which is waited for, start_median_ms what `start` takes of the host over a hundred
proofs one after the other, first_run_s the seconds of the first run, most of which is compiling. xyzz_add_g1 and _g2 are 2^log2_size
entries added to XYZZ sums, 64 by a thread. Several of these scripts may run at once: they time, one after the other, when all of them have
compiled.
"""
import fcntl
import json
import os
import pathlib
import secrets
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

import jax  # noqa: E402
import numpy as np  # noqa: E402
import workloads  # noqa: E402

from zkjax import groth16  # noqa: E402
from zkjax.groth16.qap import quotient  # noqa: E402
from zkjax.groth16.setup import generator_multiples  # noqa: E402
from zkjax.ops.bls12_381 import R  # noqa: E402
from zkjax.ops.field import Fp, Fp2, Fr  # noqa: E402
from zkjax.ops.gpu.fixed import Pending  # noqa: E402
from zkjax.ops.int_curve import G1, G2  # noqa: E402
from zkjax.ops.msm import FixedBases, msm, shared_scalars  # noqa: E402
from zkjax.ops.ntt import Domain, intt, ntt, twiddles  # noqa: E402

RUNS, CALLS, STARTS = 11, 10, 100
PEAK = 7.7e12                                 # 32-bit multiply-adds a second of an H200, measured with independent ones
PRODUCT = 136                                 # multiply-adds of a Montgomery product in Fr


def scalars_of(kind, size):
  """Plain uint32[8, n] below r."""
  words = workloads.uniform(Fr, size).limbs
  if kind == "bits":
    few = np.random.default_rng().random(size) < 0.9
    words[:, few] = 0
    words[0, few] = np.random.default_rng().integers(0, 2, few.sum())
  return words[:, :1].repeat(size, 1) if kind == "equal" else words


def measure_msm(op, log2_size, kind="uniform", bases="fixed"):
  """The function to time, its check, and the multiply-adds of its additions to buckets."""
  field, curve, size = (Fp, G1, 1 << log2_size) if op == "msm_g1" else (Fp2, G2, 1 << log2_size)
  logs = workloads.plain_ints(workloads.uniform(Fr, size).limbs)
  points, words = generator_multiples(field, logs), scalars_of(kind, size)
  expected = curve.multiply(curve.generator, sum(a * b for a, b in zip(logs, workloads.plain_ints(words))) % R)
  on_device = jax.device_put(words)
  if bases == "fixed":
    prepared = FixedBases.prepare(points, budget=64 << 30)
    plan, run = prepared.prepared.plan, lambda: prepared.start(shared_scalars(on_device)).row
    read = lambda row: Pending(row, 1 if field is Fp else 2).result()
    print(f"  {plan}", flush=True)
    windows = plan.num_windows
  else:
    points, values = jax.device_put((points, Fr.from_plain(words)))
    run = lambda: msm(points, values)
    windows = 16

    def read(p):
      x, y, zz, zzz = (jax.tree.map(np.asarray, v).to_ints() for v in (p.x, p.y, p.zz, p.zzz))
      f = curve.field
      return f.mul(x, f.inverse(zz)), f.mul(y, f.inverse(zzz))
  work = windows * size * workloads.addition_multiply_adds(1 if field is Fp else 2) if kind == "uniform" else None
  return run, lambda out: read(out) == expected, work


def measure_ntt(op, log2_size):
  """Natural to bit-reversed order, checked at a random place."""
  domain, values = Domain(log2_size), workloads.uniform(Fr, 1 << log2_size)
  run, on_device, tables = jax.jit(lambda v, t: ntt(domain, v, "bit_reversed", t)), jax.device_put(values), twiddles(domain)

  def is_right(out):
    k = secrets.randbelow(1 << log2_size)
    place = int(f"{k:0{log2_size}b}"[::-1], 2)
    return workloads.value_at(values.to_ints(), pow(domain.root, k, R)) == Fr(np.asarray(out.limbs[:, place])).to_ints()
  return lambda: run(on_device, tables), is_right, (1 << log2_size) // 2 * log2_size * PRODUCT


def measure_quotient(op, log2_size, basis="monomial"):
  """From evaluations of A, B and C; checked by h(z) (z^n - 1) = a(z) b(z) - c(z)."""
  domain, size = Domain(log2_size), 1 << log2_size
  a, b = (jax.device_put(workloads.uniform(Fr, size)) for _ in range(2))
  c, run, tables = a * b, jax.jit(lambda a, b, c, t: quotient(a, b, c, domain, basis, t)), twiddles(domain)

  def is_right(h):
    z = secrets.randbelow(R)
    at = lambda v: workloads.value_at(jax.tree.map(np.asarray, v).to_ints(), z)
    a_z, b_z, c_z = (at(intt(domain, v)) for v in (a, b, c))
    return at(h) * (pow(z, size, R) - 1) % R == (a_z * b_z - c_z) % R
  return lambda: run(a, b, c, tables), is_right, 7 * size // 2 * log2_size * PRODUCT


def measure_prove(op, log2_size, batch="1"):
  """A squaring chain with a random witness, whose key and witness lie on the device; `batch` proofs one behind the other."""
  begin = time.perf_counter()
  key, witness = workloads.squaring_chain(log2_size)
  print(f"  setup {time.perf_counter() - begin:.2f} s", flush=True)
  begin = time.perf_counter()
  bases = key.bases
  witness, public, verifying = jax.device_put(witness), groth16.public_inputs(key, witness), groth16.prepare(key.vk)
  print(f"  tables {time.perf_counter() - begin:.2f} s, {bases.a.prepared.plan}, {bases.h.prepared.plan}", flush=True)
  starts = []
  if batch != "1":
    run = lambda: groth16.prove_batch(key, [witness] * int(batch))
    return run, lambda proofs: all(groth16.verify(verifying, proof, public) for proof in proofs), None

  def run():
    begin = time.perf_counter()
    pending = groth16.start(key, witness)
    starts.append(1e3 * (time.perf_counter() - begin))
    return groth16.finish(pending)
  run.starts = starts
  return run, lambda proof: groth16.verify(verifying, proof, public), None


def measure_additions(op, log2_size):
  """XYZZ += affine, points taken at random from 2^16."""
  work = workloads.additions_on_gpu(op, 1 if op == "xyzz_add_g1" else 2, log2_size)
  return work.run, work.is_right, work.multiply_adds


def measure_setup(op, log2_size):
  """The key of a squaring chain, left on the device."""
  work = workloads.make_keys(log2_size)
  return work.run, work.is_right, None


def same_words(a, b):
  """Whether the leaves of two results are the same arrays."""
  return all(bool((x == y).all()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))


MEASURE = {"msm_g1": measure_msm, "msm_g2": measure_msm, "ntt": measure_ntt, "quotient": measure_quotient, "prove": measure_prove,
           "xyzz_add_g1": measure_additions, "xyzz_add_g2": measure_additions, "setup": measure_setup}


def prepared(op, log2_size, kind=None, bases=None):
  """Makes the input of a row, runs it once, checks the result, and returns what measures it."""
  run, is_right, work = MEASURE[op](op, log2_size, *([kind] if kind else []), *([bases] if bases else []))
  begin = time.perf_counter()
  first = jax.block_until_ready(run())
  first_seconds = time.perf_counter() - begin
  print(f"  first run {first_seconds:.1f} s", flush=True)
  is_msm, checked = op.startswith("msm"), is_right(first)
  row = {"op": op, "log2_size": log2_size, "bases": (bases or "fixed") if is_msm else None,
         "scalars": (kind or "uniform") if is_msm else None, "batch": int(kind) if op == "prove" and kind else 1}

  def measure():
    calls, times, alone, out = 1 if op in ("prove", "setup") else CALLS, [], [], first
    for _ in range(3 if op == "setup" else RUNS):
      begin = time.perf_counter()
      out = jax.block_until_ready([run() for _ in range(calls)])[-1]
      times.append(1e3 * (time.perf_counter() - begin) / calls)
      begin = time.perf_counter()
      out = jax.block_until_ready(run())
      alone.append(1e3 * (time.perf_counter() - begin))
    median, starts = statistics.median(times), getattr(run, "starts", None)
    if starts:
      del starts[:]
      for _ in range(STARTS):
        run()
      names = {"start_median_ms": statistics.median, "start_min_ms": min, "start_max_ms": max}
      row.update({name: round(of(starts), 3) for name, of in names.items()})
    return row | {
        "median_ms": round(median, 3), "min_ms": round(min(times), 3), "max_ms": round(max(times), 3),
        "single_call_ms": round(statistics.median(alone), 3), "first_run_s": round(first_seconds, 1),
        "percent_of_peak": round(100 * work / median * 1e3 / PEAK, 1) if work else None,
        "checked": checked and (is_right(out) if op == "prove" else same_words(first, out)),
        "device": jax.devices()[0].device_kind, "jax": jax.__version__, "commit": commit()}
  return measure


def commit():
  """The commit of the working tree (COMMIT names it where there is no checkout), or None."""
  if "COMMIT" in os.environ:
    return os.environ["COMMIT"]
  head = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
  return head.stdout.strip() or None


def main(names, path=None):
  """Measures and adds rows, in place of older ones of the same work, to the file that JSON names."""
  path = pathlib.Path(os.environ.get("JSON", ROOT / "benchmarks" / "h200.json")) if path is None else path
  same, work = ("op", "log2_size", "bases", "scalars", "batch", "device"), []
  with open(pathlib.Path(tempfile.gettempdir()) / "zkjax-timing", "w") as file:
    fcntl.flock(file, fcntl.LOCK_SH)          # others wait with their clocks while this one compiles
    for name in names:
      op, log2_size, *rest = name.split(":")
      print(name, flush=True)
      work.append(prepared(op, int(log2_size), *rest))
    fcntl.flock(file, fcntl.LOCK_UN)
    fcntl.flock(file, fcntl.LOCK_EX)
    for measure in work:
      row = measure()
      print(json.dumps(row), flush=True)
      rows = json.loads(path.read_text())["rows"] if path.exists() else []
      rows = [r for r in rows if any(r[k] != row[k] for k in same)] + [row]
      path.parent.mkdir(exist_ok=True)
      path.write_text('{"rows": [\n' + ",\n".join(json.dumps(r) for r in rows) + "\n]}\n")


if __name__ == "__main__":
  main(sys.argv[1:])
