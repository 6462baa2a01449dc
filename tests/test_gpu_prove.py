"""The sequence that a GPU takes through a proof, with the sums made on the processor: the proof is the same, coordinate by coordinate."""
import importlib
import pathlib
import types

import jax
import numpy as np
import pytest

from zkjax import groth16
from zkjax.groth16 import Blinding
from zkjax.ops.field import Fr
from zkjax.ops.int_curve import G1
from zkjax.ops.msm import shared_scalars

MUL = pathlib.Path(__file__).parent / "data" / "mul"
prove_module = importlib.import_module("zkjax.groth16.prove")      # the package exports a function of that name


@pytest.fixture
def on_device(monkeypatch):
  """As on a GPU, but that sums are made at once, by `ops.cpu`."""
  def start_sums(bases, values, more):
    scalars = shared_scalars(np.concatenate([np.asarray(v.to_plain()) for v in (values, more)], axis=1))
    return [b.start(scalars) for b in bases], scalars, types.SimpleNamespace(result=lambda: values[0].to_ints())

  def start_combined(bases, scalars, factored, factors, plain):
    terms = list(zip(factors, factored)) + [(1, p) for p in plain]
    return bases.start(scalars), types.SimpleNamespace(result=lambda: G1.combination([(k, p.result()) for k, p in terms]))

  def start_made(bases, function, arrays, static):
    return bases.start(function(*arrays, *static))
  key, witness = groth16.read_zkey(next(MUL.glob("*.zkey"))), groth16.read_wtns(MUL / "witness.wtns")
  blinding = Blinding(7, 11)
  expected = groth16.prove(key, witness, blinding)
  monkeypatch.setattr(prove_module, "on_gpu", lambda: True)
  monkeypatch.setattr(prove_module, "start_sums", start_sums)
  monkeypatch.setattr(prove_module, "start_made", start_made)
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


def test_a_witness_on_the_device_is_checked_when_the_proof_is_finished(on_device):
  key, witness, blinding, _ = on_device
  wrong = Fr(witness.limbs.at[:, 0].set(witness.limbs[:, 0] ^ 1))
  pending = groth16.start(key, wrong, blinding)
  with pytest.raises(ValueError, match="wire 0"):
    groth16.finish(pending)
