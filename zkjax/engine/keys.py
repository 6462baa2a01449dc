"""Which proving keys are resident on a device: loaded once, kept under its byte budget; the least recently used one makes room."""
import contextlib
import dataclasses
import threading

import jax

from zkjax.groth16.prove import prepare_on_device
from zkjax.groth16.verify import prepare
from zkjax.ops.msm import on_gpu

_WORD_BYTES = 32                              # of a scalar
_POLL_SECONDS = 0.05
_LIVE_VECTORS = 12                            # scalars per row of the domain that a proof keeps at once: three vectors, their transforms


def key_bytes(key):
  """An estimate of the memory of a resident key: on a GPU of its tables, which take what is free, up to a dozen times their points; else of
  its arrays, and the prepared queries, twice as large."""
  return key.device_bytes() or 3 * sum(leaf.nbytes for leaf in jax.tree.leaves(key))


def partition_bytes(key):
  """(host, device): estimates of the memory of one proof in flight. Host: the witness; device: the witness and the quotient's vectors."""
  witness = key.num_wires * _WORD_BYTES
  return witness, witness + (_LIVE_VECTORS << key.domain.log2_size) * _WORD_BYTES


def on_device(device):
  """A context in which JAX computes on a device; none where it would anyway, because in another context every program is compiled anew."""
  return contextlib.nullcontext() if is_default(device) else jax.default_device(device)


def is_default(device):
  """Whether JAX computes on this device when nobody says where."""
  return jax.config.jax_default_device is None and device == jax.devices()[0]


class Resident:
  """A key on a device. `key` is the engine's copy: dropping it frees the prepared queries, whoever else holds the original."""

  def __init__(self, original, key, reservation):
    self.original, self.key, self.reservation, self.users = original, key, reservation, 0


class KeyStore:
  """The resident keys of one device. Args: device: jax.Device. budget: ByteBudget, shared with the partitions on the device."""

  def __init__(self, device, budget):
    self.device, self.budget = device, budget
    self._resident = {}                         # by identity of the original, in the order of use, the latest last
    self._lock, self._loading = threading.Lock(), threading.Lock()
    self.loads = self.evictions = 0

  def has(self, key):
    """Whether the key is resident."""
    return id(key) in self._resident

  def __len__(self):
    return len(self._resident)

  def acquire(self, key, given_up=lambda: False):
    """The Resident of a key, loaded if need be, for one more user; None once `given_up()`.

    Evicts idle keys to make room, and waits where that is not enough. A failure to load is raised and leaves nothing behind.
    """
    with self._loading:
      if (found := self._use(key)) is not None:
        return found
      reservation = self.reserve(key_bytes(key), given_up)
      if reservation is None:
        return None
      try:
        copy = dataclasses.replace(key)
        with on_device(self.device):
          _prepare(copy)
      except BaseException:
        reservation.release()
        raise
      with self._lock:
        self._resident[id(key)] = Resident(key, copy, reservation)
        self.loads += 1
      return self._use(key)

  def reserve(self, size, given_up=lambda: False):
    """A Reservation of device memory, for which idle keys are evicted; None once `given_up()`."""
    while not given_up():
      self.make_room(size)
      # a key that becomes idle releases nothing, so that waiting for releases alone could take for ever
      if (reservation := self.budget.reserve(size, timeout=_POLL_SECONDS, given_up=given_up)) is not None:
        return reservation
    return None

  def _use(self, key):
    with self._lock:
      found = self._resident.pop(id(key), None)
      if found is not None:
        self._resident[id(key)] = found
        found.users += 1
      return found

  def release(self, resident):
    """One user less."""
    with self._lock:
      resident.users -= 1

  def evict(self, key):
    """Frees an idle key; returns False if it is not resident or in use."""
    with self._lock:
      found = self._resident.get(id(key))
      if found is None or found.users:
        return False
      del self._resident[id(key)]
      self.evictions += 1
    found.reservation.release()
    return True

  def make_room(self, size=None):
    """Evicts idle keys, the least recently used one first, until `size` bytes are free (None: all of them)."""
    total = self.budget.total
    for found in list(self._resident.values()):
      if size is not None and (total is None or self.budget.reserved + size <= total):
        return
      self.evict(found.original)


def _prepare(key):
  """What the prover will use of a key, made now."""
  if on_gpu():
    prepare_on_device(key)
  else:
    _ = key.bases


class Verifiers:
  """Prepared verifying keys, one for each proving key that is in use."""

  def __init__(self, most=64):
    self._prepared, self._lock, self._most = {}, threading.Lock(), most

  def of(self, key):
    """The PreparedVerifyingKey of a ProvingKey. A key without phase-2 contribution is for whoever loaded it to refuse."""
    with self._lock:
      found = self._prepared.pop(id(key), None)
      found = found or (key, prepare(key.vk, allow_uncontributed=True))       # holds the key, so that its identity is not given out again
      self._prepared[id(key)] = found
      while len(self._prepared) > self._most:
        self._prepared.pop(next(iter(self._prepared)))
      return found[1]

  def forget(self, key):
    """Drops what was prepared."""
    with self._lock:
      self._prepared.pop(id(key), None)
