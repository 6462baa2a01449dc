"""Bytes that may be in use at once, reserved before work is queued: memory is never raced for."""
import threading
import time


class BudgetError(ValueError):
  """A request that could never be granted."""


class ByteBudget:
  """A number of bytes of which parts are reserved and released by any thread.

  Args: total: bytes, or None for no bound (what is reserved is counted all the same). name: for messages. on_release: called without
  arguments after every release, outside the lock, so that others who wait for something of which memory is a part can look again.
  """

  def __init__(self, total=None, name="memory", on_release=None):
    if total is not None and total < 0:
      raise ValueError(f"the budget of {name} must not be negative, got {total}")
    self.total, self.name = total, name
    self._reserved = self._peak = 0
    self._changed, self._on_release = threading.Condition(), on_release

  @property
  def reserved(self):
    """Bytes in use."""
    return self._reserved

  @property
  def peak(self):
    """The most bytes that were ever in use."""
    return self._peak

  def check(self, size):
    """Raises BudgetError if `size` bytes could not be reserved even if nothing else were, ValueError for a negative size."""
    if size < 0:
      raise ValueError(f"a reservation must not be negative, got {size}")
    if self.total is not None and size > self.total:
      raise BudgetError(f"{size} bytes of {self.name} were asked for, {self.total} is all there is: raise the budget or prove less at once")

  def try_reserve(self, size):
    """A Reservation, or None if there is not enough now. Raises as `check`."""
    self.check(size)
    with self._changed:
      return self._take(size)

  def reserve(self, size, timeout=None, given_up=lambda: False):
    """A Reservation as soon as there is enough; None after `timeout` seconds or once `given_up()`, which `wake` makes it ask again."""
    self.check(size)
    end = None if timeout is None else time.monotonic() + timeout
    with self._changed:
      while not given_up():
        if (taken := self._take(size)) is not None:
          return taken
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
          return None
        self._changed.wait(left)
    return None

  def wake(self):
    """Makes everybody who waits look again."""
    with self._changed:
      self._changed.notify_all()

  def _take(self, size):
    if self.total is not None and self._reserved + size > self.total:
      return None
    self._reserved += size
    self._peak = max(self._peak, self._reserved)
    return Reservation(self, size)

  def _give(self, reservation, size):
    with self._changed:
      size = reservation.size if size is None else size
      if not 0 <= size <= reservation.size:
        raise ValueError(f"{size} bytes cannot be released of {reservation.size}")
      reservation.size -= size
      self._reserved -= size
      self._changed.notify_all()                # all: a small request may fit where the first in line does not
    if size and self._on_release:
      self._on_release()


class Reservation:
  """`size` bytes of a budget, until they are released."""

  def __init__(self, budget, size):
    self._budget, self.size = budget, size

  def release(self, size=None):
    """Gives back `size` bytes, or all that is left; giving back nothing, or twice all, is harmless."""
    self._budget._give(self, size)

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self.release()
