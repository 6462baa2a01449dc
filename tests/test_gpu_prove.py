"""The sequence that a GPU takes through a proof, with the sums made on the processor: the proof is the same, coordinate by coordinate."""
import importlib
import pathlib
import re
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import numpy_builder
import pytest

from zkjax import groth16
from zkjax.engine.keys import key_bytes
from zkjax.groth16 import Blinding
from zkjax.ops.curve import Affine
from zkjax.ops.field import Fp, Fr
from zkjax.ops.gpu import fixed, support
from zkjax.ops.gpu.msm import Plan
from zkjax.ops.int_curve import G1
from zkjax.ops.msm import FixedBases, shared_scalars

MUL = pathlib.Path(__file__).parent / "data" / "mul"
prove_module = importlib.import_module("zkjax.groth16.prove")      # the package exports a function of that name


@pytest.fixture
def on_device(monkeypatch):
  """As on a GPU, but that sums are made at once, by `ops.cpu`."""
  def start_sums(bases, values, more, made, function, arrays, static):
    scalars = shared_scalars(np.concatenate([np.asarray(v.to_plain()) for v in (values, more)], axis=1))
    sums = [b.start(scalars) for b in bases] + [made.start(function(*arrays, *static))]
    return sums, scalars, types.SimpleNamespace(result=lambda: values[0].to_ints())

  def start_combined(bases, scalars, factored, factors, plain):
    terms = list(zip(factors, factored)) + [(1, p) for p in plain]
    return bases.start(scalars), types.SimpleNamespace(result=lambda: G1.combination([(k, p.result()) for k, p in terms]))
  key, on_host = (groth16.read_zkey(next(MUL.glob("*.zkey"))) for _ in range(2))
  witness = groth16.read_wtns(MUL / "witness.wtns")
  blinding = Blinding(7, 11)
  expected = groth16.prove(on_host, witness, blinding)
  monkeypatch.setattr(prove_module, "on_gpu", lambda: True)
  monkeypatch.setattr(prove_module, "start_sums", start_sums)
  monkeypatch.setattr(prove_module, "start_combined", start_combined)
  compiled = []
  monkeypatch.setattr(prove_module, "compile_sums", lambda *a: compiled.append(a))
  monkeypatch.setattr(prove_module, "_pool", None)
  yield key, jax.tree.map(jax.numpy.asarray, witness), blinding, expected
  assert len(compiled) == 1                   # before the first proof of a key


def coordinates(proof):
  return [p.to_ints() for p in (proof.a, proof.b, proof.c)]


def test_blinding_as_further_bases_gives_the_same_proof(on_device):
  key, witness, blinding, expected = on_device
  assert coordinates(groth16.prove(key, witness, blinding)) == coordinates(expected)
  assert [coordinates(p) for p in groth16.prove_batch(key, [witness] * 2, [blinding] * 2)] == [coordinates(expected)] * 2


def test_what_is_compiled_for_a_key_is_what_its_proofs_call(on_device, monkeypatch):
  """The engine makes a key ready before there is a witness: the shapes that it compiles for are those of the calls."""
  key, witness, blinding, _ = on_device
  calls = []
  compile_sums, start_sums = prove_module.compile_sums, prove_module.start_sums
  monkeypatch.setattr(prove_module, "compile_sums", lambda *a: calls.append(a) or compile_sums(*a))
  monkeypatch.setattr(prove_module, "start_sums", lambda *a: calls.append(a) or start_sums(*a))
  prove_module.prepare_on_device(key)
  groth16.prove(key, witness, blinding)
  (bases, *values, _, made, function, arrays, static), (used, *given, h, called, passed, fixed_) = calls
  shapes = lambda tree: [(v.shape, v.dtype) for v in jax.tree.leaves(tree)]
  assert bases == used and made == h and shapes(values) == shapes(given) and function is called is prove_module.quotient_scalars_with
  assert shapes(arrays) == shapes(passed) == shapes((key.resident_constraints, witness, key.twiddles))
  assert static == fixed_ == (key.domain, key.h_basis)


def test_a_pending_proof_tells_when_its_first_kernels_were_queued(on_device, monkeypatch):
  key, witness, blinding, _ = on_device
  begun, start_sums = [], prove_module.start_sums

  def timed(*arguments):
    begun.append(time.perf_counter_ns())
    sums = start_sums(*arguments)
    begun.append(time.perf_counter_ns())
    return sums
  monkeypatch.setattr(prove_module, "start_sums", timed)
  pending = groth16.start(key, witness, blinding)
  assert begun[0] < pending.begun_ns < begun[1]


def test_a_witness_on_the_device_is_checked_when_the_proof_is_finished(on_device):
  key, witness, blinding, _ = on_device
  wrong = Fr(witness.limbs.at[:, 0].set(witness.limbs[:, 0] ^ 1))
  pending = groth16.start(key, wrong, blinding)
  with pytest.raises(ValueError, match="wire 0"):
    groth16.finish(pending)


def test_scopes_and_kernels_carry_the_names_of_stages():
  shape, plan = lambda *dims: jax.ShapeDtypeStruct(dims, jnp.uint32), Plan(8)
  made = fixed._Made(plan, "msm_h", lambda v: v, ())
  traced = fixed._sums_and_made.trace(
      [shape(5, 24)] * 3, Fr(shape(8, 4)), Fr(shape(8, 1)), shape(4, 24), (shape(8, 4),), plan, ("msm_a", "msm_b_g1", "msm_l"), made)
  text = traced.lower(lowering_platforms=("cuda",)).as_text(debug_info=True)
  scopes = {part for name in re.findall(r'loc\("([^"]+)"', text) for part in name.split("/")}
  assert {"msm_schedule", "msm_a", "msm_b_g1", "msm_l", "msm_a+msm_b_g1+msm_l", "msm_h"} <= scopes
  assert {"bucket_starts", "accumulate", "join"} <= set(re.findall(r"([a-z_]+)_mosaic_gpu", text))


def test_every_query_has_the_name_of_its_stage(monkeypatch):
  stages = []
  monkeypatch.setattr(FixedBases, "prepare", lambda *a: stages.append(a[3]))
  _ = groth16.read_zkey(next(MUL.glob("*.zkey"))).bases
  assert stages == ["msm_a", "msm_b_g1", "msm_b_g2", "msm_h", "msm_l"] and set(stages) < set(prove_module.STAGES)


def test_the_memory_of_tables_is_known_before_they_are_made():
  points = Affine.from_ints(Fp, [G1.multiply(G1.generator, k) for k in range(1, 4)])
  for budget in (2 * 4 * 96, 5 * 4 * 96 + 1):
    with jax.disable_jit():
      made = fixed.prepare(points, 1, budget, launch=numpy_builder.launch)
    assert made.plan.factor == budget // (4 * 96) and made.rows.nbytes == fixed.table_bytes(points, 1, budget) <= budget
  with pytest.raises(MemoryError):
    fixed.table_bytes(points, 1, 300)


def test_a_key_on_a_gpu_takes_the_memory_of_its_tables(monkeypatch):
  key = groth16.read_zkey(next(MUL.glob("*.zkey")))
  on_host, queries = key_bytes(key), (key.a_query, key.b_g1_query, key.b_g2_query, key.h_query, key.l_query)
  points = sum(v.nbytes for v in jax.tree.leaves(queries))
  assert key.device_bytes() == 0
  monkeypatch.setattr(support, "usable", lambda: True)
  monkeypatch.setattr(fixed, "free_bytes", lambda: 1 << 30)
  largest = key_bytes(key)
  monkeypatch.setattr(fixed, "free_bytes", lambda: 3 * points)
  assert on_host != key_bytes(key) and points < key_bytes(key) < largest < 100 * points
