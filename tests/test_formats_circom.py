"""r1cs and wtns: byte round trips of circom's files, the meaning of what is read, and every count and value that is checked."""
import dataclasses
import tracemalloc

import numpy as np
import pytest
from shared_files import DATA, circuit, u32

from zkjax.groth16.formats.circom import CircomR1cs, read_r1cs, read_wtns, write_r1cs, write_wtns
from zkjax.groth16.types import FormatError, SparseMatrix
from zkjax.ops.bls12_381 import R
from zkjax.ops.field import Fr

NAMES = ["chain10", "chain12", "edge_addonly", "edge_bits", "edge_linear", "edge_nopub", "edge_pow2exact", "edge_unused",
         "edge_zeroconstr", "merkle20_poseidon", "sha256_64"]


def container(magic, version, sections):
  body = b"".join(u32(kind) + len(data).to_bytes(8, "little") + data for kind, data in sections)
  return magic + u32(version) + u32(len(sections)) + body


def split(data):
  """The list of (type, payload) of a container."""
  sections, offset = [], 12
  while offset < len(data):
    size = int.from_bytes(data[offset + 4:offset + 12], "little")
    sections.append((int.from_bytes(data[offset:offset + 4], "little"), data[offset + 12:offset + 12 + size]))
    offset += 12 + size
  return sections


def patch(payload, offset, new):
  return payload[:offset] + new + payload[offset + len(new):]


@pytest.fixture
def mul():
  """Sections of mul.r1cs and mul's witness by type."""
  return dict(split((DATA / "mul/mul.r1cs").read_bytes())), dict(split((DATA / "mul/witness.wtns").read_bytes()))


def refused(read, tmp_path, data, match):
  path = tmp_path / "bad"
  path.write_bytes(data)
  with pytest.raises(FormatError, match=match) as info:
    read(path)
  assert str(path) in str(info.value)
  return info.value


@pytest.mark.parametrize("name", ["mul"] + NAMES)
def test_r1cs_round_trip_to_the_byte(name, tmp_path):
  path = circuit(name) / f"{name}.r1cs"
  write_r1cs(tmp_path / "again.r1cs", read_r1cs(path))
  assert (tmp_path / "again.r1cs").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["mul"] + NAMES)
def test_wtns_round_trip_to_the_byte(name, tmp_path):
  path = circuit(name) / "witness.wtns"
  write_wtns(tmp_path / "again.wtns", read_wtns(path))
  assert (tmp_path / "again.wtns").read_bytes() == path.read_bytes()


def entries(matrix):
  values = np.array(matrix.values.to_ints(), dtype=object).reshape(-1)
  return list(zip(np.asarray(matrix.rows).tolist(), np.asarray(matrix.wires).tolist(), values))


def test_mul_means_a_times_b():
  r1cs = read_r1cs(DATA / "mul/mul.r1cs")
  assert (r1cs.num_wires, r1cs.num_public_outputs, r1cs.num_public_inputs, r1cs.num_private_inputs) == (4, 1, 0, 2)
  assert entries(r1cs.a) == [(0, 2, R - 1)] and entries(r1cs.b) == [(0, 3, 1)] and entries(r1cs.c) == [(0, 1, R - 1)]
  assert r1cs.labels.dtype == np.uint64 and r1cs.labels.tolist() == [0, 1, 2, 3]
  assert read_wtns(DATA / "mul/witness.wtns").to_ints() == [1, 33, 3, 11]


def test_constraints_add_the_input_rows():
  constraints = read_r1cs(DATA / "mul/mul.r1cs").constraints()
  assert (constraints.num_rows, constraints.num_wires, constraints.num_public) == (3, 4, 1)
  assert entries(constraints.a) == [(0, 2, R - 1), (1, 0, 1), (2, 1, 1)]
  assert entries(constraints.b) == [(0, 3, 1)] and entries(constraints.c) == [(0, 1, R - 1)]


@pytest.mark.parametrize("name", ["mul", "edge_linear", "edge_addonly", "edge_nopub", "chain10"])
def test_the_witness_satisfies_the_constraints(name):
  folder = circuit(name)
  constraints, witness = read_r1cs(folder / f"{name}.r1cs").constraints(), read_wtns(folder / "witness.wtns").to_ints()
  products = []
  for matrix in (constraints.a, constraints.b, constraints.c):
    rows = [0] * constraints.num_rows
    for row, wire, value in entries(matrix):
      rows[row] += value * witness[wire]
    products.append(rows)
  num_inputs = constraints.num_public + 1
  assert all((a * b - c) % R == 0 for a, b, c in zip(*products))
  assert products[0][-num_inputs:] == witness[:num_inputs]


def test_terms_out_of_order_and_repeated_are_written_by_row(tmp_path):
  matrix = SparseMatrix(np.array([1, 0, 1], np.int32), np.array([2, 1, 2], np.int32), Fr.from_ints([5, 6, 7]))
  empty = SparseMatrix(np.zeros(0, np.int32), np.zeros(0, np.int32), Fr(np.zeros((8, 0), np.uint32)))
  r1cs = CircomR1cs(3, 1, 0, 1, 3, 3, matrix, empty, matrix, sections=((1, None), (2, None), (9, b"kept")))
  write_r1cs(tmp_path / "x.r1cs", r1cs)
  again = read_r1cs(tmp_path / "x.r1cs")
  assert entries(again.a) == [(0, 1, 6), (1, 2, 5), (1, 2, 7)] and entries(again.b) == []
  assert again.labels is None and again.sections == r1cs.sections and again.num_constraints == 3


def test_unknown_sections_in_any_order_are_kept(tmp_path, mul):
  sections = mul[0]
  data = container(b"r1cs", 1, [(77, b"abc"), (3, sections[3]), (1, sections[1]), (77, b""), (2, sections[2])])
  (tmp_path / "x.r1cs").write_bytes(data)
  write_r1cs(tmp_path / "y.r1cs", read_r1cs(tmp_path / "x.r1cs"))
  assert (tmp_path / "y.r1cs").read_bytes() == data


def test_custom_gates_are_read_but_have_no_constraints(tmp_path, mul):
  sections = mul[0]
  data = container(b"r1cs", 1, [(k, sections[k]) for k in (2, 1, 3)] + [(4, bytes(4)), (5, u32(1) + bytes(8))])
  (tmp_path / "x.r1cs").write_bytes(data)
  with pytest.raises(ValueError, match="custom gates"):
    read_r1cs(tmp_path / "x.r1cs").constraints()


@pytest.mark.parametrize("kind,offset,new,match", [
    (1, 0, u32(31), "32"),
    (1, 4, (R + 2).to_bytes(32, "little"), "BLS12-381"),
    (1, 36, u32(1), "public signals"),
    (1, 36, u32(2), "wire 2 of 2|labels"),
    (1, 36, u32(2**31), "at most"),
    (1, 36, u32(5), "labels of 5"),
    (1, 40, u32(4), "public signals"),
    (1, 44, u32(2**32 - 1), "public signals"),
    (1, 60, u32(0), "end at byte"),
    (1, 60, u32(2), "combination 3"),
    (1, 60, u32(2**31 - 2), "rows are supported"),
    (1, 60, u32(2**30), "at least"),
    (2, 0, u32(3), "combination 2"),
    (2, 0, u32(2**32 - 1), "combination"),
    (2, 4, u32(4), "wire 4 of 4"),
    (2, 4, u32(2**32 - 1), "wire"),
    (2, 8, R.to_bytes(32, "little"), "not below r"),
    (2, 8, b"\xff" * 32, "not below r"),
])
def test_r1cs_fields_that_do_not_fit_are_refused(kind, offset, new, match, tmp_path, mul):
  sections = mul[0]
  sections[kind] = patch(sections[kind], offset, new)
  refused(read_r1cs, tmp_path, container(b"r1cs", 1, list(sections.items())), match)


@pytest.mark.parametrize("offset,new,match", [
    (0, u32(48), "32"), (4, bytes(32), "BLS12-381"), (36, u32(0), "constant"), (36, u32(3), "3 values"), (36, u32(5), "5 values"),
    (36, u32(2**32 - 1), "values"),
])
def test_wtns_headers_that_do_not_fit_are_refused(offset, new, match, tmp_path, mul):
  sections = mul[1]
  refused(read_wtns, tmp_path, container(b"wtns", 2, [(1, patch(sections[1], offset, new)), (2, sections[2])]), match)


@pytest.mark.parametrize("index,value,match", [(0, 0, "must be 1"), (0, 2, "must be 1"), (0, R + 1, "modulus"), (1, R, "modulus"),
                                               (3, 2**256 - 1, "modulus"), (0, 1 + 2**40, "must be 1")])
def test_wtns_values_that_do_not_fit_are_refused(index, value, match, tmp_path, mul):
  sections = mul[1]
  values = patch(sections[2], 32 * index, value.to_bytes(32, "little"))
  error = refused(read_wtns, tmp_path, container(b"wtns", 2, [(1, sections[1]), (2, values)]), match)
  assert error.offset == 76 + 32 * index and error.section == 2


@pytest.mark.parametrize("name,match", [("bad_magic", "magic"), ("version3", "version 3"), ("bn254_prime", "BLS12-381"),
                                        ("truncated", "claims 128 bytes"), ("noncanonical_private", "value 2"),
                                        ("noncanonical_public", "value 1")])
def test_rejected_witnesses(name, match):
  with pytest.raises(FormatError, match=match):
    read_wtns(DATA / "rejected" / f"wtns_{name}.wtns")


def test_a_wrong_witness_is_still_a_witness():
  assert read_wtns(DATA / "rejected/wtns_wrong_private.wtns").to_ints() != [1, 33, 3, 11]


@pytest.mark.parametrize("read,magic,version", [(read_r1cs, b"r1cs", 1), (read_wtns, b"wtns", 2)])
def test_frames_that_are_wrong_are_refused(read, magic, version, tmp_path, mul):
  sections = list(mul[version - 1].items())
  good = container(magic, version, sections)
  refused(read, tmp_path, b"", "empty")
  refused(read, tmp_path, good[:3], "magic")
  refused(read, tmp_path, good[:11], "header")
  refused(read, tmp_path, container(magic, version + 1, sections), "version")
  refused(read, tmp_path, container(magic, 0, sections), "version 0")
  refused(read, tmp_path, good + b"\0", "follow the last section")
  refused(read, tmp_path, container(magic, version, sections + sections[:1]), "twice")
  refused(read, tmp_path, container(magic, version, sections[1:]), "missing")
  refused(read, tmp_path, container(magic, version, [s for s in sections if s[0] != 2]), "missing")
  refused(read, tmp_path, patch(good, 8, u32(2**32 - 1)), "ends before section")
  refused(read, tmp_path, patch(good, 16, b"\xff" * 8), "claims")
  with pytest.raises(FileNotFoundError):
    read(tmp_path / "absent")
  with pytest.raises(OSError):
    read(tmp_path)


def test_counts_are_checked_before_memory_is_taken(tmp_path, mul):
  r1cs, wtns = mul
  cases = [(read_r1cs, container(b"r1cs", 1, [(1, patch(r1cs[1], 60, u32(2**31 - 9))), (2, r1cs[2])])),
           (read_r1cs, container(b"r1cs", 1, [(1, r1cs[1]), (2, patch(r1cs[2], 0, u32(2**32 - 1)))])),
           (read_wtns, container(b"wtns", 2, [(1, patch(wtns[1], 36, u32(2**32 - 1))), (2, wtns[2])]))]
  for read, data in cases:
    tracemalloc.start()
    refused(read, tmp_path, data, "section")
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_failed_writes_leave_the_old_file_and_nothing_else(tmp_path):
  r1cs, target = read_r1cs(DATA / "mul/mul.r1cs"), tmp_path / "x.r1cs"
  target.write_bytes(b"old")
  for bad in (dict(num_wires=3), dict(num_wires=1), dict(num_constraints=0), dict(labels=np.zeros(3, np.uint64)), dict(labels=None),
              dict(sections=((1, None), (2, None))), dict(num_labels=-1), dict(sections=r1cs.sections + ((2**40, b""),))):
    with pytest.raises((ValueError, OverflowError)):
      write_r1cs(target, dataclasses.replace(r1cs, **bad))
  for witness in (Fr.from_ints([2, 3]), Fr.from_ints([]), Fr.from_ints([[1]])):
    with pytest.raises(ValueError, match="witness"):
      write_wtns(target, witness)
  with pytest.raises(OSError):
    write_r1cs(tmp_path, r1cs)
  assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]
