"""Proving keys of snarkjs (.zkey, version 1), mapped into memory. All integers are little-endian; see container.py for the frame.

| section | offset | size | field |
|---|---|---|---|
| 1 | 0 | 4 | protocol, 1 = groth16 |
| 2 header | 0 | 4, 48 | 48, p |
| | 52 | 4, 32 | 32, r |
| | 88 | 4 | number of wires, the constant included |
| | 92 | 4 | number of public wires, the constant excluded |
| | 96 | 4 | domain size n, a power of two |
| | 100 | 96 | alpha in G1 |
| | 196 | 96 | beta in G1 |
| | 292 | 192 | beta in G2 |
| | 484 | 192 | gamma in G2 |
| | 676 | 96 | delta in G1 |
| | 772 | 192 | delta in G2 |
| 3 | 0 | 96 each | public_query: constant and public wires |
| 4 | 0 | 4 | number of entries of A and B |
| | 4 | 44 each | matrix (0 = A, 1 = B), row, wire (4 each), value (32) times R^2 mod r with R = 2^256 |
| 5, 6 | 0 | 96 each | a_query, b_g1_query: all wires |
| 7 | 0 | 192 each | b_g2_query: all wires |
| 8 | 0 | 96 each | l_query: private wires |
| 9 | 0 | 96 each | h_query: n points, the Lagrange basis on the odd 2n-th roots of unity |
| 10 | 0 | 64 | hash of the circuit (optional section: the ceremony) |
| | 64 | 4 | number of contributions |
| | 68 | 480 | per contribution: delta, s, s x in G1 (96 each), s x in G2 (192) |
| | | 64, 4 | transcript hash, kind (0 contribution, 1 beacon) |
| | | 4, | length and bytes of its parameters (name, beacon) |

A point is x then y, for G2 c0 before c1, in Montgomery form with R = 2^384; infinity is all zero. The input rows that Groth16 adds
are among the entries of A.
"""
import dataclasses

import jax
import numpy as np

from zkjax.groth16.formats.checks import Place, check_below, check_coordinates, check_level, check_points
from zkjax.groth16.formats.container import read_container, write_container
from zkjax.groth16.types import Constraints, ProvingKey, SparseMatrix, VerifyingKey
from zkjax.ops.bls12_381 import SNARKJS_GENERATOR, P, R
from zkjax.ops.curve import Affine
from zkjax.ops.field import Fp, Fp2, Fr
from zkjax.ops.ntt import Domain

_HEADER_BYTES, _ENTRY_BYTES, _CONTRIBUTION_BYTES = 964, 44, 552
_MAX_COUNT = 2**31 - 1                        # rows and wires are int32
_HEADER_POINTS = {"alpha_g1": (100, 24), "beta_g1": (196, 24), "beta_g2": (292, 48), "gamma_g2": (484, 48), "delta_g1": (676, 24),
                  "delta_g2": (772, 48)}      # byte offset, words
_QUERIES = {"public_query": (3, 24), "a_query": (5, 24), "b_g1_query": (6, 24), "b_g2_query": (7, 48), "l_query": (8, 24),
            "h_query": (9, 24)}               # section, words of a point


@dataclasses.dataclass(frozen=True)
class Contribution:
  """One contribution to the ceremony, as bytes. points: delta, s, s x (G1) and s x (G2). kind: 0, or 1 for a beacon."""
  points: bytes
  transcript: bytes
  kind: int
  parameters: bytes


@dataclasses.dataclass(frozen=True)
class Ceremony:
  """Section 10: who contributed. The default, no contribution, is that of a key from a setup; its hash is unknown, hence zero."""
  circuit_hash: bytes = bytes(64)
  contributions: tuple = ()


def read_zkey(path, check="points", allow_uncontributed=False):
  """Reads a proving key.

  Args: path: file name. check: "none"; "points": all coordinates below p, all points on the curve; "full": all in the subgroup
    too. allow_uncontributed: accept a key whose delta equals gamma, for which anybody can forge proofs.
  Returns: ProvingKey with h_basis "coset". Points are views of the mapped file on the host: `jax.device_put` it once. The entries
    of C are not in the file (constraints.c is None), so a wrong witness is not noticed before the proof fails to verify.
  Raises: FormatError for another protocol or curve, sections missing or of the wrong size, indices out of range, bad points.
  """
  check_level(check)
  file = read_container(path, b"zkey", 2, known=range(1, 11))
  num_wires, num_public, log2_size = _read_header(file)
  if file.find(10) is not None:
    _read_ceremony(file.find(10))
  counts = {"public_query": num_public + 1, "a_query": num_wires, "b_g1_query": num_wires, "b_g2_query": num_wires,
            "l_query": num_wires - num_public - 1, "h_query": 1 << log2_size}
  constraints = _read_entries(file.require(4, "entries of A and B"), num_wires, num_public, 1 << log2_size)
  points = _read_header_points(file.require(2, "header"), check, allow_uncontributed)
  for name, (kind, width) in _QUERIES.items():
    section = file.require(kind, name)
    section.expect_bytes(4 * width * counts[name], f"{counts[name]} points of {name}")
    points[name] = _points(section.words(0, counts[name], width), check, "point", section)
  names = ("alpha_g1", "beta_g2", "gamma_g2", "delta_g2", "public_query")
  return ProvingKey(VerifyingKey(**{name: points.pop(name) for name in names}), constraints=constraints,
                    domain=Domain(log2_size, SNARKJS_GENERATOR), h_basis="coset", **points)


def read_zkey_ceremony(path):
  """Reads who contributed to a key. Returns: Ceremony. Raises: FormatError, also when the file has no section 10."""
  return _read_ceremony(read_container(path, b"zkey", 2, known=range(1, 11)).require(10, "ceremony"))


def write_zkey(path, key, ceremony=None):
  """Writes a proving key with the sections 1 to 10 in order; a file from `zkey contribute` that was read comes out the same.

  `snarkjs groth16 prove` and `zkey export verificationkey` accept the file. `zkey verify` needs the circuit hash and contributions.

  Args: path: file name, replaced only when all is written. key: ProvingKey in the coset basis over the domain of snarkjs.
    ceremony: Ceremony as read from the file, or None for a key fresh from setup.
  Raises: ValueError for a key that this format cannot hold.
  """
  _check_key(key)
  ceremony = Ceremony() if ceremony is None else ceremony
  write_container(path, b"zkey", 1, 10, _sections(key, ceremony))


def _read_header(file):
  """(num_wires, num_public, log2 of the domain size)."""
  protocol = file.require(1, "protocol")
  protocol.expect_bytes(4, "the protocol")
  if protocol.u32(0) != 1:
    raise protocol.error(f"protocol {protocol.u32(0)} is not 1, Groth16")
  header = file.require(2, "header")
  header.expect_at_least(100, "the header fields")
  header.expect_field(0, "base field", P, 48)
  header.expect_field(52, "scalar field", R, 32)
  header.expect_bytes(_HEADER_BYTES, "the header fields")
  num_wires, num_public, size = (header.u32(offset) for offset in (88, 92, 96))
  if not num_public < num_wires <= _MAX_COUNT:
    raise header.error(f"{num_public} public wires and the constant do not fit in {num_wires} wires", 88)
  if size == 0 or size & (size - 1):
    raise header.error(f"the domain size {size} is not a power of two", 96)
  return num_wires, num_public, size.bit_length() - 1


def _read_header_points(section, check, allow_uncontributed):
  points = {}
  for name, (offset, width) in _HEADER_POINTS.items():
    words = section.words(offset, 1, width)
    if check != "none" and not words.any():
      raise section.error(f"{name} is infinity", offset)
    batch = _points(words, check, name, Place(section.file, section.section, section.start + offset))
    points[name] = jax.tree.map(lambda limbs: limbs[:, 0], batch)
  if not allow_uncontributed and np.array_equal(section.words(484, 1, 48), section.words(772, 1, 48)):
    raise section.error("delta equals gamma: nobody contributed to this key, so anybody can forge proofs for it; "
                        "allow_uncontributed=True reads it all the same", 772)
  return points


def _points(words, check, name, place):
  """Affine[n] as a view of words, uint32[n, 24] for G1 or [n, 48] for G2, checked."""
  if check != "none":
    check_coordinates(words, name, place)
  limbs = [words[:, k:k + 12].T for k in range(0, words.shape[1], 12)]
  points = Affine(*map(Fp, limbs)) if len(limbs) == 2 else Affine(Fp2(Fp(limbs[0]), Fp(limbs[1])), Fp2(Fp(limbs[2]), Fp(limbs[3])))
  check_points(points, check, name, place, stride=4 * words.shape[1])
  return points


def _read_entries(section, num_wires, num_public, domain_size):
  """Constraints without C."""
  section.expect_at_least(4, "the number of entries")
  count = section.u32(0)
  section.expect_bytes(4 + _ENTRY_BYTES * count, f"{count} entries")
  words = section.words(4, count, _ENTRY_BYTES // 4)
  for column, name, bound in ((0, "matrix", 2), (1, "row", domain_size), (2, "wire", num_wires)):
    if count and words[:, column].max() >= bound:
      index = int(np.argmax(words[:, column] >= bound))
      raise section.error(f"{name} {words[index, column]} of entry {index} is not below {bound}", 4 + 44 * index + 4 * column)
  check_below(words[:, 3:], R, "the value of entry", section, offset=16, stride=_ENTRY_BYTES)
  matrices = []
  for matrix in range(2):
    part = words[words[:, 0] == matrix]
    values = Fr(Fr(part[:, 3:].T).to_plain())                    # v R^2 as stored is v R in Montgomery form; plain, it is v in it
    matrices.append(SparseMatrix(part[:, 1].astype(np.int32), part[:, 2].astype(np.int32), values))
  num_rows = int(words[:, 1].max()) + 1 if count else 0          # the input rows of A are the last
  return Constraints(*matrices, None, num_rows=num_rows, num_wires=num_wires, num_public=num_public)


def _read_ceremony(section):
  section.expect_at_least(68, "the circuit hash and the number of contributions")
  data, count = section.data, section.u32(64)
  contributions, offset = [], 68
  section.expect_at_least(offset + _CONTRIBUTION_BYTES * count, f"{count} contributions")
  for index in range(count):
    end = offset + _CONTRIBUTION_BYTES
    size = section.u32(end - 4) if end <= len(data) else len(data)
    if end + size > len(data):
      raise section.error(f"contribution {index} leaves the section", offset)
    points, transcript = data[offset:offset + 480].tobytes(), data[offset + 480:offset + 544].tobytes()
    contributions.append(Contribution(points, transcript, section.u32(end - 8), data[end:end + size].tobytes()))
    offset = end + size
  if offset != len(data):
    raise section.error(f"{len(data) - offset} bytes follow the last contribution", offset)
  return Ceremony(data[:64].tobytes(), tuple(contributions))


def _check_key(key):
  """Raises ValueError unless a zkey can hold `key`."""
  if key.h_basis != "coset":
    raise ValueError(f'a zkey holds h_query in the "coset" basis, this key has "{key.h_basis}"; make the key in the coset basis')
  if key.domain.generator != SNARKJS_GENERATOR or key.domain.shift != 1:
    raise ValueError(f"a zkey needs Domain(log2_size, generator={SNARKJS_GENERATOR}), got {key.domain}")
  expected = {"a_query": key.num_wires, "b_g1_query": key.num_wires, "b_g2_query": key.num_wires,
              "l_query": key.num_wires - key.num_public - 1, "h_query": 1 << key.domain.log2_size}
  for name, count in expected.items():
    if getattr(key, name).x.shape != (count,):
      raise ValueError(f"{name} must hold {count} points, got the shape {getattr(key, name).x.shape}")
  if key.vk.public_query.x.shape != (key.num_public + 1,):
    raise ValueError(f"public_query must hold {key.num_public + 1} points, got the shape {key.vk.public_query.x.shape}")
  if key.constraints.num_rows > 1 << key.domain.log2_size:
    raise ValueError(f"{key.constraints.num_rows} rows do not fit in a domain of 2^{key.domain.log2_size}")


def _sections(key, ceremony):
  """Yields (type, parts) of the sections 1 to 10."""
  yield 1, [(1).to_bytes(4, "little")]
  header = [(48).to_bytes(4, "little"), P.to_bytes(48, "little"), (32).to_bytes(4, "little"), R.to_bytes(32, "little")]
  header += [n.to_bytes(4, "little") for n in (key.num_wires, key.num_public, 1 << key.domain.log2_size)]
  yield 2, header + [_point_words(_get(key, name)) for name in _HEADER_POINTS]
  entries = _entry_words(key.constraints)
  queries = {kind: name for name, (kind, _) in _QUERIES.items()}
  for kind in range(3, 10):
    yield kind, [len(entries).to_bytes(4, "little"), entries] if kind == 4 else [_point_words(_get(key, queries[kind]))]
  yield 10, _ceremony_parts(ceremony)


def _get(key, name):
  return getattr(key if hasattr(key, name) else key.vk, name)


def _point_words(points):
  """uint32[n, 24 or 48] of Affine[n], or one row for a single point."""
  parts = [f for e in (points.x, points.y) for f in ((e.c0, e.c1) if isinstance(e, Fp2) else (e,))]
  return np.concatenate([np.asarray(f.limbs).reshape(12, -1) for f in parts]).T


def _entry_words(constraints):
  """uint32[entries, 11], by row and within a row A before B, as snarkjs orders them."""
  blocks = []
  for matrix, entries in enumerate((constraints.a, constraints.b)):
    block = np.empty((entries.values.shape[0], _ENTRY_BYTES // 4), "<u4")
    block[:, 0], block[:, 1], block[:, 2] = matrix, np.asarray(entries.rows), np.asarray(entries.wires)
    block[:, 3:] = np.asarray(Fr.from_plain(entries.values.limbs).limbs).T
    blocks.append(block)
  words = np.concatenate(blocks)
  return words[np.argsort(2 * words[:, 1].astype(np.int64) + words[:, 0], kind="stable")]


def _ceremony_parts(ceremony):
  parts = [ceremony.circuit_hash, len(ceremony.contributions).to_bytes(4, "little")]
  for c in ceremony.contributions:
    parts += [c.points, c.transcript, c.kind.to_bytes(4, "little"), len(c.parameters).to_bytes(4, "little"), c.parameters]
  sizes = [len(ceremony.circuit_hash)] + [len(c.points) + len(c.transcript) for c in ceremony.contributions]
  if sizes != [64] + [544] * len(ceremony.contributions):
    raise ValueError("the circuit hash has 64 bytes, the points of a contribution 480 and its transcript 64")
  return parts
