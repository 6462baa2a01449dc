"""Rank-1 constraint systems on the device: (A w) * (B w) = C w, row by row, with sparse A, B, C.

The rows that Groth16 adds for the constant and the public wires (row num_constraints + s: wire s times 0 = 0, s = 0..num_public) are
part of A, so that the public part of a proof cannot be cancelled by unused wires; see `constraints_from_rows`.
"""
import functools

import jax
import jax.numpy as jnp
import numpy as np

from zkjax.groth16.types import Constraints, SparseMatrix, StackedConstraints, UnsatisfiedError
from zkjax.ops import bls12_381
from zkjax.ops.field import Fr

_WORDS = 8


def constraints_from_rows(a_rows, b_rows, c_rows, num_wires, num_public):
  """Constraints from rows given as {wire: integer coefficient} dicts, one per constraint and matrix, plus the input rows of Groth16.

  Args:
    a_rows, b_rows, c_rows: equally long sequences of dicts; coefficients are reduced mod r.
    num_wires: number of wires, the constant wire 0 included.
    num_public: number of public wires, which are wires 1..num_public.

  Raises:
    ValueError: matrices of different lengths, a wire out of range, more public wires than wires.
  """
  rows = {"A": list(a_rows), "B": list(b_rows), "C": list(c_rows)}
  if len({len(v) for v in rows.values()}) != 1:
    raise ValueError("A, B and C need one row per constraint, got " + ", ".join(f"{len(v)} rows of {k}" for k, v in rows.items()))
  if not 0 <= num_public < num_wires:
    raise ValueError(f"{num_wires} wires hold the constant and up to {num_wires - 1} public wires, got num_public = {num_public}")
  for name, matrix in rows.items():
    for i, row in enumerate(matrix):
      outside = [wire for wire in row if not 0 <= wire < num_wires]
      if outside:
        raise ValueError(f"row {i} of {name} names wire {outside[0]}, wires are 0..{num_wires - 1}")
  inputs = [{wire: 1} for wire in range(num_public + 1)]
  num_rows = len(rows["A"]) + len(inputs)
  return Constraints(_sparse(rows["A"] + inputs), _sparse(rows["B"]), _sparse(rows["C"]), num_rows, num_wires, num_public)


def _sparse(rows):
  entries = [(i, wire, value) for i, row in enumerate(rows) for wire, value in row.items()]
  column = lambda k: np.array([e[k] for e in entries], dtype=np.int32)
  return SparseMatrix(column(0), column(1), Fr.from_ints([e[2] for e in entries]))


def evaluate(constraints, witness, size):
  """(A w, B w, C w) as Fr[size] each, rows behind num_rows are 0. Where C is not known, C w := (A w)(B w).

  Args:
    constraints: Constraints, or what `stacked(size)` made of them.
    witness: Fr[num_wires].
    size: of the evaluation domain, at least num_rows. Static under jit.

  Cost: one product for each non-zero entry and one gather of 32 bytes; sums are exact integers, reduced once a row.
  """
  if size < constraints.num_rows:
    raise ValueError(f"{constraints.num_rows} rows do not fit a domain of {size} points")
  if isinstance(constraints, StackedConstraints):
    every = matrix_vector(constraints.matrix, witness, constraints.num_matrices * size).reshape((constraints.num_matrices, size))
    vectors = [every[k] for k in range(constraints.num_matrices)]
  else:
    vectors = [matrix_vector(m, witness, size) for m in (constraints.a, constraints.b, constraints.c) if m is not None]
  az, bz, *cz = vectors
  return az, bz, cz[0] if cz else az * bz


def matrix_vector(matrix, witness, size):
  """M w as Fr[size]: gather, multiply, sum by rows."""
  if not matrix.rows.shape[0]:
    return Fr(jnp.zeros((_WORDS, size), jnp.uint32))
  terms = matrix.values * witness[matrix.wires]
  with jax.enable_x64(True):
    sums = jax.ops.segment_sum(terms.limbs.T.astype(jnp.uint64), matrix.rows, num_segments=size)
    low, high = _carried(sums.T)
  # low + high 2^256: as Montgomery forms, low is below 2^256 < 3 r, and high 2^256 is the product of high and 2^512 mod r, divided by 2^256
  return _below_r(low) + Fr(high) * Fr(jnp.broadcast_to(_column(pow(2, 512, bls12_381.R)), high.shape))


def _carried(sums):
  """uint64[8, n], words with carries, to uint32[8, n] and the overflow as a field element's words: at most 2^31 terms of 32 bits fit."""
  words, carry = [], jnp.zeros_like(sums[0])
  for k in range(_WORDS):
    total = sums[k] + carry
    words.append(total.astype(jnp.uint32))
    carry = total >> np.uint64(32)
  zero = jnp.zeros_like(words[0])
  return jnp.stack(words), jnp.stack([carry.astype(jnp.uint32)] + [zero] * (_WORDS - 1))


def _below_r(words):
  """Fr of any uint32[8, n]: 2^256 < 3 r, so that r is subtracted at most twice."""
  with jax.enable_x64(True):
    for _ in range(2):
      borrow, out = jnp.zeros(words.shape[1:], jnp.int64), []
      for k in range(_WORDS):
        d = words[k].astype(jnp.int64) - np.int64((bls12_381.R >> (32 * k)) & 0xffffffff) + borrow
        out.append(d.astype(jnp.uint32))
        borrow = d >> np.int64(32)
      words = jnp.where(borrow < 0, words, jnp.stack(out))
  return Fr(words)


def _column(value):
  return jnp.asarray([(value >> (32 * k)) & 0xffffffff for k in range(_WORDS)], jnp.uint32)[:, None]


@functools.partial(jax.jit, static_argnames="size")
def _violations(constraints, witness, size):
  az, bz, cz = evaluate(constraints, witness, size)
  return ~(az * bz).equals(cz)


def first_unsatisfied(constraints, witness):
  """The index of the first violated constraint, or None. Needs C: a zkey does not hold it, an r1cs file does.

  Raises ValueError for a witness of another length or constraints without C.
  """
  if constraints.c is None:
    raise ValueError("these constraints come without the C matrix (from a zkey): read the circuit's .r1cs file to check a witness")
  if witness.shape != (constraints.num_wires,):
    raise ValueError(f"the circuit has {constraints.num_wires} wires, the witness has shape {witness.shape}: it belongs to another circuit")
  violated = np.flatnonzero(np.asarray(_violations(constraints, witness, constraints.num_rows)))
  return int(violated[0]) if len(violated) else None


def check_satisfied(constraints, witness):
  """Raises UnsatisfiedError, which names the first violated constraint and no value of the witness."""
  constraint = first_unsatisfied(constraints, witness)
  if constraint is not None:
    count = constraints.num_rows - constraints.num_public - 1
    raise UnsatisfiedError(f"the witness violates constraint {constraint} (counted from 0) of {count}", constraint=constraint)
