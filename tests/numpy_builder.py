"""A kernel builder that runs: NumPy over all threads of a launch at once, so that the control flow of kernels is tested without a GPU.

Threads run in lockstep under a mask of active ones. It is stricter than a GPU: an index out of range, two threads that write one word in
one store, and a barrier in a branch that not all threads of a block take are errors. Outputs start as garbage.
"""
import jax
import numpy as np

from zkjax.ops.gpu import simt
from zkjax.ops.gpu.program import Builder, Flag, Word

GARBAGE = 0xdeadbeef


def launch(program, inputs, outputs, num_blocks, shared=()):
  """As `simt.launch`, on concrete arrays: loops of JAX around it need `jax.disable_jit`."""
  results = [np.full(shape, GARBAGE, np.uint32) for shape in outputs]
  memory = [Shared(np.full((num_blocks,) + tuple(shape), GARBAGE, np.uint32)) for shape in shared]
  program(NumpyBuilder(num_blocks), *map(np.asarray, inputs), *results, *memory)
  return [jax.numpy.asarray(v) for v in results]


class Shared:
  """Shared memory: the words of every block."""

  def __init__(self, words):
    self.words = words


class NumpyBuilder(Builder):
  """Raw words are uint32[threads], raw flags bool[threads]."""

  def __init__(self, num_blocks):
    self.threads = num_blocks * simt.THREADS
    self.mask = np.ones(self.threads, bool)

  def constant(self, value):
    return np.full(self.threads, value, np.uint32)

  def binary(self, op, a, b):
    safe = np.where(self.mask, b, np.uint32(1))
    operators = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
                 "shl": np.left_shift, "shr": np.right_shift, "div": np.floor_divide, "rem": np.remainder}
    if op in ("shl", "shr") and np.any(safe >= 32):
      raise ValueError("a shift by 32 or more is undefined")
    return operators[op](a, safe if op in ("div", "rem", "shl", "shr") else b)

  def compare(self, op, a, b):
    return {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal}[op](a, b)

  def logic(self, op, a, b):
    return {"and": np.logical_and, "or": np.logical_or}[op](a, b)

  def invert(self, a):
    return ~a

  def choose(self, flag, a, b):
    return np.where(flag, a, b)

  def execute(self, operation, words):
    lanes, n = np.flatnonzero(self.mask), operation.modulus.words
    data = np.ascontiguousarray(np.stack(words, 1)[lanes]).tobytes()
    width, count, out = 4 * n, operation.num_inputs, []
    for start in range(0, len(data), width * count):
      values = [int.from_bytes(data[start + k * width:start + (k + 1) * width], "little") for k in range(count)]
      out.append(operation.evaluate(*values).to_bytes(4 * operation.num_outputs, "little"))
    results = np.full((self.threads, operation.num_outputs), GARBAGE, np.uint32)
    results[lanes] = np.frombuffer(b"".join(out), np.uint32).reshape(-1, operation.num_outputs)
    return list(results.T)

  def load(self, ref, *index):
    array, index = self._place(ref, index)
    return Word(self, np.where(self.mask, array[index], np.uint32(GARBAGE)))

  def store(self, ref, value, *index):
    array, index = self._place(ref, index)
    flat = np.ravel_multi_index(index, array.shape)[self.mask]
    if len(np.unique(flat)) != len(flat):
      raise ValueError("two threads write the same word")
    array.reshape(-1)[flat] = value.raw[self.mask]

  def load_row(self, ref, row, first, count):
    if first % 4 or count % 4 or ref.shape[1] % 4:
      raise ValueError("rows are read four words at a time")
    return tuple(self.load(ref, row, first + k) for k in range(count))

  def store_row(self, ref, row, first, words):
    if first % 4 or len(words) % 4 or ref.shape[1] % 4:
      raise ValueError("rows are written four words at a time")
    for k, word in enumerate(words):
      self.store(ref, word, row, first + k)

  def repeat(self, count, carried, body):
    outside, limit, i = self.mask, count.raw if isinstance(count, Word) else self.constant(count), 0
    while np.any(outside & (limit > i)):
      self.mask = outside & (limit > i)
      result = body(Word(self, self.constant(i)), carried)
      carried = self._merged(result, carried)
      i += 1
    self.mask = outside
    return carried

  def when(self, flag, then, otherwise=None):
    outside, chosen = self.mask, flag.raw
    self.mask = outside & chosen
    first = then() if otherwise is not None or self.mask.any() else None
    self.mask = outside & ~chosen
    second = otherwise() if otherwise is not None else None
    self.mask = outside
    return None if otherwise is None else jax.tree.map(lambda a, b: type(a)(self, np.where(chosen, a.raw, b.raw)), first, second)

  def thread(self):
    return Word(self, np.arange(self.threads, dtype=np.uint32) % np.uint32(simt.THREADS))

  def block(self):
    return Word(self, np.arange(self.threads, dtype=np.uint32) // np.uint32(simt.THREADS))

  def barrier(self):
    blocks = self.mask.reshape(-1, simt.THREADS)
    if np.any(blocks.any(1) & ~blocks.all(1)):
      raise ValueError("a barrier that some threads do not reach")

  def any_thread(self, flag):
    self.barrier()
    return Flag(self, np.repeat((flag.raw & self.mask).reshape(-1, simt.THREADS).any(1), simt.THREADS))

  def _merged(self, new, old):
    if jax.tree.structure(new) != jax.tree.structure(old):
      raise ValueError(f"a loop gives {jax.tree.structure(new)}, expected {jax.tree.structure(old)}")
    return jax.tree.map(lambda a, b: type(b)(self, np.where(self.mask, a.raw, b.raw)), new, old)

  def _place(self, ref, index):
    """The array and its full index; inactive threads point to the first word of what they may see."""
    raw = [i.raw.astype(np.int64) if isinstance(i, Word) else np.full(self.threads, i, np.int64) for i in index]
    array = ref
    if isinstance(ref, Shared):
      array, raw = ref.words, [np.arange(self.threads) // simt.THREADS] + raw
    for value, size in zip(raw, array.shape, strict=True):
      if np.any((value >= size) & self.mask):
        raise IndexError(f"index {value[self.mask].max()} in an axis of {size}")
    return array, tuple(np.where(self.mask, v, 0) for v in raw)


