"""Damaged files: whatever is cut, flipped or replaced, a reader raises FormatError or returns what the bytes now say, nothing else."""
import json
import pathlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zkjax.groth16.formats import bellman, circom, points, snarkjs
from zkjax.groth16.formats.container import replace_file
from zkjax.groth16.formats.points import encode_point
from zkjax.groth16.types import FormatError, Proof, VerifyingKey
from zkjax.ops.int_curve import G1, G2

MUL = pathlib.Path(__file__).parent / "data" / "mul"
NUM_CUTS, NUM_FLIPS = 200, 500


def parameters():
  """A small file in the layout of bellman's parameters."""
  multiples = lambda group, *scalars: b"".join(encode_point(group, group.multiply(group.generator, k), False) for k in scalars)
  key = multiples(G1, 2, 3) + multiples(G2, 3, 5) + multiples(G1, 7) + multiples(G2, 7)
  lists = [(G1, 11, 13), (G1, 21, 22, 23), (G1, 31, 32), (G1, 41, 42, 43), (G1, 51, 52), (G2, 51, 52)]
  return key + b"".join((len(scalars)).to_bytes(4, "big") + multiples(group, *scalars) for group, *scalars in lists)


def rewrite_zkey(path, key):
  """Writes `key` to `path` with the ceremony that `path` holds, if any."""
  try:
    ceremony = snarkjs.read_zkey_ceremony(path)
  except FormatError:
    ceremony = None
  snarkjs.write_zkey(path, key, ceremony)


FILES = {
    "r1cs": ((MUL / "mul.r1cs").read_bytes(), circom.read_r1cs, circom.write_r1cs),
    "wtns": ((MUL / "witness.wtns").read_bytes(), circom.read_wtns, circom.write_wtns),
    "zkey": ((MUL / "mul.zkey").read_bytes(), snarkjs.read_zkey, rewrite_zkey),
    "vkey.json": ((MUL / "vkey.json").read_bytes(), snarkjs.read_vkey, snarkjs.write_vkey),
    "proof.json": ((MUL / "proof.json").read_bytes(), snarkjs.read_proof, snarkjs.write_proof),
    "public.json": ((MUL / "public.json").read_bytes(), snarkjs.read_public, snarkjs.write_public),
    "params": (parameters(), bellman.read_parameters, bellman.write_parameters),
    "vk": (parameters()[:868 + 192], bellman.read_verifying_key, bellman.write_verifying_key),
    "proof": (points.proof_to_bytes(snarkjs.read_proof(MUL / "proof.json")), bellman.read_proofs, bellman.write_proofs),
}
FORMAT = pytest.mark.parametrize("name", list(FILES))


def boundaries(data):
  """Offsets where the header, section headers and payloads of a container begin and end."""
  found, offset = {0, 4, 8, 12}, 12
  while offset < len(data):
    found |= {offset, offset + 4, offset + 12}
    offset += 12 + int.from_bytes(data[offset + 4:offset + 12], "little")
  return found


def ignored(name, data):
  """Byte offsets that may change without any effect on what is read."""
  if name in ("r1cs", "wtns", "zkey"):                           # the version number, and types that turn an optional section unknown
    starts, offset = set(range(4, 8)), 12
    while offset < len(data):
      starts |= set(range(offset, offset + 4))
      offset += 12 + int.from_bytes(data[offset + 4:offset + 12], "little")
    return starts
  if name == "vkey.json":
    start = data.index(b'"vk_alphabeta_12"')
    return set(range(start, data.index(b'"IC"'))) | spaces(data)
  return spaces(data) if name.endswith("json") else set()


def spaces(data):
  return {i for i, byte in enumerate(data) if byte in b" \n"}


def read_damaged(name, data, path):
  """What the reader returns for these bytes, or the FormatError it raises."""
  path.write_bytes(data)
  try:
    return FILES[name][1](path)
  except FormatError as error:
    assert error.file == path
    return error


@FORMAT
def test_cut_files_are_refused(name, tmp_path):
  data = FILES[name][0]
  cuts = boundaries(data) if name in ("r1cs", "wtns", "zkey") else {0, 1, 4, 864, 867, 868}
  cuts |= set(np.random.default_rng(1).integers(0, len(data), NUM_CUTS).tolist())
  for length in sorted(cut for cut in cuts if cut < len(data)):
    assert isinstance(read_damaged(name, data[:length], tmp_path / "cut"), FormatError), length


@FORMAT
def test_flipped_bytes_are_refused_or_change_what_is_read(name, tmp_path):
  data, _, write = FILES[name]
  rng, skip = np.random.default_rng(2), ignored(name, data)
  outcomes = {True: 0, False: 0}
  for position, flip in zip(rng.integers(0, len(data), NUM_FLIPS).tolist(), rng.integers(1, 256, NUM_FLIPS).tolist()):
    flipped = bytearray(data)
    flipped[position] ^= flip
    path = tmp_path / "flipped"
    result = read_damaged(name, bytes(flipped), path)
    outcomes[isinstance(result, FormatError)] += 1
    if not isinstance(result, FormatError):
      write(path, result)
      assert path.read_bytes() != data or position in skip, (position, flip)
  assert outcomes[True] > 0
  if name in ("params", "vk"):
    assert outcomes[False] == 0                                  # nothing in these files is without a check


@FORMAT
def test_inserted_and_removed_bytes_raise_nothing_else(name, tmp_path):
  data, rng = FILES[name][0], np.random.default_rng(3)
  for position, size in zip(rng.integers(0, len(data), 100).tolist(), rng.integers(1, 200, 100).tolist()):
    for damaged in (data[:position] + data[position + size:], data[:position] + rng.bytes(size) + data[position:],
                    data[:position] + bytes(size) + data[position + size:], data[:position] + b"\xff" * size + data[position + size:]):
      read_damaged(name, damaged, tmp_path / "damaged")


@FORMAT
def test_random_bytes_and_other_formats_are_refused(name, tmp_path):
  rng = np.random.default_rng(4)
  others = [other for key, (other, _, _) in FILES.items() if key != name] + [rng.bytes(n) for n in (1, 12, 100, 192, 5000)] + [bytes(4000)]
  for data in others:
    assert isinstance(read_damaged(name, data, tmp_path / "other"), FormatError)


@pytest.mark.parametrize("name", ["r1cs", "wtns", "zkey"])
def test_every_small_integer_of_a_frame_may_be_hostile(name, tmp_path):
  data = FILES[name][0]
  for offset in sorted(boundaries(data)):
    for value in (0, 1, 2, 2**31 - 1, 2**31, 2**32 - 1):
      damaged = bytearray(data)
      damaged[offset:offset + 4] = value.to_bytes(4, "little")
      read_damaged(name, bytes(damaged[:len(data)]), tmp_path / "damaged")


LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["0", "1", "groth16", "bls12381"])
JSON = st.recursive(LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
                    max_leaves=12)


def paths(tree, prefix=()):
  """Every place in parsed JSON, as a tuple of keys and indices."""
  yield prefix
  items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
  for key, value in items:
    yield from paths(value, prefix + (key,))


def replaced(tree, path, value):
  if not path:
    return value
  copy = dict(tree) if isinstance(tree, dict) else list(tree)
  copy[path[0]] = replaced(copy[path[0]], path[1:], value)
  return copy


@settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
@pytest.mark.parametrize("name,convert,kind", [("vkey.json", snarkjs.vkey_from_json, VerifyingKey),
                                               ("proof.json", snarkjs.proof_from_json, Proof),
                                               ("public.json", snarkjs.public_from_json, list)])
def test_any_json_in_any_place_raises_nothing_else(name, convert, kind, data):
  tree = json.loads(FILES[name][0])
  tree = replaced(tree, data.draw(st.sampled_from(list(paths(tree)))), data.draw(JSON))
  try:
    assert isinstance(convert(tree), kind)
  except FormatError:
    pass


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.binary(max_size=200), st.sampled_from([48, 96, 192]))
def test_any_bytes_as_points_raise_nothing_else(data, size):
  for decode, encode in ((points.g1_from_bytes, points.g1_to_bytes), (points.g2_from_bytes, points.g2_to_bytes)):
    for candidate in (data, (data * 200)[:size]):
      try:
        decoded = decode(candidate)
      except FormatError:
        continue
      assert encode(decoded, compressed=candidate[0] >= 0x80) == candidate      # one encoding for each point


def test_a_block_that_raises_leaves_no_file(tmp_path):
  target = tmp_path / "x"
  with pytest.raises(KeyboardInterrupt):
    with replace_file(target) as file:
      file.write(b"half")
      raise KeyboardInterrupt
  assert list(tmp_path.iterdir()) == []
  with replace_file(target) as file:
    file.write(b"new")
  assert target.read_bytes() == b"new" and list(tmp_path.iterdir()) == [target]
  with pytest.raises(OSError):
    with replace_file(tmp_path / "absent" / "x") as file:
      file.write(b"new")
