"""Circuits and witnesses of circom: .r1cs (version 1) and .wtns (version 2). All integers are little-endian.

r1cs, see container.py for the frame; circom writes the sections in the order 2, 1, 3.

| section | offset | size | field |
|---|---|---|---|
| 1 header | 0 | 4 | bytes of the prime, 32 |
| | 4 | 32 | r |
| | 36 | 4 | number of wires, the constant included |
| | 40 | 4 | public outputs |
| | 44 | 4 | public inputs |
| | 48 | 4 | private inputs |
| | 52 | 8 | labels |
| | 60 | 4 | constraints |
| 2 constraints | | | per constraint the combinations A, B, C with (A w)(B w) = C w |
| | | 4 | per combination: number of terms, may be 0 |
| | | 36 | per term: wire (4), coefficient (32), plain and below r |
| 3 labels | | 8 | per wire: its label (optional section) |
| 4, 5 | | | custom gates, for PLONK only; kept as they are |

Wires: the constant 1, public outputs, public inputs, private inputs (circom drops unused ones), the rest.

wtns

| section | offset | size | field |
|---|---|---|---|
| 1 header | 0 | 4 | bytes of the prime, 32 |
| | 4 | 32 | r |
| | 36 | 4 | number of wires |
| 2 values | 0 | 32 each | plain and below r; the first is 1 |
"""
import array
import dataclasses
from typing import Optional

import numpy as np

from zkjax.groth16.formats.checks import check_below, first_not_below
from zkjax.groth16.formats.container import read_container, write_container
from zkjax.groth16.types import Constraints, SparseMatrix
from zkjax.ops.bls12_381 import R
from zkjax.ops.field import Fr

_FIELD_BYTES = 32
_TERM_WORDS = 9                               # a wire and 8 words of coefficient
_R1CS_HEADER_BYTES, _WTNS_HEADER_BYTES = 64, 40
_MAX_COUNT = 2**31 - 1                        # rows and wires are int32


@dataclasses.dataclass(frozen=True, eq=False)
class CircomR1cs:
  """The content of an .r1cs file, on the host. `constraints()` is what a prover or a setup takes.

  a, b, c: SparseMatrix with int32 rows (constraints) and wires, in file order. labels: uint64[num_wires] or None.
  sections: file order of the sections as (type, None), or (type, bytes) for those kept raw.
  """
  num_wires: int
  num_public_outputs: int
  num_public_inputs: int
  num_private_inputs: int
  num_labels: int
  num_constraints: int
  a: SparseMatrix
  b: SparseMatrix
  c: SparseMatrix
  labels: Optional[np.ndarray] = None
  sections: tuple = ((2, None), (1, None), (3, None))

  @property
  def num_public(self):
    return self.num_public_outputs + self.num_public_inputs

  def constraints(self):
    """The circuit as Groth16 takes it: row num_constraints + s of A has a 1 at wire s, for the constant and every public wire s.

    These input rows (s w) * 0 = 0 keep the polynomials of the public wires linearly independent.

    Raises: ValueError if the circuit uses custom gates, which the constraints do not express.
    """
    if any(kind == 5 and any(data or b"") for kind, data in self.sections):
      raise ValueError("the circuit uses custom gates, which exist in PLONK only; compile it without them")
    inputs = np.arange(self.num_public + 1, dtype=np.int32)
    ones = np.repeat(np.asarray(Fr.from_ints([1]).limbs), len(inputs), axis=1)
    a = SparseMatrix(np.concatenate([self.a.rows, self.num_constraints + inputs]), np.concatenate([self.a.wires, inputs]),
                     Fr(np.concatenate([np.asarray(self.a.values.limbs), ones], axis=1)))
    return Constraints(a, self.b, self.c, num_rows=self.num_constraints + len(inputs), num_wires=self.num_wires,
                       num_public=self.num_public)


def read_r1cs(path):
  """Reads and checks a circuit.

  Returns: CircomR1cs.
  Raises: FormatError for another prime, counts that disagree, a wire out of range, a coefficient >= r, or a damaged file.
  Cost: one pass over the combinations in Python (0.1 us each), the rest in NumPy; about five times the file in memory.
  """
  file = read_container(path, b"r1cs", 1, known=(1, 2, 3, 4, 5))
  header = _read_r1cs_header(file.require(1, "header"))
  a, b, c = _read_constraints(file.require(2, "constraints"), header["num_constraints"], header["num_wires"])
  label_section = file.find(3)
  if label_section is not None:
    label_section.expect_bytes(8 * header["num_wires"], f"the labels of {header['num_wires']} wires")
  labels = None if label_section is None else label_section.data.view("<u8")
  sections = tuple((s.section, None if s.section in (1, 2, 3) else s.data.tobytes()) for s in file.sections)
  return CircomR1cs(**header, a=a, b=b, c=c, labels=labels, sections=sections)


def write_r1cs(path, r1cs):
  """Writes a circuit (CircomR1cs); reading a file and writing it again gives the same bytes.

  Raises: ValueError when counts and arrays disagree. The file at `path` is replaced only when all is written.
  """
  _check_r1cs(r1cs)
  kinds = [kind for kind, _ in r1cs.sections]
  if sorted(k for k in kinds if k in (1, 2, 3)) != ([1, 2] if r1cs.labels is None else [1, 2, 3]):
    raise ValueError(f"sections must name 1, 2 and, with labels, 3 once each, got {kinds}")
  writers = {1: _r1cs_header_bytes, 2: _constraint_words, 3: lambda r: np.asarray(r.labels, "<u8")}
  parts = ((kind, [writers[kind](r1cs) if data is None else data]) for kind, data in r1cs.sections)
  write_container(path, b"r1cs", 1, len(kinds), parts)


def read_wtns(path):
  """Reads and checks a witness.

  Returns: Fr of shape (num_wires,), starting with 1.
  Raises: FormatError for another prime, a count that disagrees, a value >= r, a first value other than 1, or a damaged file.
  """
  file = read_container(path, b"wtns", 2, known=(1, 2))
  header, values = file.require(1, "header"), file.require(2, "values")
  header.expect_bytes(_WTNS_HEADER_BYTES, "the header fields")
  header.expect_field(0, "prime", R, _FIELD_BYTES)
  count = header.u32(36)
  if count == 0:
    raise header.error("a witness has at least the constant 1", 36)
  values.expect_bytes(_FIELD_BYTES * count, f"{count} values")
  words = values.words(0, count, 8)
  check_below(words, R, "value", values, stride=_FIELD_BYTES)
  if words[0, 0] != 1 or words[0, 1:].any():
    raise values.error("the first value must be 1")
  return Fr.from_plain(words.T)


def write_wtns(path, witness):
  """Writes a witness. Args: witness: Fr of shape (num_wires,), starting with 1. Raises: ValueError for anything else."""
  if len(witness.shape) != 1 or witness.shape[0] == 0:
    raise ValueError(f"a witness is one vector with at least the constant 1, got the shape {witness.shape}")
  words = np.ascontiguousarray(np.asarray(witness.to_plain()).T)
  if words[0, 0] != 1 or words[0, 1:].any():
    raise ValueError("the first value of a witness must be 1")
  write_container(path, b"wtns", 2, 2, [(1, [_prime_bytes() + len(words).to_bytes(4, "little")]), (2, [words])])


def _prime_bytes():
  return _FIELD_BYTES.to_bytes(4, "little") + R.to_bytes(_FIELD_BYTES, "little")


def _read_r1cs_header(section):
  section.expect_bytes(_R1CS_HEADER_BYTES, "the header fields")
  section.expect_field(0, "prime", R, _FIELD_BYTES)
  names = ("num_wires", "num_public_outputs", "num_public_inputs", "num_private_inputs")
  header = {name: section.u32(36 + 4 * k) for k, name in enumerate(names)}
  header |= {"num_labels": section.u64(52), "num_constraints": section.u32(60)}
  signals = 1 + header["num_public_outputs"] + header["num_public_inputs"]      # unused private inputs may have no wire
  if signals > header["num_wires"]:
    raise section.error(f"the constant and the public signals make {signals} wires, the header has {header['num_wires']}", 36)
  if header["num_wires"] > _MAX_COUNT:
    raise section.error(f"at most {_MAX_COUNT} wires are supported, got {header['num_wires']}", 36)
  if header["num_constraints"] + signals > _MAX_COUNT:
    raise section.error(f"at most {_MAX_COUNT} rows are supported, got {header['num_constraints']} constraints", 60)
  return header


def _combination_starts(section, count):
  """int64[count]: the word offset of each linear combination. A walk, because each length is known from the one before only."""
  if len(section.data) % 4:
    raise section.error(f"the section has {len(section.data)} bytes, not a multiple of 4")
  section.expect_at_least(4 * count, f"{count} combinations")
  words = memoryview(section.data).cast("I")
  starts, offset, end = array.array("q"), 0, len(words)
  for _ in range(count):
    if offset >= end:
      raise section.error(f"the terms of combination {len(starts)} leave the section", 4 * starts[-1] if starts else 0)
    starts.append(offset)
    offset += 1 + _TERM_WORDS * words[offset]
  if offset != end:
    raise section.error(f"{count} combinations end at byte {4 * offset} of {4 * end}", 4 * min(offset, end))
  return np.frombuffer(starts, np.int64) if starts else np.zeros(0, np.int64)


def _read_constraints(section, num_constraints, num_wires):
  """The matrices A, B and C."""
  starts = _combination_starts(section, 3 * num_constraints)
  words = section.data.view("<u4")
  counts = words[starts].astype(np.int64)
  matrices = []
  for k in range(3):
    count = counts[k::3]
    rows = np.repeat(np.arange(num_constraints, dtype=np.int32), count)
    first = np.cumsum(count) - count                             # terms before each combination of this matrix
    terms = np.repeat(starts[k::3] + 1 - _TERM_WORDS * first, count) + _TERM_WORDS * np.arange(len(rows))
    wires = words[terms]
    if len(wires) and wires.max() >= num_wires:
      index = int(np.argmax(wires >= num_wires))
      raise section.error(f"wire {wires[index]} of {num_wires}", 4 * int(terms[index]))
    values = np.empty((len(rows), 8), np.uint32)
    for j in range(8):
      values[:, j] = words[terms + 1 + j]
    _check_coefficients(section, values, terms)
    matrices.append(SparseMatrix(rows, wires.astype(np.int32), Fr.from_plain(values.T)))
  return matrices


def _check_coefficients(section, values, terms):
  index = first_not_below(values, R)
  if index is not None:
    value = int.from_bytes(values[index].tobytes(), "little")
    raise section.error(f"coefficient {value:#x} is not below r", 4 * int(terms[index]) + 4)


def _check_r1cs(r1cs):
  """Raises ValueError unless the counts and arrays of `r1cs` fit together."""
  if not r1cs.num_public < r1cs.num_wires <= _MAX_COUNT:
    raise ValueError(f"num_wires must cover the constant and {r1cs.num_public} public wires, got {r1cs.num_wires}")
  if r1cs.labels is not None and len(r1cs.labels) != r1cs.num_wires:
    raise ValueError(f"labels must have one entry for each of {r1cs.num_wires} wires, got {len(r1cs.labels)}")
  for name in "abc":
    matrix = getattr(r1cs, name)
    for what, indices, bound in (("rows", matrix.rows, r1cs.num_constraints), ("wires", matrix.wires, r1cs.num_wires)):
      indices = np.asarray(indices)
      if len(indices) != matrix.values.shape[0] or (len(indices) and not 0 <= indices.min() <= indices.max() < bound):
        raise ValueError(f"{name}.{what} must be {matrix.values.shape[0]} indices below {bound}")


def _r1cs_header_bytes(r1cs):
  counts = (r1cs.num_wires, r1cs.num_public_outputs, r1cs.num_public_inputs, r1cs.num_private_inputs)
  return (_prime_bytes() + b"".join(n.to_bytes(4, "little") for n in counts) + r1cs.num_labels.to_bytes(8, "little")
          + r1cs.num_constraints.to_bytes(4, "little"))


def _constraint_words(r1cs):
  """uint32[words]: section 2. Terms keep their order within a combination."""
  counts = np.stack([np.bincount(np.asarray(m.rows), minlength=r1cs.num_constraints) for m in (r1cs.a, r1cs.b, r1cs.c)], axis=1)
  lengths = 1 + _TERM_WORDS * counts.reshape(-1)
  starts = np.cumsum(lengths) - lengths
  words = np.zeros(int(lengths.sum()), "<u4")
  words[starts] = counts.reshape(-1)
  for k, matrix in enumerate((r1cs.a, r1cs.b, r1cs.c)):
    order = np.argsort(np.asarray(matrix.rows), kind="stable")
    rows = np.asarray(matrix.rows)[order]
    first = np.cumsum(counts[:, k]) - counts[:, k]
    terms = starts[k::3][rows] + 1 + _TERM_WORDS * (np.arange(len(rows)) - first[rows])
    words[terms] = np.asarray(matrix.wires)[order]
    values = np.asarray(matrix.values.to_plain())
    for j in range(8):
      words[terms + 1 + j] = values[j, order]
  return words
