"""Processes for what is pure Python and long, producers of witnesses and verification: it would take the interpreter from the prover.

Each call has a process to itself, so that one that dies fails its own call and no other; its place is taken by a new one. Large arrays in
a result come back in memory that has no name and that both processes see, where the system has that (Linux): through a pipe a witness of
32 MB would take the interpreter a thousand times.
"""
import contextlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.reduction
import os
import pickle
import queue
import subprocess
import sys
import traceback

import jax
import numpy as np

_LARGE = 1 << 16                              # bytes of arrays from which on they do not go through the pipe
_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from zkjax.engine import processes; processes.serve(int(sys.argv[1]))"


class ProcessDied(RuntimeError):
  """A process ended in the middle of a call: it was killed, ran out of memory, or the function called `os._exit`."""


class Processes:
  """So many processes that import zkjax, ready for calls when the constructor returns: that takes seconds.

  JAX computes on the CPU in them.

  Args: script: whether calls may name functions of the script that runs. Its processes import it then: it keeps what it does under
  `if __name__ == "__main__":`.
  """

  def __init__(self, count, script=True):
    self._script = script
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
        reason = ': a script that uses them needs `if __name__ == "__main__":`' if script else ""
        raise ProcessDied(f"processes could not be started{reason}") from None
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
      worker[0]()
      worker = self._start()
      raise
    finally:
      self._idle.put(worker)

  def close(self):
    """Ends the processes; calls must have ended. Harmless when repeated."""
    while self._count:
      wait, connection = self._idle.get()
      connection.close()
      wait()
      self._count -= 1

  def _start(self):
    """A function that waits for the end of a new process, and the connection to it."""
    here, there = self._context.Pipe()
    if self._script:
      process = self._context.Process(target=_serve, args=(there,), name="zkjax-process", daemon=True)
      process.start()
      wait = process.join
    else:
      number = there.fileno()
      wait = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(number), *sys.path], pass_fds=[number], stdin=subprocess.DEVNULL).wait
    there.close()
    return wait, here


def _ready():
  """Answers."""


def _call(worker, data):
  """The result of one call. data: the pickled function and arguments, or a function without arguments."""
  _, connection = worker
  try:
    connection.send_bytes(data if isinstance(data, bytes) else pickle.dumps((data, ())))
    answer, sizes = connection.recv()
    arrays = _received(connection, sizes) if sizes else None
  except (EOFError, OSError):
    raise ProcessDied("the process ended in the middle of the call") from None
  failed, value = pickle.loads(answer, buffers=arrays)
  if failed:
    raise value
  return value


def serve(number):
  """The life of a process that was given an open connection by its number."""
  _serve(multiprocessing.connection.Connection(number))


def _serve(connection):
  """The life of a process: calls, until the other end is closed."""
  jax.config.update("jax_platforms", "cpu")     # the devices belong to the process that started this one
  with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
    while True:
      answer, arrays = _answer(connection.recv_bytes())
      connection.send((answer, [len(array) for array in arrays]))
      if arrays:
        _send(connection, arrays)


def _answer(data):
  """(failed, value), pickled, and the large arrays in it, as bytes."""
  try:
    function, args = pickle.loads(data)
    value, arrays = function(*args), []
    apart = lambda buffer: buffer.raw().nbytes < _LARGE or arrays.append(buffer.raw())
    return pickle.dumps((False, value), protocol=5, buffer_callback=apart if hasattr(os, "memfd_create") else None), arrays
  except BaseException as error:
    error.add_note("".join(traceback.format_exception(error)))
    try:
      answer = pickle.dumps((True, error))
      pickle.loads(answer)
      return answer, []
    except Exception:                           # an exception that cannot travel, or not arrive
      return pickle.dumps((True, RuntimeError(f"{type(error).__name__}, which cannot be pickled, was raised in a process"))), []


def _send(connection, arrays):
  """Hands over memory without a name that holds the arrays, one behind the other."""
  with open(os.memfd_create("zkjax"), "wb", buffering=0) as file:
    for array in arrays:
      while array:
        array = array[file.write(array):]
    multiprocessing.reduction.send_handle(connection, file.fileno(), os.getppid())


def _received(connection, sizes):
  """The arrays of `_send`, copied."""
  with open(multiprocessing.reduction.recv_handle(connection), "rb", buffering=0) as file:
    file.seek(0)
    arrays = [np.empty(size, np.uint8) for size in sizes]
    for array in map(memoryview, arrays):
      while array:
        if not (count := file.readinto(array)):
          raise EOFError
        array = array[count:]
  return arrays
