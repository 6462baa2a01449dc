"""What went wrong in engines like this one, one test each; and a soak with everything going wrong at once."""
import concurrent.futures
import gc
import random
import threading
import time
import traceback

import engine_cases
import jax
import numpy as np
import pytest
from engine_cases import PUBLIC, SECONDS, WTNS, Puppet, another_key, engine, false_proof, job, key, proof, until, witness

from zkjax import groth16
from zkjax.engine import (
    BudgetError,
    ByteBudget,
    DeadlineError,
    DeviceError,
    EngineClosed,
    EngineError,
    Job,
    JobCancelled,
    RejectedError,
    SynthesisError,
    Timeline,
    export,
    waterfall,
)
from zkjax.engine.gaps import partition_times
from zkjax.groth16.formats.points import proof_to_bytes

SECRET = 998877665544332211


def faults(*numbers, error=lambda: RuntimeError("INTERNAL: the device failed")):
  """Raises at the starts of these numbers."""
  def fault(number):
    if number in numbers:
      raise error()
  return fault


# Jobs that are alike

def test_jobs_with_the_same_id_are_two_jobs():
  """Two jobs with the same queue key: one vanished and its caller waited for ever; or their partitions were mixed."""
  products = [2 * 3, 5 * 7]
  with engine() as made:
    futures = [made.submit(job(3, source=[1, p, *factors], job_id="same")) for p, factors in zip(products, ([2, 3], [5, 7]))]
    results = [future.result(SECONDS) for future in futures]
  assert [result.public for result in results] == [[[6]] * 3, [[35]] * 3]
  assert all(groth16.verify_batch(key().vk, result.proofs, result.public) for result in results)


def test_the_same_job_submitted_again_after_a_timeout_of_the_client():
  puppet, again = Puppet(held=True), job(2, job_id="same")
  with engine(puppet) as made:
    first = made.submit(again)
    with pytest.raises(concurrent.futures.TimeoutError):
      first.result(0.01)
    second = made.submit(again)
    puppet.release()
    assert first.result(SECONDS).number != second.result(SECONDS).number


def test_no_two_partitions_have_the_same_place_in_the_queue():
  puppet = Puppet(held=True)
  with engine(puppet, max_admitted=100) as made:
    for _ in range(5):
      made.submit(job(4, job_id="same"))
    until(lambda: len(made._core.ready) == 17)
    orders = [order for order, _ in made._core.ready]
    assert len(set(orders)) == len(orders)
    puppet.release()


def test_a_finished_jobs_status_does_not_hide_a_newer_jobs():
  puppet = Puppet()
  with engine(puppet) as made:
    made.prove(job(job_id="same"))
    puppet.held = True
    made.submit(job(2, job_id="same"))
    (row,) = made.status()["grid"]
    assert row["number"] == 1 and made.status()["jobs"]["done"] == 1
    puppet.release()


# Failures of one partition

def test_a_failed_partition_stops_its_siblings_and_frees_their_memory():
  def bad():
    raise OSError("no such witness")
  puppet = Puppet()
  with engine(puppet, synthesis_threads=1, max_admitted=1) as made:
    future = made.submit(Job(key(), [bad] + [WTNS] * 50))
    with pytest.raises(SynthesisError, match="partition 0"):
      future.result(SECONDS)
    until(lambda: made.status()["host"]["bytes_reserved"] == 0)
    assert len(puppet.started) < 5 and not made.status()["grid"]
    assert made.prove(job(2)).public == [PUBLIC] * 2


def test_others_go_on_when_a_job_fails():
  def bad():
    raise KeyError
  with engine(Puppet()) as made:
    futures = [made.submit(Job(key(), [bad] if k % 2 else [WTNS])) for k in range(10)]
    outcomes = [type(future.exception(SECONDS)) for future in futures]
  assert outcomes == [type(None), SynthesisError] * 5


@pytest.mark.parametrize("bad", [lambda: [1, 2], lambda: [2, 6, 2, 3], lambda: None, lambda: "/no/such/file.wtns", [1, 6, -SECRET, 3]])
def test_what_is_no_witness_fails_the_job(bad):
  with engine(Puppet()) as made, pytest.raises(SynthesisError):
    made.prove(job(source=bad))


def test_a_producer_that_exits_fails_the_job():
  def bad():
    raise SystemExit
  with engine(Puppet()) as made, pytest.raises(EngineError, match="SystemExit"):
    made.prove(job(source=bad))


def test_an_error_in_start_ends_before_its_inputs_are_freed(monkeypatch):
  """A helper thread still read the inputs of a proof whose start had failed: use after free."""
  import importlib
  module = importlib.import_module("zkjax.groth16.prove")
  running, left = threading.Event(), []

  def slow(*_):
    running.set()
    time.sleep(0.2)
    left.append("ended")
    return np.zeros((8, 1), np.uint32)

  class Tasks(list):
    def __iter__(self):
      yield "h"                                # makes its scalars
      running.wait(SECONDS)
      raise RuntimeError("INTERNAL")
  monkeypatch.setattr(module, "quotient_scalars", slow)
  monkeypatch.setattr(module, "_tasks", lambda *_: Tasks(["h"]))
  with pytest.raises(RuntimeError, match="INTERNAL"):
    groth16.start(key(), witness())
  assert left == ["ended"]


def test_memory_is_held_while_a_stage_of_a_failed_proof_still_runs():
  puppet = Puppet(held=True)

  def start(*args):
    out = Puppet.start(puppet, *args)
    for pending in out:
      pending.sums["b"] = concurrent.futures.Future()
      pending.sums["b"].set_exception(RuntimeError("INTERNAL"))
    return out
  puppet.start = start
  with engine(puppet) as made:
    future = made.submit(job())
    until(lambda: puppet.pending)
    assert made.status()["host"]["bytes_reserved"] > 0 and made.status()["devices"][0]["in_flight"] == 1
    puppet.release()
    future.result(SECONDS)


def test_a_fault_of_the_device_is_retried_once():
  puppet = Puppet(fault=faults(1))
  with engine(puppet, synthesis_threads=1) as made:
    result = made.prove(job(3))
    assert result.retries == 1 and len(result.proofs) == 3 and made.status()["jobs"]["retries"] == 1
  assert {(times.partition, times.attempt) for times in result.times} == {(0, 0), (1, 0), (1, 1), (2, 0)}


def test_a_device_that_keeps_failing_fails_the_job():
  puppet = Puppet(fault=faults(*range(100)))
  with engine(puppet) as made:
    with pytest.raises(DeviceError, match="job 0, partition") as caught:
      made.prove(job(2))
    assert "the device failed" in str(caught.value.cause)
    puppet.fault = faults()
    assert made.prove(job()).retries == 0


def test_running_out_of_memory_evicts_idle_keys_and_tries_again():
  puppet = Puppet()
  with engine(puppet) as made:
    made.prove(job(key=another_key()))
    puppet.fault = faults(1, error=lambda: RuntimeError("RESOURCE_EXHAUSTED: out of memory"))
    assert made.prove(job()).retries == 1
    assert made.status()["devices"][0]["key_evictions"] >= 1


def test_failures_while_finishing_are_retried():
  puppet, calls = Puppet(), []

  def finish(pending):
    calls.append(0)
    if len(calls) == 2:
      raise RuntimeError("INTERNAL")
    return pending.proof
  puppet.finish = finish
  with engine(puppet) as made:
    assert made.prove(job(3)).retries == 1


def test_the_error_path_wakes_those_who_wait_for_memory():
  gate, host = threading.Event(), 32 * key().num_wires

  def bad():
    gate.wait(SECONDS)
    raise OSError
  with engine(Puppet(), host_bytes=host) as made:
    failing, waiting = made.submit(job(source=bad)), made.submit(job(2))
    until(lambda: made.status()["host"]["bytes_reserved"] == host)
    gate.set()
    assert isinstance(failing.exception(SECONDS), SynthesisError) and waiting.result(SECONDS)


# Proofs that are wrong

def test_a_false_proof_is_made_again_with_fresh_blinding():
  puppet, blindings = Puppet(), [groth16.Blinding(k, k) for k in range(3)]
  puppet.fault = lambda number: false_proof() if number == 1 else None
  with engine(puppet, synthesis_threads=1) as made:
    result = made.prove(job(3, blindings=blindings))
  assert result.retries == 1 and groth16.verify_batch(key().vk, result.proofs, result.public)
  assert result.encoded == proof_to_bytes(proof()) * 3
  assert puppet.blindings == [*blindings, None]                     # None: drawn


def test_a_malformed_proof_is_made_again_too():
  off_curve = groth16.Proof(type(proof().a)(proof().a.x, proof().a.x), proof().b, proof().c)
  puppet = Puppet(fault=lambda number: off_curve if number == 0 else None)
  with engine(puppet) as made:
    assert made.prove(job(2)).retries == 1


def test_a_witness_that_does_not_satisfy_the_circuit_fails_the_job():
  with engine() as made:
    with pytest.raises(RejectedError, match="partition 1"):
      made.prove(Job(key(), [WTNS, engine_cases.MUL.parent / "rejected" / "wtns_wrong_private.wtns"]))
    assert made.status()["jobs"]["retries"] == 1


def test_verification_can_be_turned_off():
  with engine(Puppet(fault=lambda number: false_proof()), verify=False) as made:
    assert made.prove(job()).retries == 0


def test_the_batch_is_what_is_verified_and_singles_only_on_failure(monkeypatch):
  """An optimised path was silently off for weeks: the fast path is really taken."""
  from zkjax.engine import finish
  calls = []
  real = {name: getattr(finish, name) for name in ("verify", "verify_batch")}
  for name in real:
    monkeypatch.setattr(finish, name, lambda *args, name=name: calls.append(name) or real[name](*args))
  puppet = Puppet()
  with engine(puppet) as made:
    made.prove(job(4))
    assert calls == ["verify_batch"]
    puppet.fault = lambda number: false_proof() if number == 4 else None
    made.prove(job(2))
  assert calls == ["verify_batch", "verify_batch", "verify", "verify", "verify_batch"]


def test_the_vmapped_program_is_what_a_batch_runs(monkeypatch):
  import importlib
  module, calls = importlib.import_module("zkjax.groth16.prove"), []
  real = module._batch_quotient_scalars
  monkeypatch.setattr(module, "_batch_quotient_scalars", lambda *args: calls.append(0) or real(*args))
  with engine(max_batch=4, max_wait_seconds=5.0, max_admitted=8) as made:
    made.prove(job(4))
  assert len(calls) == 1


# Cancelling and deadlines

@pytest.mark.parametrize("stage", ["waiting", "synthesis", "on device", "prepared", "finishing"])
@pytest.mark.parametrize("how", ["cancel", "deadline", "close"])
def test_jobs_end_at_every_stage(stage, how):
  gate, puppet = threading.Event(), Puppet(held=stage in ("on device", "prepared", "waiting"))

  def source():
    return (stage != "synthesis" or gate.wait(SECONDS)) and WTNS
  puppet.finish = lambda pending: (stage != "finishing" or gate.wait(SECONDS)) and pending.proof
  state = {"prepared": "dispatched"}.get(stage, stage)
  with engine(puppet, max_in_flight=1, max_admitted=1) as made:
    future = made.submit(job(6, source=source, job_id="mine", deadline_seconds=0.3 if how == "deadline" else None))
    until(lambda: made.status()["partitions"][state])
    if how == "cancel":
      assert made.cancel("mine") == 1 and made.cancel("mine") == 0 and not future.cancel()
    if how == "close":
      threading.Timer(0.05, gate.set).start()
      threading.Timer(0.05, puppet.release).start()
      made.close(drain=False)
    error = {"cancel": JobCancelled, "deadline": DeadlineError, "close": EngineClosed}[how]
    assert isinstance(future.exception(SECONDS), error)            # while the stage is still held
    gate.set()
    puppet.release()
    until(lambda: not made.status()["devices"][0]["load"] and not made.status()["host"]["bytes_reserved"])
    if how != "close":
      assert made.prove(job(2)).public == [PUBLIC] * 2


def test_a_future_cancels_its_own_job_only():
  puppet = Puppet(held=True)
  with engine(puppet) as made:
    futures = [made.submit(job(2, job_id="same")) for _ in range(3)]
    assert futures[1].cancel() and isinstance(futures[1].exception(0), JobCancelled)
    puppet.release()
    assert futures[0].result(SECONDS) and futures[2].result(SECONDS)
    assert made.cancel(futures[0]) == 0


# Budgets

def test_a_partial_release_wakes_a_waiter():
  budget = ByteBudget(10)
  held, got = budget.reserve(10), []
  thread = threading.Thread(target=lambda: got.append(budget.reserve(4, timeout=SECONDS)))
  thread.start()
  held.release(4)
  thread.join(SECONDS)
  assert got[0].size == 4 and budget.reserved == 10
  held.release()
  held.release()
  got[0].release()
  assert budget.reserved == 0 and budget.peak == 10


def test_no_waiter_misses_a_release():
  budget, done = ByteBudget(3), []

  def work(size):
    for _ in range(200):
      with budget.reserve(size):
        assert budget.reserved <= 3
    done.append(size)
  threads = [threading.Thread(target=work, args=(size,)) for size in (1, 2, 3, 1, 2, 3)]
  [thread.start() for thread in threads]
  [thread.join(SECONDS) for thread in threads]
  assert len(done) == 6 and budget.reserved == 0


def test_budgets_refuse_what_can_never_be():
  budget = ByteBudget(10, "memory of device 3")
  with pytest.raises(BudgetError, match="memory of device 3"):
    budget.reserve(11)
  with pytest.raises(ValueError):
    budget.try_reserve(-1)
  with pytest.raises(ValueError):
    budget.reserve(5).release(6)
  with pytest.raises(ValueError):
    ByteBudget(-1)
  assert budget.reserve(6, timeout=0.01) is None and budget.reserve(6, given_up=lambda: True) is None


# Records

def test_every_event_of_a_partition_names_it():
  """Timing lines without job and partition could not be joined with two workers."""
  with engine() as made:
    [future.result(SECONDS) for future in [made.submit(job(3)) for _ in range(2)]]
    events = made.timeline.events()
  assert all(event.job is not None and event.partition is not None for event in events)
  assert len(partition_times(events)) == 6


def test_each_event_comes_in_its_order():
  with engine() as made:
    made.prove(job(3))
    events = made.timeline.events()
  order = ["SUBMIT", "ADMIT", "SYNTH_START", "SYNTH_END", "QUEUE_PUT", "DEVICE_PICKUP", "DISPATCH_START", "DEVICE_START", "DEVICE_END",
           "FINISH_START", "FINISH_END", "SERIALIZE_START", "SERIALIZE_END", "VERIFY_START", "VERIFY_END"]
  for partition in range(3):
    at = {event.name: event.time_ns for event in events if event.partition == partition}
    assert [at[name] for name in order] == sorted(at[name] for name in order)
    assert sum(event.name == "DEVICE_START" for event in events if event.partition == partition) == 1


def test_a_timeline_that_records_nothing_changes_nothing():
  made = engine_cases.Engine(timeline=Timeline(0), prover=Puppet())
  with made:
    result = made.prove(job(2))
  assert len(result.proofs) == 2 and not result.times


def test_secrets_reach_no_record_no_error_and_no_log(caplog):
  caplog.set_level(0)

  def bad():
    secret = SECRET
    raise ValueError(f"the witness is {secret}")
  good = [1, SECRET * (SECRET + 2), SECRET, SECRET + 2]
  blinding = groth16.Blinding(SECRET + 4, SECRET + 6)
  with engine() as made:
    result = made.prove(Job(key(), [good, lambda: good], blindings=[blinding] * 2))
    errors = []
    for wrong in (bad, lambda: [1, 6, SECRET, R_PLUS], lambda: [SECRET, 6, 2, 3]):
      try:
        made.prove(job(source=wrong))
      except EngineError as error:
        errors.append("".join(traceback.format_exception(error)) + repr(error))
    assert len(errors) == 3
    events = made.timeline.events()
    text = "\n".join(errors) + str(made.status()) + made.prometheus_text() + repr(result.times) + repr(job()) + caplog.text
    text += export.to_json_lines(events) + export.to_csv(events) + str(export.to_chrome_trace(events)) + waterfall.to_html(events)
  for value in (SECRET, SECRET + 2, SECRET + 4, SECRET + 6):
    assert str(value) not in text and f"{value:x}" not in text


R_PLUS = groth16.types.bls12_381.R + SECRET


# Everything at once

def resident_bytes():
  with open("/proc/self/statm") as file:
    return int(file.read().split()[1]) * 4096


def test_soak():
  """300 partitions with mixed priorities, cancels, producers that raise and a device that fails now and then."""
  chance = random.Random(5)
  gc.collect()
  arrays = len(jax.live_arrays())

  def source(a):
    def produce():
      if chance.random() < 0.05:
        raise OSError("no witness")
      time.sleep(chance.random() * 0.01)
      return [1, a * (a + 1), a, a + 1]
    return produce

  class Flaky(engine_cases.Prover):
    def start(self, *args):
      if chance.random() < 0.03:
        raise RuntimeError("INTERNAL: the device failed")
      return super().start(*args)
  outcomes, resident, host = [], None, 32 * key().num_wires
  with engine(Flaky(), host_bytes=6 * host, max_batch=2) as made:
    for k in range(60):
      futures = [made.submit(Job(key(), [source(chance.randrange(2, 1000)) for _ in range(5)], priority=chance.randrange(3)))]
      if k % 2:
        while sum(not future.done() for future in outcomes + futures) > 4:
          time.sleep(0.002)
      if chance.random() < 0.15:
        futures[0].cancel()
      outcomes += futures
      if k == 10:
        concurrent.futures.wait(outcomes, SECONDS)
        resident = resident_bytes()
    done, left = concurrent.futures.wait(outcomes, SECONDS)
    assert not left and len(done) == 60
    assert made.status()["host"]["bytes_peak"] <= 6 * host
    kinds = {type(future.exception()) for future in done}
    results = [future.result() for future in done if not future.exception()]
    assert kinds <= {type(None), SynthesisError, DeviceError, JobCancelled} and len(results) > 10
    assert all(groth16.verify_batch(key().vk, result.proofs, result.public) for result in results)
  del futures, done, results, made
  outcomes.clear()
  gc.collect()
  assert len(jax.live_arrays()) <= arrays
  assert resident_bytes() < resident + 50e6
