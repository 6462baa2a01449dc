"""How an engine talks to the prover: begin a proof, be told when the device has done its part, finish it. Tests put faults here."""
import threading

import jax

from zkjax.groth16.prove import finish, start, start_batch
from zkjax.groth16.types import Blinding


class Prover:
  """The Groth16 prover.

  Args: threads: stages of a proof that may run at once on the CPU backend; None as in `prove.start`. 1 runs them one after the
  other, so that the time of each is its own: the mode called attribution.
  """

  def __init__(self, threads=None):
    self.threads = threads

  def start(self, key, witnesses, blindings, spans):
    """Dispatches the proofs of `witnesses` and returns one pending proof for each.

    Args: blindings: None where one is to be drawn. spans: for each proof a function that makes a context manager of a stage's name.
    """
    blindings = [Blinding.random() if blinding is None else blinding for blinding in blindings]
    if len(witnesses) == 1:
      return [start(key, witnesses[0], blindings[0], span=spans[0], threads=self.threads)]
    return start_batch(key, witnesses, blindings, spans=spans, threads=self.threads)

  def when_ready(self, pending, callback):
    """Calls `callback()` once, on any thread, when nothing of a pending proof runs on the device or reads its inputs any more: also after
    a failure, which `finish` raises."""
    if pending.first is not None:              # on a GPU, where sums are rows that the device has been told to write
      rows = [total.row for total in pending.sums.values() if total.row is not None]
      threading.Thread(target=_wait, args=(rows, callback), name="zkjax-wait", daemon=True).start()
      return
    left, lock = len(pending.sums), threading.Lock()

    def one_less(_):
      nonlocal left
      with lock:
        left -= 1
        last = not left
      if last:
        callback()
    for future in list(pending.sums.values()):
      future.add_done_callback(one_less)

  def begun_ns(self, pending):
    """A time.perf_counter_ns() before which the device cannot have had much of a pending proof to do, or 0 where stages tell.

    An idle device begins somewhere within the host's call that queues the first kernels: the middle of it is half of that off at most.
    """
    return pending.begun_ns

  def finish(self, pending):
    """The Proof of a pending one that is ready."""
    return finish(pending)


def _wait(rows, callback):
  try:
    jax.block_until_ready(rows)
  except Exception:                            # `finish` meets it again and says so
    pass
  callback()
