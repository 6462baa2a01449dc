"""The engine: jobs of many partitions in, proofs out, the device kept busy.

  with Engine() as engine:
    result = engine.prove(Job(key, witnesses))

submit -> admission (one thread, in the order (priority, job, partition), memory reserved first) -> synthesis (host threads) -> queue ->
dispatch (one thread a device, never waits for a proof) -> finish, serialize, verify (host threads) -> future.

Every future ends, in a JobResult or in an EngineError. An engine of one process: closing it, early or not, ends all of its threads.
"""
import concurrent.futures
import os
import threading
import time

import jax
import numpy as np

from zkjax.engine import status
from zkjax.engine.core import Core, EngineConfig
from zkjax.engine.device import DeviceWorker
from zkjax.engine.finish import Finisher
from zkjax.engine.jobs import EngineClosed, EngineError, JobCancelled, JobFuture, SynthesisError
from zkjax.engine.keys import key_bytes, partition_bytes
from zkjax.engine.processes import Processes
from zkjax.engine.prover import Prover
from zkjax.engine.timeline import Timeline
from zkjax.groth16.formats.circom import read_wtns
from zkjax.groth16.prove import public_inputs
from zkjax.ops.field import Fr
from zkjax.ops.msm import free_buffers


class Engine:
  """Proves jobs on one or several devices. A context manager: leaving the block waits for all jobs, or fails them if the block raised.

  Args:
    config: EngineConfig.
    devices: jax.Devices to prove on; None takes the first of the default backend.
    timeline: Timeline to record into; None makes one.
    prover: what `prover.Prover` is, for tests; None makes one.

  Raises: ValueError for a wrong config or no devices.
  """

  def __init__(self, config=None, devices=None, timeline=None, prover=None):
    config = (EngineConfig() if config is None else config).checked()
    devices = jax.devices()[:1] if devices is None else list(devices)
    if not devices:
      raise ValueError("an engine needs at least one device, got none; None takes the first of the default backend")
    self.timeline = Timeline() if timeline is None else timeline
    prover = Prover() if prover is None else prover
    self._producing = Processes(config.synthesis_threads) if config.synthesis_processes else None
    self._core = Core(config, self.timeline, len(devices))
    self._finisher = Finisher(self._core, prover)
    self._workers = [DeviceWorker(self._core, k, device, prover, self._finisher.submit) for k, device in enumerate(devices)]
    self._synthesis = concurrent.futures.ThreadPoolExecutor(config.synthesis_threads, "zkjax-synthesis")
    self._admission = threading.Thread(target=self._admit, name="zkjax-admission", daemon=True)
    self._closed, self._began = False, time.monotonic()
    self._admission.start()
    for worker in self._workers:
      worker.peers = self._workers
      worker.thread.start()

  # Jobs

  def submit(self, job):
    """Queues a Job and returns its JobFuture at once. Every submission is a new job, whatever its id.

    Raises: ValueError for a malformed job, BudgetError (a ValueError) for one whose key or partition can never fit, EngineClosed.
    """
    job = job.checked()
    host, device = partition_bytes(job.key)
    self._core.host.check(host)
    for worker in self._workers:
      worker.budget.check(key_bytes(job.key) + device)
    with self._core.changed:
      if self._closed:
        raise EngineClosed("the engine is closed and takes no more jobs")
      return self._core.accept(job, self._cancel).future

  def prove(self, job):
    """Submits a Job and waits: its JobResult, or the EngineError that ended it."""
    return self.submit(job).result()

  def cancel(self, job):
    """Cancels a job by its future or, by its id, every unfinished job of that id; returns how many were cancelled.

    Their futures end at once. What is on a device runs to its end, and its memory is taken back then.
    """
    if isinstance(job, JobFuture):
      return int(self._cancel(job))
    with self._core.changed:
      futures = [running.future for running in self._core.running.values() if running.job.job_id == job]
    return sum(map(self._cancel, futures))

  def _cancel(self, future):
    with self._core.changed:
      running = self._core.running.get(future.number)
    if running is None or running.future is not future:
      return False
    return self._core.fail(running, JobCancelled(f"job {running.number} was cancelled"), "cancelled")

  # Keys

  def preload(self, key):
    """Makes a key resident on every device, so that no job has to wait for it. Raises BudgetError if it can never fit."""
    self._finisher.verifiers.of(key)
    for worker in self._workers:
      with self.timeline.span("KEY_LOAD", device=worker.index):
        resident = worker.keys.acquire(key, lambda: self._core.stopped)
      if resident is None:
        raise EngineClosed("the engine was closed while a key was loaded")
      worker.keys.release(resident)

  def evict(self, key):
    """Frees a key on every device where no partition uses it; returns from how many it went."""
    self._finisher.verifiers.forget(key)
    return sum(worker.keys.evict(key) for worker in self._workers)

  # State

  def status(self):
    """Live numbers as a dict; see `status.status` for the keys."""
    return status.status(self._core, self._workers, time.monotonic() - self._began)

  def prometheus_text(self):
    """The status in the text format that Prometheus scrapes."""
    return status.prometheus_text(self.status())

  # The end

  def close(self, drain=True, timeout=None):
    """Ends the engine: with `drain` after all jobs, or after `timeout` seconds; what is unfinished then fails with EngineClosed.

    Waits for what is on a device and for producers that are running: nothing can stop these. Harmless when repeated.
    """
    core = self._core
    with core.changed:
      self._closed = True
      if drain:
        core.changed.wait_for(lambda: not core.running, timeout)
      left = list(core.running.values())
    for running in left:
      core.fail(running, EngineClosed(f"the engine was closed before job {running.number} was done"))
    with core.changed:
      core.stopped = True
      core.changed.notify_all()
    self._admission.join()
    self._synthesis.shutdown(wait=True)
    for worker in self._workers:
      worker.thread.join()
      with core.changed:
        core.changed.wait_for(lambda worker=worker: not worker.load)
    self._finisher.close()
    if self._producing:
      self._producing.close()
    for worker in self._workers:
      worker.keys.make_room()
      worker.compiling.close()
    free_buffers()

  def __enter__(self):
    return self

  def __exit__(self, kind, *_):
    self.close(drain=kind is None)

  # Admission and synthesis

  def _admit(self):
    core = self._core
    while True:
      wait = core.expire()
      with core.changed:
        if core.stopped:
          return
        partition = core.admit()
        if partition is None:
          # whatever could change the answer notifies: a job, a release, a partition that leaves the queue; or time passes
          core.changed.wait(wait)
          continue
      self._synthesis.submit(self._synthesize, partition)

  def _synthesize(self, partition):
    """Produces the witness of a partition and checks it. Whatever a producer raises fails its job."""
    core, running = self._core, partition.running
    try:
      if running.over:
        return core.drop(partition)
      core.mark(partition, "SYNTH_START")
      try:
        source = partition.source
        witness = self._producing.run(_produce_to_send, source) if self._producing and callable(source) else _produce(source)
        public = public_inputs(running.job.key, witness)       # refuses what is no witness of the key's circuit
        witness = witness if isinstance(witness, Fr) else Fr.from_ints(witness)
      finally:
        core.mark(partition, "SYNTH_END")
      core.enqueue(partition, witness, public)
    except BaseException as error:
      # the text of a producer's exception may hold a secret: it is kept beside the error, not in it
      where = f"job {running.number}, partition {partition.index}"
      kind = SynthesisError if isinstance(error, Exception) else EngineError
      core.fail(running, kind(f"{where}: no witness could be produced ({type(error).__name__}); `cause` holds what was raised", error))
      core.drop(partition)


def _produce(source):
  """The witness of a source in any of the forms that a Job takes: Fr or a list."""
  value = source() if callable(source) else source
  if isinstance(value, (str, os.PathLike)):
    value = read_wtns(value)
  return value if isinstance(value, Fr) else list(value)


def _produce_to_send(source):
  """As `_produce`, on the host: what a process has on its device is no device of this one."""
  return jax.tree.map(np.asarray, value) if isinstance(value := _produce(source), Fr) else value
