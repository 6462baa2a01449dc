"""What the threads of an engine share: jobs, the two queues, memory, and the only places where a job ends.

One condition guards all of it and is notified of every change, so that nobody can miss one; whoever waits looks again for himself.
"""
import dataclasses
import heapq
import threading
import time
from typing import Optional

from zkjax.engine.budget import ByteBudget
from zkjax.engine.gaps import partition_times
from zkjax.engine.jobs import DeadlineError, JobResult, Partition, Running, State
from zkjax.engine.keys import partition_bytes

MAX_ATTEMPTS = 2


@dataclasses.dataclass(frozen=True)
class EngineConfig:
  """How an engine runs. The proofs do not depend on it.

  max_in_flight: proofs, or batches of them, on a device at once: the next is dispatched before the last is ready. 2 or more hide the host.
  synthesis_threads: witnesses produced at once. finish_threads: proofs finished and verified at once.
  max_admitted: partitions between admission and a device; None means synthesis_threads + devices. Fewer make priorities act sooner.
  host_bytes, device_bytes: budgets of the host and of each device; None means no bound.
  max_batch: partitions of a small circuit that are dispatched as one batch, whose evaluation and quotient are one vmapped program.
  max_batch_log2_size: the largest domain, as a power of two, that counts as small. max_wait_seconds: how long a batch that is not full
  waits for more while the device has a free place.
  verify: check every proof before it is returned.
  synthesis_processes: functions that produce witnesses run in processes, one for each of synthesis_threads, instead of on these threads:
  for those that compute in Python for long, and would take the interpreter from the prover. They must be picklable, and so their results;
  see `processes.Processes`.
  verify_processes: verification, some 14 ms of Python a proof, runs in processes, one for each of finish_threads, which take seconds to
  start. None: where a GPU's kernels run, which prove small circuits about as fast, and would wait half of their time for the interpreter.
  """
  max_in_flight: int = 2
  synthesis_threads: int = 2
  finish_threads: int = 2
  max_admitted: Optional[int] = None
  host_bytes: Optional[int] = None
  device_bytes: Optional[int] = None
  max_batch: int = 1
  max_batch_log2_size: int = 10
  max_wait_seconds: float = 0.0
  verify: bool = True
  synthesis_processes: bool = False
  verify_processes: Optional[bool] = None

  def checked(self):
    """self, or ValueError."""
    for name in ("max_in_flight", "synthesis_threads", "finish_threads", "max_admitted", "max_batch"):
      value = getattr(self, name)
      if value is not None and (not isinstance(value, int) or value < 1):
        raise ValueError(f"{name} must be a positive int, got {value!r}")
    for name in ("verify", "synthesis_processes", "verify_processes"):
      value = getattr(self, name)
      if not isinstance(value, bool) and not (name == "verify_processes" and value is None):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    if not self.max_wait_seconds >= 0:
      raise ValueError(f"max_wait_seconds must not be negative, got {self.max_wait_seconds}")
    return self


class Core:
  """The shared state. Methods take the lock themselves; `changed` is that lock."""

  def __init__(self, config, timeline, num_devices):
    self.config, self.timeline = config, timeline
    self.changed = threading.Condition()
    self.host = ByteBudget(config.host_bytes, "host memory", self.poke)
    self.running, self.waiting, self.ready = {}, [], []          # waiting for admission; ready for a device: heaps of (order, Partition)
    self.admitted = 0                           # partitions between admission and a device
    self.max_admitted = config.max_admitted or config.synthesis_threads + num_devices
    self.stopped = False
    self.counts = dict.fromkeys(("submitted", "done", "failed", "cancelled", "expired", "proofs", "retries"), 0)
    self._numbers = 0

  def poke(self):
    """Makes everybody who waits look again."""
    with self.changed:
      self.changed.notify_all()

  def mark(self, partition, name, **more):
    """Records an event of a partition, in the timeline and in its own record."""
    event = self.timeline.record(name, **(partition.where | more))
    if event is not None:
      partition.events.append(event)

  # A job's way: accepted, admitted, queued, and one end

  def accept(self, job, cancel):
    """The Running of a new job, its partitions waiting for admission."""
    with self.changed:
      running = Running(job, self._numbers, cancel)
      self._numbers += 1
      self.counts["submitted"] += 1
      self.running[running.number] = running
      for partition in running.latest:
        self._push_waiting(partition)
      return running

  def _push_waiting(self, partition):
    self.mark(partition, "SUBMIT")
    heapq.heappush(self.waiting, (partition.order, partition))
    self.changed.notify_all()

  def admit(self):
    """Takes the first waiting partition and reserves its memory; None if there is none or no room. The first is never overtaken: a small
    one that fits must not starve it. Call with the lock held."""
    if not self.waiting or self.admitted >= self.max_admitted:
      return None
    partition = self.waiting[0][1]
    reservation = self.host.try_reserve(partition_bytes(partition.running.job.key)[0])
    if reservation is None:
      return None
    heapq.heappop(self.waiting)
    partition.host, partition.state = reservation, State.SYNTHESIS
    self.admitted += 1
    self.mark(partition, "ADMIT")
    return partition

  def enqueue(self, partition, witness, public):
    """Puts a partition with its witness into the queue of the devices, or drops it if its job is over."""
    with self.changed:
      partition.witness, partition.public = witness, public
      if partition.running.over:
        return self.drop(partition)
      partition.state = State.QUEUED
      self.mark(partition, "QUEUE_PUT")
      heapq.heappush(self.ready, (partition.order, partition))
      self.changed.notify_all()

  def take(self, device, wanted=lambda partition: True):
    """Takes the first partition out of the queue, if it is `wanted`, else None. Call with the lock held."""
    if not self.ready or not wanted(self.ready[0][1]):
      return None
    partition = heapq.heappop(self.ready)[1]
    partition.device, partition.state = device, State.DISPATCHED
    self.admitted -= 1
    self.mark(partition, "DEVICE_PICKUP")
    self.changed.notify_all()
    return partition

  def drop(self, partition):
    """Gives up a partition: memory and secrets go. Harmless when repeated."""
    with self.changed:
      if partition.state is State.GIVEN_UP:
        return
      if partition.state in (State.SYNTHESIS, State.QUEUED):
        self.admitted -= 1
      partition.state, partition.proof = State.GIVEN_UP, None
      self.mark(partition, "DROP")
      partition.release()
      self.changed.notify_all()

  def retry(self, partition, error):
    """Gives a partition up and puts a second attempt in its place, which draws a fresh blinding; the job fails if that was the second."""
    self.drop(partition)
    with self.changed:
      running = partition.running
      if not running.over and partition.attempt + 1 < MAX_ATTEMPTS:
        again = Partition(running, partition.index, partition.attempt + 1)
        running.latest[partition.index] = again
        running.events += partition.events
        running.retries += 1
        self.counts["retries"] += 1
        return self._push_waiting(again)
    self.fail(running, error)

  def fail(self, running, error, count="failed"):
    """Ends a job with an error and takes back what its partitions hold; those that a thread is busy with follow when it is done.

    Returns False if the job had ended before.
    """
    with self.changed:
      if running.over:
        return False
      self._end(running, count)
      for partition in running.latest:
        if partition.state in (State.WAITING, State.QUEUED, State.PROVED):
          self.drop(partition)
      for queue in (self.waiting, self.ready):
        queue[:] = [entry for entry in queue if entry[1].running is not running]
        heapq.heapify(queue)
    running.future.set_exception(error)
    return True

  def complete(self, running):
    """Ends a job whose partitions are all proved."""
    with self.changed:
      if running.over:
        return
      self._end(running, "done")
      self.counts["proofs"] += len(running.latest)
    events = sorted(sum((p.events for p in running.latest), list(running.events)), key=lambda event: event.time_ns)
    proved = running.latest
    running.future.set_result(JobResult(
        running.job.job_id, running.number, [p.proof for p in proved], b"".join(p.encoded for p in proved), [p.public for p in proved],
        partition_times(events), running.retries))

  def _end(self, running, count):
    running.over = True
    del self.running[running.number]
    self.counts[count] += 1
    self.changed.notify_all()

  def expire(self):
    """Fails every job whose deadline has passed; returns the seconds to the next deadline, or None."""
    now = time.monotonic()
    with self.changed:
      dated = [running for running in self.running.values() if running.deadline is not None]
      late = [running for running in dated if running.deadline <= now]
    for running in late:
      self.fail(running, DeadlineError(f"job {running.number} was not done within {running.job.deadline_seconds} s"), "expired")
    return min((running.deadline - now for running in dated if running.deadline > now), default=None)
