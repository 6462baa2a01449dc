"""The prover against an independent one, coordinate by coordinate; what it refuses; and that a damaged proof is no proof."""
import concurrent.futures
import functools
import importlib
import itertools
import json
import pathlib
import random
import re
import time

import jax
import numpy as np
import pytest

from zkjax import groth16
from zkjax.groth16 import Blinding
from zkjax.groth16.formats.points import proof_from_bytes, proof_to_bytes
from zkjax.groth16.formats.snarkjs import proof_from_json, proof_to_json
from zkjax.groth16.types import QueryBases
from zkjax.ops.bls12_381 import R
from zkjax.ops.field import Fr
from zkjax.ops.msm import shared_scalars

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA, EXAMPLE, CIRCUITS = ROOT / "tests" / "data", ROOT / "examples" / "data", ROOT.parent / "shared" / "circuits"
MUL = DATA / "mul"
BLINDINGS = [(0, 0), (7, 11)]
COMPILATIONS = []
jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: COMPILATIONS.append(event) if "/compile/" in event else None)


def folders():
  """Every circuit that is there, the small ones first, or one that is skipped with a reason."""
  found = sorted(CIRCUITS.glob("*/*.zkey"), key=lambda path: path.stat().st_size)
  found = [path.parent for path in found if path.parent.name not in ("mul", "rejected")]
  missing = [] if found else [pytest.param(CIRCUITS, marks=pytest.mark.skip(reason="shared/circuits is not beside the repository"))]
  return [MUL, EXAMPLE, *found, *missing]


EACH_CIRCUIT = pytest.mark.parametrize("folder", folders(), ids=lambda folder: folder.name)


def load(folder):
  zkey, = folder.glob("*.zkey")
  return groth16.read_zkey(zkey), groth16.read_wtns(folder / "witness.wtns")


small = functools.cache(lambda: load(MUL))
example = functools.cache(lambda: load(EXAMPLE))


def affine(proof):
  return proof.a.to_ints(), proof.b.to_ints(), proof.c.to_ints()


# Proofs

@EACH_CIRCUIT
def test_proofs_are_those_of_an_independent_prover(folder):
  """With each recorded blinding, and with a random one."""
  key, witness = load(folder)
  public = groth16.public_inputs(key, witness)
  assert public == groth16.read_public(folder / "public.json")
  for r, s in BLINDINGS:
    recorded = folder / f"det_r{r}_s{s}" / "proof.json"
    if recorded.exists():
      proof = groth16.prove(key, witness, Blinding(r, s))
      assert proof_to_json(proof) == json.loads(recorded.read_text())
  assert groth16.verify(key.vk, groth16.prove(key, witness), public)


@pytest.mark.parametrize("r,s", BLINDINGS)
def test_prove_takes_the_blinding(r, s):
  key, witness = small()
  expected = json.loads((MUL / f"det_r{r}_s{s}" / "proof.json").read_text())
  assert proof_to_json(groth16.prove(key, witness, Blinding(r, s))) == expected


def test_two_proofs_with_default_blinding_differ_in_every_element():
  key, witness = small()
  first, second = (affine(groth16.prove(key, witness)) for _ in range(2))
  assert all(p != q for p, q in zip(first, second))


def test_the_witness_may_be_integers():
  key, witness = small()
  proof = groth16.prove(key, witness.to_ints(), Blinding(7, 11))
  assert affine(proof) == affine(groth16.prove(key, witness, Blinding(7, 11)))
  assert groth16.public_inputs(key, witness.to_ints()) == groth16.public_inputs(key, witness)


def test_batch_equals_single_proofs():
  key, witness = example()
  blindings = [Blinding(r, s) for r, s in BLINDINGS]
  batch = groth16.prove_batch(key, [witness, witness.to_ints()], blindings)
  assert [affine(p) for p in batch] == [affine(groth16.prove(key, witness, b)) for b in blindings]
  public = groth16.public_inputs(key, witness)
  assert groth16.verify_batch(key.vk, batch, [public, public])


def test_batch_of_different_witnesses():
  key, witness = small()
  one, a, b = 1, 5, 9
  other = [one, a * b, a, b]
  first, second = groth16.prove_batch(key, [witness, other])
  assert groth16.verify(key.vk, first, groth16.public_inputs(key, witness))
  assert groth16.verify(key.vk, second, [a * b])
  assert not groth16.verify(key.vk, second, groth16.public_inputs(key, witness))


def test_batch_draws_a_blinding_for_each_proof():
  key, witness = small()
  first, second = groth16.prove_batch(key, [witness, witness])
  assert all(p != q for p, q in zip(affine(first), affine(second)))


def test_empty_batch():
  assert groth16.prove_batch(small()[0], []) == []


def test_proofs_in_flight_finish_in_any_order():
  key, witness = small()
  pending = [groth16.start(key, witness, Blinding(r, s)) for r, s in BLINDINGS]
  second, first = (affine(groth16.finish(p)) for p in reversed(pending))
  assert [first, second] == [affine(groth16.prove(key, witness, Blinding(r, s))) for r, s in BLINDINGS]


def test_a_second_proof_compiles_nothing():
  key, witness = example()
  groth16.prove(key, witness)
  before = len(COMPILATIONS)
  groth16.prove(key, witness)
  assert len(COMPILATIONS) == before


def test_a_wrong_witness_gives_a_false_proof():
  """A zkey has no C, so proving cannot notice it; the circuit does."""
  key, _ = small()
  wrong = groth16.read_wtns(DATA / "rejected" / "wtns_wrong_private.wtns")
  assert not groth16.verify(key.vk, groth16.prove(key, wrong), groth16.public_inputs(key, wrong))
  with pytest.raises(groth16.UnsatisfiedError) as caught:
    groth16.check_satisfied(groth16.read_r1cs(MUL / "mul.r1cs").constraints(), wrong)
  assert caught.value.constraint == 0


def test_keys_of_our_setup_prove():
  """A key in the coset basis, with fresh toxic waste, from the constraints of the example."""
  _, witness = example()
  key = groth16.setup(groth16.read_r1cs(EXAMPLE / "purchase.r1cs").constraints())
  public = groth16.public_inputs(key, witness)
  proof = groth16.prove(key, witness)
  assert groth16.verify(key.vk, proof, public)
  assert not groth16.verify(example()[0].vk, proof, public)


# What is refused before any work

class Query:
  """As many points as a sum in G1 that takes as long."""

  def __init__(self, points, large=None):
    self.points, self.large_points = points, points if large is None else large

  def cost(self, large):
    return self.points if large is None else self.large_points


def tasks(a, b_g1, b_g2, h, l, threads=2):
  module = importlib.import_module("zkjax.groth16.prove")
  return module._tasks(QueryBases(*map(Query, (a, b_g1, b_g2, h, l))), np.ones(1, bool), threads)


def test_tasks_of_sums():
  assert tasks(5000, 4000, 12_000, 16_000, 11_000) == ["h", "b_g2", "l", "a", "b_g1"]
  assert tasks(20_000, 20_000, 60_000, 20_000, 20_000) == ["h", "b_g2", "a", "b_g1", "l", "l"]       # the last one is cut
  assert tasks(100, 100, 300, 60_000, 100) == ["h", "b_g2", "a", "b_g1", "l", "h"]                     # nearly all is h
  assert tasks(5000, 4000, 12_000, 16_000, 11_000, threads=8).count("h") == 3
  assert tasks(20_000, 20_000, 60_000, 20_000, 20_000, threads=1) == ["h", "b_g2", "a", "b_g1", "l"]
  assert sorted(set(tasks(0, 0, 0, 0, 0))) == sorted(QueryBases._fields)


def test_small_scalars_do_not_count():
  key, _ = small()
  large = np.zeros(key.num_wires + 4, bool)
  assert key.bases.a.cost(large) == 0 < key.bases.a.cost() < key.bases.b_g2.cost() * 2
  large[-2:] = True
  assert key.bases.l.cost(large) == 1          # delta, with -r s; in A it goes with r
  words = shared_scalars(np.array([[1, 0, 5], [0, 1, 0]] + [[0, 0, 0]] * 6, np.uint32))
  assert words.large().tolist() == [False, True, False]


def test_the_scalars_of_h_are_made_once():
  module = importlib.import_module("zkjax.groth16.prove")
  calls = []
  get = module._once(lambda: calls.append(time.sleep(0.02)) or len(calls))
  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert list(pool.map(lambda _: get(), range(8))) == [1] * 8


@pytest.fixture
def no_work(monkeypatch):
  """Fails the test if anything is dispatched."""
  def work(*_, **__):
    raise AssertionError("work was dispatched")
  module = importlib.import_module("zkjax.groth16.prove")
  for name in ("quotient_scalars", "_batch_quotient_scalars", "_dispatch", "_pool"):
    monkeypatch.setattr(module, name, work)


SECRET = 123456789123456789
BAD_WITNESSES = [
    ([], "4 wires"), ([1, 6, 2], "4 wires"), ([1, 6, 2, 3, 0], "4 wires"),
    ([2, 6, 2, 3], "constant 1"), ([0, 6, 2, 3], "constant 1"), ([R - 1, 6, 2, SECRET], "constant 1"),
    ([1, 6, 2, R], r"\[0, r\)"), ([1, 6, -SECRET, 3], r"\[0, r\)"), ([1, R + 6, 2, SECRET], r"\[0, r\)"), ([1, 6, 2.0, 3], r"\[0, r\)"),
    ([1, 6, "2", 3], r"\[0, r\)"), ([1, 6, None, 3], r"\[0, r\)"),
]


@pytest.mark.parametrize("witness,match", BAD_WITNESSES, ids=range(len(BAD_WITNESSES)))
@pytest.mark.parametrize("call", ["prove", "start", "prove_batch", "public_inputs"])
def test_bad_witnesses_are_refused(call, witness, match, no_work):
  key, good = small()
  arguments = (key, [good, witness]) if call == "prove_batch" else (key, witness)
  with pytest.raises(ValueError, match=match) as caught:
    getattr(groth16, call)(*arguments)
  assert str(SECRET) not in str(caught.value)


def test_field_elements_are_checked_like_integers(no_work):
  key, _ = small()
  for values, match in (([1, 6, 2], "4 wires"), ([2, 6, 2, 3], "constant 1")):
    with pytest.raises(ValueError, match=match):
      groth16.prove(key, Fr.from_ints(values))


def test_the_witness_of_another_circuit_is_refused(no_work):
  with pytest.raises(ValueError, match="wires"):
    groth16.prove(small()[0], example()[1])


def test_blindings_must_match_the_witnesses(no_work):
  key, witness = small()
  with pytest.raises(ValueError, match="2 witnesses"):
    groth16.prove_batch(key, [witness, witness], [Blinding(1, 2)])


@pytest.mark.parametrize("r,s", [(R, 0), (0, R), (-1, 0), (0, -1)])
def test_blinding_factors_are_reduced(r, s):
  with pytest.raises(ValueError) as caught:
    Blinding(r, s)
  assert str(R) not in str(caught.value)


@pytest.mark.parametrize("path", sorted((DATA / "rejected").glob("*.wtns")), ids=lambda path: path.stem)
def test_rejected_witness_files(path, no_work):
  if path.stem == "wtns_wrong_private":
    pytest.skip("a well-formed file: see test_a_wrong_witness_gives_a_false_proof")
  with pytest.raises(groth16.FormatError, match=re.escape(path.name)):
    groth16.read_wtns(path)


def test_rejected_keys(no_work):
  for read, name in ((groth16.read_zkey, "mul_uncontributed.zkey"), (groth16.read_vkey, "mul_uncontributed_vkey.json")):
    with pytest.raises(groth16.FormatError, match="nobody contributed"):
      read(DATA / "rejected" / name)


# Secrets

def test_nothing_prints_a_secret():
  key, witness = small()
  blinding = Blinding(SECRET, SECRET + 1)
  pending = groth16.start(key, witness, blinding)
  assert str(SECRET) not in f"{pending!r} {blinding!r}"
  groth16.finish(pending)


# Damaged proofs do not verify

def is_accepted(decode, *args):
  """Whether it decodes and verifies; an error is a refusal."""
  key, witness = small()
  try:
    return groth16.verify(prepared(), decode(*args), groth16.public_inputs(key, witness))
  except ValueError:
    return False


prepared = functools.cache(lambda: groth16.prepare(small()[0].vk))
proof = functools.cache(lambda: groth16.prove(*small()))


def test_no_bit_of_the_encoding_can_change():
  data = proof_to_bytes(proof())
  assert len(data) == 192 and is_accepted(proof_from_bytes, data)
  for position, bit in itertools.product(range(len(data)), range(8)):
    assert not is_accepted(proof_from_bytes, data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1:]), (position, bit)


def test_no_digit_of_the_json_can_change():
  text, generator = json.dumps(proof_to_json(proof())), random.Random(4)
  decode = lambda text: proof_from_json(json.loads(text))
  assert is_accepted(decode, text)
  positions = [i for number in re.finditer(r'"(\d+)"', text) for i in range(*number.span(1))]
  assert len(positions) > 600
  for position in positions:
    digit = (int(text[position]) + generator.randrange(1, 10)) % 10
    assert not is_accepted(decode, text[:position] + str(digit) + text[position + 1:]), position


def test_no_value_of_the_statement_can_change():
  key, witness = example()
  public, true = groth16.public_inputs(key, witness), groth16.prove(key, witness)
  assert groth16.verify(key.vk, true, public)
  for i in range(len(public)):
    for value in (0, (public[i] + 1) % R, R - 1 - public[i]):
      assert not groth16.verify(key.vk, true, [*public[:i], value, *public[i + 1:]])


def test_elements_of_two_proofs_do_not_mix():
  key, witness = small()
  public, first, second = groth16.public_inputs(key, witness), groth16.prove(key, witness), groth16.prove(key, witness)
  for mixed in ((first.a, first.b, second.c), (first.a, second.b, first.c), (second.a, first.b, first.c)):
    assert not groth16.verify(key.vk, groth16.Proof(*mixed), public)


def test_the_arrays_of_a_witness_stay_as_they_are():
  key, witness = small()
  before = np.array(witness.limbs)
  groth16.prove(key, witness)
  assert np.array_equal(before, np.asarray(witness.limbs))
