"""What is submitted to an engine, what comes back, and how it can fail. No message of an error holds a value of a witness or a blinding."""
import concurrent.futures
import dataclasses
import enum
import threading
import time
import traceback
from collections.abc import Sequence
from typing import Any, Optional

from zkjax.groth16.types import ProvingKey


class EngineError(Exception):
  """A job that has no result; the subclasses say why. `cause` is the exception behind it, which may not be printed: see SynthesisError."""

  def __init__(self, message, cause=None):
    if cause is not None:
      traceback.clear_frames(cause.__traceback__)              # whoever keeps the error would keep witnesses and device memory
    self.cause = cause
    super().__init__(message)


class SynthesisError(EngineError):
  """A witness could not be produced, or what was produced is none. `cause` is what the producer raised; its text may hold secrets."""


class DeviceError(EngineError):
  """Proving failed twice on the device, such as for want of memory. `cause` is the last failure; tracebacks show it, as it names shapes."""

  def __init__(self, message, cause=None):
    super().__init__(message, cause)
    self.__cause__ = cause


class RejectedError(EngineError):
  """A proof did not verify, nor a second one with fresh blinding: the witness does not satisfy the circuit, or the machine is faulty."""


class DeadlineError(EngineError):
  """The deadline passed before the job was done."""


class JobCancelled(EngineError, concurrent.futures.CancelledError):
  """Somebody cancelled the job."""


class EngineClosed(EngineError):
  """The engine was closed before the job was done, or before it was submitted."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Job:
  """P partitions of one circuit: P witnesses in, P proofs out. Has no repr: it holds secrets.

  key: ProvingKey. A key object is one key; two objects of the same file are two keys.
  witnesses: for each partition what `groth16.prove` takes, the path of a .wtns file, or a function without arguments that returns one of
    these and runs on a thread of its own pool. A partition that has to be proved again is produced again. A function that computes for
    long in Python holds the interpreter, which the prover needs too: `EngineConfig.synthesis_processes` runs it in a process.
  job_id: the caller's label, which need not be unique: the engine numbers jobs itself, and every submission is a new job.
  priority: larger ones go first; of equal ones the older job.
  deadline_seconds: from submission; None waits for ever.
  blindings: one Blinding for each partition, for tests only; None draws them. A second attempt always draws.
  """
  key: ProvingKey
  witnesses: Sequence[Any]
  job_id: str = ""
  priority: int = 0
  deadline_seconds: Optional[float] = None
  blindings: Optional[Sequence[Any]] = None

  def checked(self):
    """self, or ValueError."""
    if not isinstance(self.key, ProvingKey):
      raise ValueError(f"key must be a ProvingKey, got {type(self.key).__name__}; load it with groth16.read_zkey")
    if isinstance(self.witnesses, (str, bytes)) or not isinstance(self.witnesses, Sequence) or not self.witnesses:
      raise ValueError("witnesses must be a list or tuple of at least one witness, path or function; for one partition pass [witness]")
    if self.blindings is not None and len(self.blindings) != len(self.witnesses):
      raise ValueError(f"{len(self.witnesses)} witnesses need as many blindings, got {len(self.blindings)}: pass None to draw them")
    if self.deadline_seconds is not None and not self.deadline_seconds > 0:
      raise ValueError(f"deadline_seconds must be positive or None, got {self.deadline_seconds}")
    return self


@dataclasses.dataclass(frozen=True, eq=False)
class JobResult:
  """P proofs in the order of the witnesses.

  encoded: their 192-byte encodings (formats.points), one after the other. public: the public inputs of each, as a verifier takes them.
  times: gaps.PartitionTimes of every attempt. retries: attempts that had to be repeated.
  """
  job_id: str
  number: int
  proofs: list
  encoded: bytes
  public: list
  times: list
  retries: int


class JobFuture(concurrent.futures.Future):
  """The future of a JobResult. `cancel()` cancels the job at whatever stage it is; its result is then JobCancelled."""

  def __init__(self, number, job_id, cancel):
    super().__init__()
    self.number, self.job_id, self._cancel_job = number, job_id, cancel
    self.set_running_or_notify_cancel()        # only the engine ends it

  def cancel(self):
    """Cancels the job; returns whether that came before its end."""
    return self._cancel_job(self)


class State(enum.Enum):
  """Where a partition is."""
  WAITING = "waiting"                          # for admission
  SYNTHESIS = "synthesis"
  QUEUED = "queued"
  DISPATCHED = "dispatched"                    # taken by a device's thread
  ON_DEVICE = "on device"
  FINISHING = "finishing"
  PROVED = "proved"                            # verified, or waiting for it
  GIVEN_UP = "given up"


class Partition:
  """One attempt at one proof, on its way through the engine. Mutable, guarded by the engine's lock."""

  def __init__(self, running, index, attempt=0):
    self.running, self.index, self.attempt = running, index, attempt
    self.state = State.WAITING
    self.host = self.device_memory = self.resident = self.device = None
    self.witness = self.public = self.proof = self.encoded = self.pending = None
    self.verified, self.dispatch_ns, self.arrived_ns, self.last_output_ns = False, 0, 0, 0
    self.started = threading.Lock()             # taken by the first stage that begins, of those that begin at once
    self.events = []

  @property
  def order(self):
    """Smaller goes first; no two attempts in an engine have the same."""
    return -self.running.job.priority, self.running.number, self.index, self.attempt

  @property
  def source(self):
    return self.running.job.witnesses[self.index]

  @property
  def blinding(self):
    given = self.running.job.blindings
    return given[self.index] if given is not None and self.attempt == 0 else None

  @property
  def where(self):
    """The arguments of Timeline.record that name it."""
    return {"job": self.running.number, "partition": self.index, "attempt": self.attempt, "device": self.device}

  def release(self):
    """Gives back memory and drops the secrets. Harmless when repeated."""
    for reservation in (self.host, self.device_memory):
      if reservation is not None:
        reservation.release()
    self.host = self.device_memory = self.witness = self.pending = None


class Running:
  """A job in an engine."""

  def __init__(self, job, number, cancel):
    self.job, self.number = job, number
    self.future = JobFuture(number, job.job_id, cancel)
    self.submitted = time.monotonic()
    self.deadline = None if job.deadline_seconds is None else self.submitted + job.deadline_seconds
    self.over = False                           # has a result or an error; what is left of it only gives back memory
    self.latest = [Partition(self, index) for index in range(len(job.witnesses))]
    self.events = []                            # of attempts that were replaced
    self.retries = 0
