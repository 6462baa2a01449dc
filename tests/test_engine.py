"""The engine: what it returns, in which order it works, and what it holds meanwhile."""
import concurrent.futures
import dataclasses
import json
import os
import re
import subprocess
import sys
import threading
import time
import types

import engine_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_cases import MUL, PUBLIC, SECONDS, WTNS, Puppet, another_key, engine, job, key, until, witness

from zkjax import groth16
from zkjax.engine import BudgetError, ByteBudget, Engine, EngineClosed, EngineConfig, Job, JobCancelled, device, keys
from zkjax.engine.gaps import analyze
from zkjax.engine.keys import KeyStore, key_bytes, partition_bytes
from zkjax.groth16 import Blinding
from zkjax.groth16.formats.bellman import proofs_from_bytes
from zkjax.groth16.formats.snarkjs import proof_to_json
from zkjax.ops.field import Fr

# Results

def test_proofs_come_in_order_and_verify():
  others = [[1, a * (a + 2), a, a + 2] for a in range(3, 6)]
  with engine() as made:
    result = made.prove(Job(key(), others))
  assert result.public == [[a * (a + 2)] for a in range(3, 6)] and result.retries == 0
  assert all(groth16.verify(key().vk, proof, public) for proof, public in zip(result.proofs, result.public))
  assert len(result.encoded) == 3 * 192 and groth16.verify_batch(key().vk, proofs_from_bytes(result.encoded), result.public)


@pytest.mark.parametrize("source", [
    WTNS, str(WTNS), witness(), witness().to_ints(), tuple(witness().to_ints()), lambda: WTNS, witness, lambda: witness().to_ints(),
    lambda: iter(witness().to_ints())], ids=range(9))
def test_witnesses_come_in_many_forms(source):
  puppet = Puppet()
  with engine(puppet) as made:
    assert made.prove(job(source=source)).public == [PUBLIC]
  assert isinstance(puppet.witnesses[0], Fr)


def test_fixed_blinding_gives_the_recorded_proofs():
  blindings = [Blinding(0, 0), Blinding(7, 11)]
  recorded = [json.loads((MUL / f"det_r{r}_s{s}" / "proof.json").read_text()) for r, s in ((0, 0), (7, 11))]
  with engine() as made:
    result = made.prove(job(2, blindings=blindings))
  assert [proof_to_json(proof) for proof in result.proofs] == recorded


@pytest.mark.parametrize("threads", [1, 2])
def test_a_prover_with_one_thread_runs_stages_one_after_the_other(threads):
  with engine(engine_cases.Prover(threads)) as made:
    result = made.prove(job(2))
    found = [s for s in analyze(made.timeline.events()).partitions]
  assert groth16.verify_batch(key().vk, result.proofs, result.public)
  assert all(set(times.stages) == {"quotient", "msm_a", "msm_b_g1", "msm_b_g2", "msm_h", "msm_l"} for times in found)


def test_small_circuits_are_collected_into_batches():
  others = [[1, a * (a + 2), a, a + 2] for a in range(3, 7)]
  with engine(max_batch=4, max_wait_seconds=5.0, max_admitted=8) as made:
    result = made.prove(Job(key(), others))
    assert made.status()["devices"][0]["dispatches"] == 1
  assert all(groth16.verify(key().vk, proof, public) for proof, public in zip(result.proofs, result.public))


def test_batches_hold_one_key_and_large_circuits_go_one_by_one():
  for options, expected in (({}, {2}), ({"max_batch_log2_size": 0}, {1})):
    puppet = Puppet()
    with engine(puppet, max_batch=2, max_wait_seconds=5.0, **options) as made:
      futures = [made.submit(job(4)), made.submit(job(4, key=another_key()))]
      [future.result(SECONDS) for future in futures]
    assert set(puppet.batches) == expected and sum(puppet.batches) == 8


def test_a_batch_that_is_not_full_goes_when_nothing_more_can_come():
  puppet = Puppet()
  with engine(puppet, max_batch=8, max_wait_seconds=1e6) as made:
    made.submit(job(3)).result(SECONDS)
  assert sum(puppet.batches) == 3


# Order

def test_larger_priorities_then_older_jobs_then_partitions_in_order():
  puppet, order, gate = Puppet(), [], threading.Event()

  def source(name):
    def produce():
      gate.wait(SECONDS)
      order.append(name)
      return WTNS
    return produce
  with engine(puppet, synthesis_threads=1, max_admitted=1) as made:
    first = made.submit(Job(key(), [source("first")]))
    until(lambda: made.status()["queues"]["admitted"] == 1)
    futures = [made.submit(Job(key(), [source(f"{name}{k}") for k in range(2)], priority=priority))
               for name, priority in (("low", -1), ("old", 0), ("young", 0), ("high", 1))]
    gate.set()
    [future.result(SECONDS) for future in [first, *futures]]
  assert order == ["first", "high0", "high1", "old0", "old1", "young0", "young1", "low0", "low1"]


def test_only_so_many_are_on_the_device_and_one_is_prepared():
  puppet = Puppet(held=True)
  with engine(puppet, max_in_flight=2, max_admitted=3) as made:
    future = made.submit(job(8))
    until(lambda: len(puppet.started) == 2 and made.status()["devices"][0]["load"] == 3)
    time.sleep(0.05)
    assert made.status()["devices"][0]["in_flight"] == 2 and len(puppet.started) == 2
    assert made.status()["queues"]["admitted"] <= 3
    puppet.release(0)
    until(lambda: len(puppet.started) == 3)
    puppet.release()
    assert len(future.result(SECONDS).proofs) == 8


def test_starting_does_not_wait_for_finishing():
  """The dispatch thread goes on while a proof is being finished."""
  gate, puppet = threading.Event(), Puppet()
  puppet.finish = lambda pending: gate.wait(SECONDS) and pending.proof
  with engine(puppet) as made:
    future = made.submit(job(5))
    until(lambda: len(puppet.started) == 5)
    assert not future.done()
    gate.set()
    future.result(SECONDS)


# Memory

def test_memory_is_held_from_admission_until_the_device_is_done():
  puppet, (host, device) = Puppet(held=True), partition_bytes(key())
  with engine(puppet, max_in_flight=1, max_admitted=1) as made:
    future = made.submit(job(1))
    until(lambda: puppet.pending)
    status = made.status()
    assert status["host"]["bytes_reserved"] == host and status["devices"][0]["bytes_reserved"] == device + key_bytes(key())
    puppet.release()
    future.result(SECONDS)
    status = made.status()
    assert status["host"]["bytes_reserved"] == 0 and status["devices"][0]["bytes_reserved"] == key_bytes(key())


def test_a_small_budget_slows_but_loses_nothing():
  host, device = partition_bytes(key())
  with engine(Puppet(), host_bytes=2 * host, device_bytes=key_bytes(key()) + device) as made:
    futures = [made.submit(job(3, priority=k % 2)) for k in range(6)]
    assert all(len(future.result(SECONDS).proofs) == 3 for future in futures)
    assert made.status()["host"]["bytes_peak"] <= 2 * host


def test_what_can_never_fit_is_an_error_at_once():
  for config in ({"host_bytes": 10}, {"device_bytes": key_bytes(key())}):
    with engine(Puppet(), **config) as made, pytest.raises(BudgetError, match="all there is"):
      made.submit(job())


def test_keys_stay_until_others_need_their_place():
  first, second, third = (another_key() for _ in range(3))
  room = 2 * key_bytes(key()) + 2 * partition_bytes(key())[1]
  with engine(Puppet(), device_bytes=room) as made:
    for used in (first, second, first, third, first):
      made.prove(job(key=used))
    device = made.status()["devices"][0]
    assert (device["key_loads"], device["key_evictions"], device["keys"]) == (3, 1, 2)       # the second was used least recently
    made.prove(job(key=second))
    assert made.status()["devices"][0]["key_loads"] == 4


def test_preloaded_keys_are_not_loaded_again_and_evicted_ones_are():
  with engine(Puppet()) as made:
    made.preload(key())
    made.prove(job())
    assert made.status()["devices"][0]["key_loads"] == 1
    assert made.evict(key()) == 1 and made.evict(key()) == 0
    made.prove(job())
    assert made.status()["devices"][0]["key_loads"] == 2


def test_keys_in_use_are_not_evicted():
  puppet = Puppet(held=True)
  with engine(puppet) as made:
    future = made.submit(job())
    until(lambda: puppet.pending)
    assert made.evict(key()) == 0
    puppet.release()
    future.result(SECONDS)
    assert made.evict(key()) == 1


def test_a_resident_key_is_the_engines_copy():
  """Evicting frees what was prepared for the engine, and nothing of the caller's."""
  with engine() as made:
    made.prove(job(key=(own := another_key())))
    assert "bases" not in vars(own)


def test_a_key_that_fails_to_load_leaves_no_memory_behind(monkeypatch):
  store = KeyStore(jax.devices()[0], ByteBudget(10**9))
  monkeypatch.setattr(dataclasses, "replace", lambda key: (_ for _ in ()).throw(MemoryError()))
  with pytest.raises(MemoryError):
    store.acquire(key())
  assert store.budget.reserved == 0 and not store.has(key())


# Status

def test_status_is_json_and_counts():
  puppet = Puppet(held=True)
  with engine(puppet) as made:
    future = made.submit(job(5, job_id="mine", priority=3))
    until(lambda: len(puppet.started) == 2)
    status = json.loads(json.dumps(made.status()))
    assert status["jobs"]["submitted"] == status["jobs"]["running"] == 1
    (row,) = status["grid"]
    assert (row["job_id"], row["priority"], len(row["partitions"])) == ("mine", 3, 5) and row["partitions"].count("on device") == 2
    assert sum(status["partitions"].values()) == 5
    puppet.release()
    future.result(SECONDS)
    assert made.status()["jobs"]["proofs"] == 5 and made.status()["devices"][0]["partitions_done"] == 5


def test_prometheus_text_is_well_formed():
  with engine(Puppet()) as made:
    made.prove(job(2, job_id="label"))
    text = made.prometheus_text()
  samples = [line for line in text.splitlines() if not line.startswith("#")]
  assert all(re.fullmatch(r'zkjax_[a-z_]+(\{[a-z_]+="[^"]*"\})? [0-9.e+-]+', line) for line in samples) and "label" not in text
  assert "zkjax_proofs_total 2" in samples and 'zkjax_jobs_total{outcome="done"} 1' in samples
  names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
  assert len(names) == len(set(names)) and {re.split(r"[{ ]", line)[0] for line in samples} <= set(names)


def test_the_parts_of_each_partition_explain_its_wall_time():
  with engine() as made:
    result = made.prove(job(4))
  assert len(result.times) == 4
  for times in result.times:
    assert -1e-6 < times.unexplained_seconds < times.wall_seconds and all(seconds >= 0 for seconds in times.parts.values())
  assert analyze(made.timeline.events()).finished == 4


# Arguments and the end

@pytest.mark.parametrize("wrong", [
    {"max_in_flight": 0}, {"synthesis_threads": 0}, {"finish_threads": 1.5}, {"max_admitted": 0}, {"max_batch": 0},
    {"max_wait_seconds": -1}, {"synthesis_processes": 2}, {"verify_processes": 1}, {"synthesis_processes": None}])
def test_wrong_configurations_are_refused(wrong):
  with pytest.raises(ValueError, match=next(iter(wrong))):
    Engine(EngineConfig(**wrong))


def test_wrong_jobs_are_refused():
  with engine(Puppet()) as made:
    for wrong in (Job("key", [WTNS]), Job(key(), []), Job(key(), str(WTNS)), Job(key(), [WTNS], blindings=[]),
                  Job(key(), [WTNS], deadline_seconds=0)):
      with pytest.raises(ValueError):
        made.submit(wrong)
  with pytest.raises(ValueError, match="device"):
    Engine(devices=[])


def test_leaving_the_block_waits_for_all_jobs():
  with Engine(prover=Puppet()) as made:
    futures = [made.submit(job(3)) for _ in range(3)]
  assert all(future.done() and len(future.result().proofs) == 3 for future in futures)
  engine_cases.left_nothing(made)
  with pytest.raises(EngineClosed):
    made.submit(job())


def test_an_exception_in_the_block_fails_what_is_left():
  puppet = Puppet(held=True)
  threading.Timer(0.2, puppet.release).start()
  with pytest.raises(KeyError), Engine(prover=puppet) as made:
    future = made.submit(job(50))
    raise KeyError
  with pytest.raises(EngineClosed):
    future.result(0)
  engine_cases.left_nothing(made)


def test_closing_with_a_timeout_fails_what_is_left():
  puppet = Puppet(held=True)
  made = Engine(prover=puppet)
  future = made.submit(job(3))
  until(lambda: puppet.pending)
  threading.Timer(0.2, puppet.release).start()
  made.close(timeout=0.05)
  with pytest.raises(EngineClosed):
    future.result(0)
  made.close()
  engine_cases.left_nothing(made)


def test_no_thread_is_left():
  before = set(threading.enumerate())
  with Engine(prover=Puppet()) as made:
    made.prove(job(3))
  until(lambda: not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("zkjax")])


def test_a_future_can_be_waited_for_like_any_other():
  with engine(Puppet()) as made:
    futures = [made.submit(job()) for _ in range(3)]
    done, _ = concurrent.futures.wait(futures, SECONDS)
    assert done == set(futures) and not any(future.cancel() for future in futures)


def test_cancelled_is_also_the_error_of_the_standard_library():
  assert issubclass(JobCancelled, concurrent.futures.CancelledError)


# Several devices

_TWO = """
import sys
sys.path.insert(0, "tests")
import engine_cases, jax
from zkjax.groth16 import Blinding
blindings = [Blinding(k, k + 1) for k in range(6)]
assert len(jax.devices()) == 2
encoded = []
for devices in (jax.devices(), jax.devices()[:1]):
  with engine_cases.engine(devices=devices) as made:
    encoded.append(made.prove(engine_cases.job(6, blindings=blindings)).encoded)
    done = [device["partitions_done"] for device in made.status()["devices"]]
    assert sum(done) == 6 and all(done), done
assert encoded[0] == encoded[1]
"""


def test_two_devices_share_the_partitions_and_prove_the_same():
  flags = (os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2").strip()
  subprocess.run([sys.executable, "-c", _TWO], check=True, cwd=MUL.parents[2], env={**os.environ, "XLA_FLAGS": flags}, timeout=600)


def test_device_with_less_to_do_goes_first():
  puppet = Puppet(held=True)
  device = jax.devices()[0]
  with engine(puppet, devices=[device, device], max_in_flight=1, max_admitted=8) as made:
    future = made.submit(job(6))
    until(lambda: len(puppet.pending) == 2)
    assert [d["in_flight"] for d in made.status()["devices"]] == [1, 1]
    puppet.release()
    future.result(SECONDS)


def test_inputs_are_not_written_to():
  before = np.array(witness().limbs)
  with engine() as made:
    made.prove(job(2, source=witness()))
  assert np.array_equal(before, np.asarray(witness().limbs))


def test_sums_that_a_gpu_was_told_to_write_are_waited_for():
  """Nothing but queueing runs on the host then: the device's interval begins with its first kernel or behind the one before."""
  class Row:
    row = jnp.zeros(3)
  queued = []

  class Queueing(Puppet):
    def start(self, key, witnesses, blindings, spans):
      self.started.append(len(self.started))
      time.sleep(0.002)
      queued.append(time.perf_counter_ns())
      return [engine_cases.Pending({"a": Row, "b": Row}, engine_cases.proof(), witnesses[0][:1], queued[-1])]

    def finish(self, pending):
      return pending.proof
  with engine(Queueing()) as made:
    made.prove(job(4))
    events = made.timeline.events()
  ends = sorted(event.time_ns for event in events if event.name == "DEVICE_END")
  starts = sorted(event.time_ns for event in events if event.name == "DEVICE_START")
  assert len(starts) == 4 and all(end <= start for end, start in zip(ends, starts[1:]))
  assert starts[0] == queued[0] and all(begun <= start for begun, start in zip(queued, starts))


def test_a_device_begins_no_sooner_than_its_input_is_there():
  """On a device of its own: the first partition of a run has none before it whose end would tell."""
  class Far:
    platform = "gpu"
    client = jax.devices()[0].client

  partition, before = types.SimpleNamespace(arrived_ns=0), time.perf_counter_ns()
  device._note_arrival(partition, Fr(jnp.zeros((8, 4), jnp.uint32)))
  assert before < partition.arrived_ns < time.perf_counter_ns()
  device._note_arrival(failed := types.SimpleNamespace(arrived_ns=0), types.SimpleNamespace(block_until_ready=lambda: 1 / 0))
  assert failed.arrived_ns == 0
  assert not keys.is_default(Far()) and keys.is_default(jax.devices()[0])
