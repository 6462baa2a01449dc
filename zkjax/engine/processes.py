"""Processes for what is pure Python and long, producers of witnesses and verification: it would take the interpreter from the prover.

Each call has a process to itself, so that one that dies fails its own call and no other; its place is taken by a new one.
"""
import contextlib
import multiprocessing
import pickle
import queue
import traceback

import jax


class ProcessDied(RuntimeError):
  """A process ended in the middle of a call: it was killed, ran out of memory, or the function called `os._exit`."""


class Processes:
  """So many processes that import zkjax, ready for calls when the constructor returns: that takes seconds.

  They are spawned: a script that uses them keeps what it does under `if __name__ == "__main__":`. JAX computes on the CPU in them.
  """

  def __init__(self, count):
    self._context = multiprocessing.get_context("spawn")
    self._idle = queue.SimpleQueue()
    self._count = count
    workers = [self._start() for _ in range(count)]
    for worker in workers:
      try:
        _call(worker, _ready)
      except ProcessDied:
        for _, connection in workers:
          connection.close()
        raise ProcessDied('processes could not be started: a script that uses them needs `if __name__ == "__main__":`') from None
      self._idle.put(worker)

  def run(self, function, *args):
    """function(*args) in one of the processes, once one is free. What it raises is raised here.

    Raises: ProcessDied; or what pickle says of a function or argument that cannot be sent, or of a result that cannot be sent back.
    """
    data = pickle.dumps((function, args))
    worker = self._idle.get()
    try:
      return _call(worker, data)
    except ProcessDied:
      worker[0].join()
      worker = self._start()
      raise
    finally:
      self._idle.put(worker)

  def close(self):
    """Ends the processes; calls must have ended. Harmless when repeated."""
    while self._count:
      process, connection = self._idle.get()
      connection.close()
      process.join()
      self._count -= 1

  def _start(self):
    here, there = self._context.Pipe()
    process = self._context.Process(target=_serve, args=(there,), name="zkjax-process", daemon=True)
    process.start()
    there.close()
    return process, here


def _ready():
  """Answers."""


def _call(worker, data):
  """The result of one call. data: the pickled function and arguments, or a function without arguments."""
  _, connection = worker
  try:
    connection.send_bytes(data if isinstance(data, bytes) else pickle.dumps((data, ())))
    answer = connection.recv_bytes()
  except (EOFError, OSError):
    raise ProcessDied("the process ended in the middle of the call") from None
  failed, value = pickle.loads(answer)
  if failed:
    raise value
  return value


def _serve(connection):
  """The life of a process: calls, until the other end is closed."""
  jax.config.update("jax_platforms", "cpu")     # the devices belong to the process that started this one
  with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
    while True:
      connection.send_bytes(_answer(connection.recv_bytes()))


def _answer(data):
  """(failed, value), pickled."""
  try:
    function, args = pickle.loads(data)
    return pickle.dumps((False, function(*args)), protocol=pickle.HIGHEST_PROTOCOL)
  except BaseException as error:
    error.add_note("".join(traceback.format_exception(error)))
    try:
      answer = pickle.dumps((True, error))
      pickle.loads(answer)
      return answer
    except Exception:                           # an exception that cannot travel, or not arrive
      return pickle.dumps((True, RuntimeError(f"{type(error).__name__}, which cannot be pickled, was raised in a process")))
