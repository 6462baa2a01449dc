"""The thread of one device: takes partitions from the queue, brings their inputs, dispatches them, and never waits for a proof."""
import contextlib
import threading
import time

import jax

from zkjax.engine.budget import ByteBudget
from zkjax.engine.jobs import DeviceError, State
from zkjax.engine.keys import KeyStore, is_default, on_device, partition_bytes

_COMPILE_EVENTS = ("/jax/core/compile/jaxpr_trace_duration", "/jax/core/compile/jaxpr_to_mlir_module_duration",
                   "/jax/core/compile/backend_compile_duration", "/jax/compilation_cache/cache_retrieval_time_sec")


class DeviceWorker:
  """One device of an engine.

  load: partitions taken and not yet off the device; in_flight: dispatches of them. The next partition is prepared, key and inputs, before
  there is a place for it.
  """

  def __init__(self, core, index, device, prover, finish):
    self.core, self.index, self.device, self.prover, self.finish = core, index, device, prover, finish
    self.peers = [self]                         # all workers of the engine, set by it
    self.budget = ByteBudget(core.config.device_bytes, f"memory of device {index}", core.poke)
    self.keys = KeyStore(device, self.budget)
    self.load = self.in_flight = self.done = self.dispatches = 0
    self.idle, self.last_end_ns = False, 0
    self.compiling = CompileWatch(core)
    self.thread = threading.Thread(target=self._run, name=f"zkjax-dispatch-{index}", daemon=True)

  def _run(self):
    while (partition := self._pick()) is not None:
      batch = [partition]
      try:
        if not self._prepare(partition) or not self._wait_for_place(partition):
          self._give_up(partition)
          continue
        self._extend(batch)
        self._dispatch(batch)
      except BaseException as error:           # whatever it is, the futures of these partitions must end
        self._failed(batch, error)

  def _pick(self):
    """The next partition, or None when the engine stops. A device with less to do goes first."""
    core = self.core
    with core.changed:
      while not core.stopped:
        self.idle = True
        if not any(peer.idle and peer.load < self.load for peer in self.peers if peer is not self):
          partition = core.take(self.index)
          if partition is not None:
            self.idle = False
            self.load += 1
            return partition
        core.changed.wait()
      self.idle = False
      return None

  def _over(self, partition):
    return self.core.stopped or partition.running.over

  def _prepare(self, partition):
    """Makes the key resident, reserves memory and hands the witness to the device; False if the job is over by then."""
    core, key, given_up = self.core, partition.running.job.key, lambda: self._over(partition)
    if not self.keys.has(key):
      core.mark(partition, "KEY_LOAD_START")
      try:
        partition.resident = self.keys.acquire(key, given_up)
      finally:
        core.mark(partition, "KEY_LOAD_END")
    else:
      partition.resident = self.keys.acquire(key, given_up)
    if partition.resident is None:
      return False
    core.mark(partition, "TRANSFER_START")
    partition.device_memory = self.keys.reserve(partition_bytes(key)[1], given_up)
    if partition.device_memory is not None and self.device.platform != "cpu":
      partition.witness = jax.device_put(partition.witness, None if is_default(self.device) else self.device)
    core.mark(partition, "TRANSFER_END")
    return partition.device_memory is not None

  def _wait_for_place(self, partition):
    core = self.core
    core.mark(partition, "LOCK_WAIT_START")
    with core.changed:
      core.changed.wait_for(lambda: self.in_flight < core.config.max_in_flight or self._over(partition))
    core.mark(partition, "LOCK_WAIT_END")
    return not self._over(partition)

  def _extend(self, batch):
    """Adds the partitions of the same small circuit that are next in the queue, up to max_batch, and waits a little for more."""
    core, key = self.core, batch[0].running.job.key
    if core.config.max_batch == 1 or key.domain.log2_size > core.config.max_batch_log2_size:
      return
    end = time.monotonic() + core.config.max_wait_seconds
    while len(batch) < core.config.max_batch:
      with core.changed:
        more = core.take(self.index, lambda partition: partition.running.job.key is key)
        if more is None:
          left = end - time.monotonic()
          if left <= 0 or core.stopped or not any(p.running.job.key is key for r in core.running.values() for p in r.latest
                                                  if p.state in (State.WAITING, State.SYNTHESIS, State.QUEUED)):
            return
          core.changed.wait(left)
          continue
        self.load += 1
      batch.append(more)
      if not self._prepare(more):
        self._give_up(batch.pop())

  def _dispatch(self, batch):
    core = self.core
    with core.changed:
      self.in_flight += 1
      self.dispatches += 1
    for partition in batch:
      partition.dispatch_ns = time.perf_counter_ns()
      core.mark(partition, "DISPATCH_START", time_ns=partition.dispatch_ns)
      partition.state = State.ON_DEVICE
    if self.device.platform != "cpu" and self.in_flight == 1:
      # nothing runs before the input is there, and no partition before this one tells when it begins
      threading.Thread(target=_note_arrival, args=(batch[0], batch[0].witness), name="zkjax-arrival", daemon=True).start()
    try:
      with on_device(self.device), self.compiling.of(batch[0]), jax.profiler.TraceAnnotation("dispatch", **batch[0].where):
        pending = self.prover.start(batch[0].resident.key, [p.witness for p in batch], [p.blinding for p in batch],
                                    [self._stages_of(p) for p in batch])
      for partition, one in zip(batch, pending, strict=True):
        partition.pending = one
    except BaseException:
      with core.changed:
        self.in_flight -= 1
        core.changed.notify_all()
      raise
    finally:
      for partition in batch:
        core.mark(partition, "DISPATCH_END")
    left = [len(batch)]
    for partition in batch:
      self.prover.when_ready(partition.pending, lambda partition=partition: self._ready(partition, left))

  def _stages_of(self, partition):
    """What brackets a stage of a partition, on the thread that runs it: events, a mark in the profiler's trace, the device."""
    core, where = self.core, partition.where

    @contextlib.contextmanager
    def stage(name):
      with on_device(self.device), self.compiling.of(partition), jax.profiler.TraceAnnotation(name, **where):
        now = time.perf_counter_ns()
        if partition.started.acquire(blocking=False):
          core.mark(partition, "DEVICE_START", time_ns=now)
        core.mark(partition, "STAGE_START", detail=name, time_ns=now)
        try:
          yield
        finally:
          partition.last_output_ns = max(partition.last_output_ns, now := time.perf_counter_ns())
          core.mark(partition, "STAGE_END", detail=name, time_ns=now)
    return stage

  def _ready(self, partition, left):
    """The device is done with a partition: its memory and its place are free, and the rest is for the pool."""
    core = self.core
    if partition.started.acquire(blocking=False):
      # nothing but queueing ran on the host: the device began after what was queued before, and not before its input and its first kernel
      begun = self.prover.begun_ns(partition.pending)
      core.mark(partition, "DEVICE_START", time_ns=max(self.last_end_ns, partition.dispatch_ns, partition.arrived_ns, begun))
    # not now: the thread that tells so may have waited for the interpreter
    end = partition.last_output_ns or time.perf_counter_ns()
    self.last_end_ns = max(self.last_end_ns, end)
    core.mark(partition, "DEVICE_END", time_ns=end)
    self._leave(partition)
    with core.changed:
      left[0] -= 1
      self.in_flight -= not left[0]
      self.done += 1
      core.changed.notify_all()
    self.finish(partition, self)

  def _leave(self, partition):
    """Gives back what a partition held of the device and of the host; its pending proof stays."""
    pending = partition.pending
    partition.release()
    partition.pending = pending
    if partition.resident is not None:
      self.keys.release(partition.resident)
      partition.resident = None
    with self.core.changed:
      self.load -= 1
      self.core.changed.notify_all()

  def _give_up(self, partition):
    self._leave(partition)
    self.core.drop(partition)

  def _failed(self, batch, error):
    """Preparing or dispatching raised; nothing runs on the device for these partitions."""
    for partition in batch:
      if partition.started.locked():
        self.core.mark(partition, "DEVICE_END")
      self._leave(partition)
      self.retry(partition, error)

  def retry(self, partition, error):
    """A second attempt after a failure of the device; where memory was short, with all of it that can be had."""
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
      self.keys.make_room()
    where = f"job {partition.running.number}, partition {partition.index}"
    self.core.retry(partition, DeviceError(f"{where}: proving failed on device {self.index} ({type(error).__name__})", error))

  def status(self):
    """Live numbers for Engine.status."""
    return {"device": str(self.device), "in_flight": self.in_flight, "load": self.load, "partitions_done": self.done,
            "dispatches": self.dispatches, "keys": len(self.keys), "key_loads": self.keys.loads, "key_evictions": self.keys.evictions,
            "bytes_reserved": self.budget.reserved, "bytes_peak": self.budget.peak, "bytes_total": self.budget.total}


def _note_arrival(partition, witness):
  """Notes when a witness has arrived on its device."""
  with contextlib.suppress(Exception):         # the proof meets it again and says so
    jax.block_until_ready(witness)
    partition.arrived_ns = time.perf_counter_ns()


class CompileWatch:
  """Records as COMPILE what JAX says it spends on tracing and compiling, for the partition that a thread works for."""

  def __init__(self, core):
    self.core, self._thread, self._listening = core, threading.local(), True
    jax.monitoring.register_event_duration_secs_listener(self._listen)

  def close(self):
    """Stops listening. Harmless when repeated."""
    if self._listening:
      self._listening = False
      jax.monitoring.unregister_event_duration_listener(self._listen)

  @contextlib.contextmanager
  def of(self, partition):
    """Around what a thread does for a partition."""
    self._thread.partition = partition
    try:
      yield
    finally:
      self._thread.partition = None

  def _listen(self, event, seconds, **_):
    partition = getattr(self._thread, "partition", None)
    if partition is not None and event in _COMPILE_EVENTS:
      now = time.perf_counter_ns()
      self.core.mark(partition, "COMPILE_START", time_ns=now - int(seconds * 1e9))
      self.core.mark(partition, "COMPILE_END", time_ns=now)
