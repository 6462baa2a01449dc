"""The end of a proof, on a pool of threads: point arithmetic on the host, 192 bytes, verification, and the job's future."""
import concurrent.futures

from zkjax.engine.jobs import EngineError, RejectedError, State
from zkjax.engine.keys import Verifiers
from zkjax.engine.processes import Processes
from zkjax.groth16.formats.points import proof_to_bytes
from zkjax.groth16.verify import verify, verify_batch
from zkjax.ops.msm import on_gpu


class Finisher:
  """Finishes, serializes and verifies. Args: core: Core. prover: Prover."""

  def __init__(self, core, prover):
    self.core, self.prover, self.verifiers = core, prover, Verifiers()
    self._pool = concurrent.futures.ThreadPoolExecutor(core.config.finish_threads, "zkjax-finish")
    wanted = on_gpu() if core.config.verify_processes is None else core.config.verify_processes
    self._processes = Processes(core.config.finish_threads, script=False) if core.config.verify and wanted else None
    self._run = self._processes.run if self._processes else lambda function, *args: function(*args)

  def submit(self, partition, worker):
    """Finishes a partition whose device is done, later, on the pool."""
    with self.core.changed:
      if partition.running.over:
        return self.core.drop(partition)
      partition.state = State.FINISHING
    try:
      self._pool.submit(self._guarded, partition, worker)
    except RuntimeError:                       # the pool is closed: so is the engine, and the job has ended
      self.core.drop(partition)

  def close(self):
    """Waits for what was submitted."""
    self._pool.shutdown(wait=True)
    if self._processes:
      self._processes.close()

  def _guarded(self, partition, worker):
    """Whatever goes wrong, the future ends."""
    try:
      self._finish(partition, worker)
    except BaseException as error:
      where = f"job {partition.running.number}, partition {partition.index}"
      self.core.fail(partition.running, EngineError(f"{where}: finishing failed ({type(error).__name__})", error))
      self.core.drop(partition)

  def _finish(self, partition, worker):
    core, running = self.core, partition.running
    if running.over:
      return core.drop(partition)
    core.mark(partition, "FINISH_START")
    try:
      partition.proof = self.prover.finish(partition.pending)
    except BaseException as error:
      return worker.retry(partition, error)
    finally:
      partition.pending = None
      core.mark(partition, "FINISH_END")
    core.mark(partition, "SERIALIZE_START")
    partition.encoded = proof_to_bytes(partition.proof)
    core.mark(partition, "SERIALIZE_END")
    with core.changed:
      if running.over:
        return core.drop(partition)
      partition.state = State.PROVED
      whole = all(other.state is State.PROVED for other in running.latest)
    if whole:                                   # true for one thread only: the one that proved the last
      self._verify(running)

  def _verify(self, running):
    bad = self._rejected(running) if self.core.config.verify else []
    for partition in bad:
      self.core.retry(partition, RejectedError(
          f"job {running.number}, partition {partition.index}: the proof does not verify, nor did one before with another blinding"))
    if not bad:
      self.core.complete(running)

  def _rejected(self, running):
    """The partitions whose proofs are false: all are verified as one batch, and singly if that fails. Attempts that passed stay passed."""
    core, fresh = self.core, [partition for partition in running.latest if not partition.verified]
    for partition in fresh:
      core.mark(partition, "VERIFY_START")
    vk = self.verifiers.of(running.job.key)
    accepted = self._holds(verify_batch, vk, [p.proof for p in fresh], [p.public for p in fresh])
    for partition in fresh:
      partition.verified = accepted or self._holds(verify, vk, partition.proof, partition.public)
      if not accepted:
        core.mark(partition, "VERIFY_END")
    if accepted:
      for partition in fresh:
        core.mark(partition, "VERIFY_END")
    return [partition for partition in fresh if not partition.verified]

  def _holds(self, check, *args):
    """Whether a verification passes; what is malformed, such as a point that a fault took off the curve, does not."""
    try:
      return self._run(check, *args)
    except ValueError:
      return False
