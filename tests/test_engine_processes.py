"""Producers and verification in processes: the same results, errors and ends as on threads."""
import functools
import os
import pickle
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from engine_cases import PUBLIC, SECONDS, WTNS, Puppet, engine, false_proof, job, key, until, witness

from zkjax import groth16
from zkjax.engine import EngineError, Job, JobCancelled, RejectedError, SynthesisError, finish
from zkjax.engine.processes import ProcessDied, Processes, _answer


class Unsendable(Exception):
  """Its constructor takes two arguments, which pickle does not know."""

  def __init__(self, a, b):
    super().__init__(f"{a}{b}")


def produce(form):
  on_device = jax.tree.map(jax.numpy.asarray, witness())
  return {"path": WTNS, "fr": witness(), "ints": witness().to_ints(), "jax": on_device, "pid": os.getpid()}[form]


def bad(how):
  if how == "raise":
    raise KeyError("no such witness")
  if how == "unsendable":
    raise Unsendable(1, 2)
  if how == "exit":
    raise SystemExit(3)
  if how == "die":
    os._exit(3)
  return lambda: None                           # cannot be sent back


@pytest.fixture(scope="module")
def processes():
  made = Processes(2)
  yield made
  made.close()
  made.close()


def test_calls_run_in_other_processes_of_which_only_the_broken_one_is_replaced(processes):
  pids = {processes.run(produce, "pid") for _ in range(4)}
  assert len(pids) == 2 and os.getpid() not in pids
  with pytest.raises(ProcessDied):
    processes.run(bad, "die")
  after = {processes.run(produce, "pid") for _ in range(4)}
  assert len(after) == 2 and len(after & pids) == 1


def arrays(*sizes):
  return [np.arange(size, dtype=np.uint32) for size in sizes]


@pytest.mark.parametrize("memory", [True, False])
def test_large_arrays_come_back_whole(memory, processes, monkeypatch):
  """With memory that has no name, and through the pipe."""
  sizes = (0, 5, 1 << 20, 3, 100_003)
  if memory:
    got = processes.run(arrays, *sizes)
  else:
    monkeypatch.delattr("os.memfd_create", raising=False)
    answer, apart = _answer(pickle.dumps((arrays, sizes)))
    got = pickle.loads(answer)[1]
    assert not apart
  assert all(np.array_equal(a, b) and a.dtype == b.dtype and b.flags.writeable for a, b in zip(arrays(*sizes), got, strict=True))


def test_large_arrays_do_not_go_through_the_pipe():
  answer, apart = _answer(pickle.dumps((arrays, (1 << 20, 5))))
  assert len(answer) < 1000 and [len(array) for array in apart] == [4 << 20]


def test_errors_come_back_with_the_place_where_they_were_raised(processes):
  with pytest.raises(KeyError, match="no such witness") as caught:
    processes.run(bad, "raise")
  assert 'raise KeyError("no such witness")' in caught.value.__notes__[0]
  with pytest.raises(RuntimeError, match="Unsendable"):
    processes.run(bad, "unsendable")
  for function, args in ((bad, ["lambda"]), (lambda: None, [])):
    with pytest.raises(Exception, match="pickle|lambda"):
      processes.run(function, *args)


@pytest.mark.parametrize("processes_of", ["synthesis_processes", "verify_processes"])
def test_the_engine_proves_the_same_with_processes(processes_of):
  forms = ["path", "fr", "ints", "jax"] if processes_of == "synthesis_processes" else ["path"]
  with engine(**{processes_of: True}) as made:
    result = made.prove(Job(key(), [functools.partial(produce, form) for form in forms]))
  assert groth16.verify_batch(key().vk, result.proofs, result.public) and result.public == [PUBLIC] * len(forms)


def test_failures_of_a_producer_in_a_process_fail_its_job_only():
  expected = {"raise": (SynthesisError, KeyError), "exit": (EngineError, SystemExit), "die": (SynthesisError, ProcessDied),
              "lambda": (SynthesisError, Exception)}
  with engine(Puppet(), synthesis_processes=True) as made:
    futures = {how: made.submit(Job(key(), [functools.partial(bad, how)])) for how in expected}
    good = made.submit(job(6, source=functools.partial(produce, "fr")))
    for how, (kind, cause) in expected.items():
      error = futures[how].exception(SECONDS)
      assert type(error) is kind and isinstance(error.cause, cause), how
    with pytest.raises(SynthesisError):
      made.prove(job(source=lambda: WTNS))      # a function that no other process can find
    assert len(good.result(SECONDS).proofs) == 6


def test_a_job_can_be_cancelled_while_its_producer_runs_in_a_process():
  with engine(Puppet(), synthesis_processes=True, synthesis_threads=1) as made:
    future = made.submit(job(source=functools.partial(time.sleep, 1.0)))
    until(lambda: made.status()["queues"]["admitted"] == 1)
    start = time.monotonic()
    assert future.cancel() and time.monotonic() - start < 0.5
    with pytest.raises(JobCancelled):
      future.result(0)
    assert len(made.prove(job(source=functools.partial(produce, "path"))).proofs) == 1


def test_false_proofs_are_rejected_by_processes_too():
  puppet = Puppet(fault=lambda number: false_proof() if number < 2 else None)
  with engine(puppet, verify_processes=True) as made:
    with pytest.raises(RejectedError):
      made.prove(job())
    assert made.prove(job(2)).public == [PUBLIC] * 2


@pytest.mark.parametrize("gpu, asked, expected", [(True, None, True), (False, None, False), (True, False, False), (False, True, True)])
def test_verification_has_processes_where_asked_for_and_by_default_on_a_gpu(monkeypatch, gpu, asked, expected):
  started = []

  class Recorded:
    def __init__(self, count, script):
      started.append((count, script))

    def run(self, function, *args):
      return function(*args)

    def close(self):
      started.append("closed")
  monkeypatch.setattr(finish, "on_gpu", lambda: gpu)
  monkeypatch.setattr(finish, "Processes", Recorded)
  with engine(Puppet(), verify_processes=asked, finish_threads=3) as made:
    assert made.prove(job(2)).public == [PUBLIC] * 2
  assert started == ([(3, False), "closed"] if expected else [])


def test_processes_that_do_not_import_the_script_need_no_guard(tmp_path):
  """One that ends is replaced, too."""
  script = tmp_path / "script.py"
  script.write_text("import os\nfrom zkjax.engine.processes import ProcessDied, Processes\nmade = Processes(1, script=False)\n"
                    "first = made.run(os.getpid)\nassert first != os.getpid()\ntry:\n  made.run(os._exit, 3)\nexcept ProcessDied:\n  pass\n"
                    "assert made.run(os.getpid) not in (first, os.getpid())\nmade.close()\nprint('done')\n")
  result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, env={**os.environ})
  assert result.stdout == "done\n", result.stderr


def test_a_script_without_a_guarded_main_is_told_so(tmp_path):
  script = tmp_path / "script.py"
  script.write_text("from zkjax.engine.processes import Processes\nProcesses(1)\n")
  result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, env={**os.environ})
  assert result.returncode and "__main__" in result.stderr.splitlines()[-1]
