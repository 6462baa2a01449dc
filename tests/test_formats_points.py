"""ZCash encodings of points and the 192-byte proof: published vectors, every rule of the encoding, and the groups on integers."""
import pathlib

import numpy as np
import oracle
import pytest

from zkjax.groth16.formats import checks, points, snarkjs
from zkjax.groth16.formats.checks import Place, check_points, first_not_below
from zkjax.groth16.formats.points import decode_point, encode_point
from zkjax.groth16.types import FormatError, Proof
from zkjax.ops.bls12_381 import G1_COFACTOR, G2_COFACTOR, P, R
from zkjax.ops.curve import Affine
from zkjax.ops.field import Fp, Fp2
from zkjax.ops.int_curve import G1, G2, IntFp2

DATA = pathlib.Path(__file__).parent / "data"
VECTORS = pathlib.Path(__file__).resolve().parents[2] / "shared" / "vectors" / "zcash_encoding"
GROUPS = [(G1, oracle.g1, G1_COFACTOR), (G2, oracle.g2, G2_COFACTOR)]
CODECS = {G1: (Fp, points.g1_to_bytes, points.g1_from_bytes, points.g1_from_bytes_unchecked),
          G2: (Fp2, points.g2_to_bytes, points.g2_from_bytes, points.g2_from_bytes_unchecked)}
GROUP = pytest.mark.parametrize("group", [G1, G2], ids=["G1", "G2"])


def curve_points(group, count):
  """Points of the curve with small x, nearly all outside the subgroup."""
  found = []
  for x in range(10 * count):
    x = (x, 1) if group is G2 else x
    y = group.field.sqrt(group.curve_equation(x))
    found += [(x, y)] if y is not None else []
  return found[:count]


@pytest.mark.parametrize("name,group,compressed", [("g1_compressed", G1, True), ("g1_uncompressed", G1, False),
                                                   ("g2_compressed", G2, True), ("g2_uncompressed", G2, False)])
def test_published_multiples_of_the_generator(name, group, compressed):
  path = VECTORS / f"{name}.dat"
  if not path.exists():
    pytest.skip("../shared/vectors/zcash_encoding is not there")
  data = path.read_bytes()
  _, encode, decode, _ = CODECS[group]
  decoded = decode(data, 1000)
  expected, multiple = [], None
  for _ in range(1000):
    expected.append(multiple)
    multiple = group.add(multiple, group.generator)
  assert decoded.to_ints() == expected
  assert encode(decoded, compressed) == data


@GROUP
@pytest.mark.parametrize("compressed", [True, False])
def test_decode_inverts_encode(group, compressed):
  field, encode, decode, unchecked = CODECS[group]
  batch = [None, group.generator, group.negate(group.generator), group.multiply(group.generator, 2**200 + 1)]
  for point in batch:
    data = encode(Affine.from_ints(field, point), compressed)
    assert decode(data).to_ints() == point and unchecked(data).to_ints() == point
  data = encode(Affine.from_ints(field, batch), compressed)
  assert decode(data, len(batch)).to_ints() == batch
  assert decode(b"", 0).x.shape == (0,)


def encodings(group):
  return [(encode_point(group, group.generator, compressed), compressed) for compressed in (True, False)]


def refused(group, data, match, count=None):
  with pytest.raises(FormatError, match=match):
    CODECS[group][2](bytes(data), count)


@GROUP
def test_flags_that_contradict_are_refused(group):
  for data, compressed in encodings(group):
    refused(group, bytes([data[0] ^ 0x80]) + data[1:], "compression flag")
    infinity = encode_point(group, None, compressed)
    refused(group, bytes([infinity[0] | 0x20]) + infinity[1:], "sign flag")
    refused(group, bytes([infinity[0] ^ 0x80]) + infinity[1:], "compression flag")
    refused(group, bytes([data[0] | 0x40 & ~0x20]) + data[1:], "no other bit|sign flag")
    for position in (0, 1, len(infinity) // 2, len(infinity) - 1):
      dirty = bytearray(infinity)
      dirty[position] ^= 1
      refused(group, dirty, "no other bit")
  uncompressed = encode_point(group, group.generator, False)
  refused(group, bytes([uncompressed[0] | 0x20]) + uncompressed[1:], "sign flag")


@GROUP
def test_coordinates_not_below_p_are_refused(group):
  for data, _ in encodings(group):
    for start in range(0, len(data), 48):
      for value in (P, P + 1, 2**381 - 1):
        flags = data[0] & 0xe0 if start == 0 else 0
        dirty = bytearray(data)
        dirty[start:start + 48] = value.to_bytes(48, "big")
        dirty[start] |= flags
        refused(group, dirty, "not below p")


@GROUP
def test_points_off_the_curve_and_off_the_subgroup_are_refused(group):
  _, _, decode, unchecked = CODECS[group]
  data = bytearray(encode_point(group, group.generator, False))
  data[-1] ^= 1
  refused(group, data, "not on the curve")
  assert unchecked(bytes(data)).to_ints() is not None
  with pytest.raises(FormatError, match="not on the curve"):
    decode(bytes(data), check="points")
  outside = next(p for p in curve_points(group, 4) if not group.is_in_subgroup(p))
  for compressed in (True, False):
    data = encode_point(group, outside, compressed)
    refused(group, data, "subgroup")
    assert decode(data, check="points").to_ints() == outside
    assert unchecked(data).to_ints() == outside
  x = next(x for x in range(100) if group.field.sqrt(group.curve_equation((x, 1) if group is G2 else x)) is None)
  data = bytearray(encode_point(group, group.generator, True))
  data[:] = bytes([0x80]) + bytes(46) + bytes([1 if group is G2 else x]) + (bytes(47) + bytes([x]) if group is G2 else b"")
  refused(group, data, "no point")


@GROUP
def test_wrong_lengths_are_refused(group):
  data = encode_point(group, group.generator, True)
  for length in (0, 1, len(data) - 1, len(data) + 1, 3 * len(data)):
    refused(group, (data * 4)[:length], "bytes")
  refused(group, data * 2, "bytes", count=3)
  refused(group, data, "bytes", count=-1)
  with pytest.raises(ValueError, match="check must be"):
    CODECS[group][2](data, check="none")


def test_error_offset_is_that_of_the_bad_point():
  good, bad = encode_point(G1, G1.generator, True), bytes([0x80]) + bytes(47)
  bad = encode_point(G1, curve_points(G1, 1)[0], True) if G1.is_in_subgroup(curve_points(G1, 1)[0]) is False else bad
  with pytest.raises(FormatError) as info:
    points.g1_from_bytes(good + good + bad, 3)
  assert info.value.offset == 96


def test_proof_bytes_round_trip_and_layout():
  for name in ("", "det_r0_s0/", "det_r7_s11/"):
    proof = snarkjs.read_proof(DATA / "mul" / f"{name}proof.json")
    data = points.proof_to_bytes(proof)
    assert len(data) == 192
    assert data == points.g1_to_bytes(proof.a) + points.g2_to_bytes(proof.b) + points.g1_to_bytes(proof.c)
    again = points.proof_from_bytes(data)
    assert [again.a.to_ints(), again.b.to_ints(), again.c.to_ints()] == [proof.a.to_ints(), proof.b.to_ints(), proof.c.to_ints()]


@pytest.mark.parametrize("start,group", [(0, G1), (48, G2), (144, G1)])
def test_proof_with_infinity_is_refused(start, group):
  proof = snarkjs.read_proof(DATA / "mul" / "proof.json")
  data = bytearray(points.proof_to_bytes(proof))
  infinity = encode_point(group, None, True)
  data[start:start + len(infinity)] = infinity
  with pytest.raises(FormatError, match="infinity") as info:
    points.proof_from_bytes(bytes(data))
  assert info.value.offset == start
  parts = [proof.a, proof.b, proof.c]
  parts[(0, 48, 144).index(start)] = Affine.from_ints(CODECS[group][0], None)
  with pytest.raises(ValueError, match="infinity"):
    points.proof_to_bytes(Proof(*parts))


@pytest.mark.parametrize("group,reference,cofactor", GROUPS, ids=["G1", "G2"])
def test_subgroup_check_agrees_with_multiplication_by_r(group, reference, cofactor):
  samples = curve_points(group, 12)
  torsion = [group.multiply(p, R) for p in samples]
  samples += torsion + [group.multiply(t, cofactor // q) for t in torsion[:4] for q in ((3, 11) if group is G1 else (13, 23))]
  samples += [group.add(group.generator, t) for t in torsion[:4]] + [group.multiply(p, cofactor) for p in samples[:4]]
  inside = [group.is_in_subgroup(p) for p in samples]
  assert inside == [group.multiply(p, R) is None for p in samples]
  assert {True, False} == set(inside)
  assert all(group.is_on_curve(p) for p in samples)


@pytest.mark.parametrize("group,reference,cofactor", GROUPS, ids=["G1", "G2"])
def test_integer_group_agrees_with_the_oracle(group, reference, cofactor):
  g = group.generator
  samples = [None, g, group.negate(g), group.double(g), group.multiply(g, 5), curve_points(group, 1)[0]]
  for p in samples:
    assert group.double(p) == reference.add(p, p)
    assert group.add(p, group.negate(p)) is None
    for q in samples:
      assert group.add(p, q) == reference.add(p, q)
  assert group.sum(samples) == group.add(group.multiply(g, 7), samples[-1])
  assert group.multiply(g, -3) == group.negate(group.multiply(g, 3))
  assert not group.is_on_curve((g[0], group.field.add(g[1], group.field.one)))


def test_square_roots_in_fp2():
  rng = np.random.default_rng(5)
  draw = lambda: int.from_bytes(rng.bytes(48), "big") % P
  for a in [(0, 0), (1, 0), (P - 1, 0), (0, 1), (4, 4)] + [(draw(), draw()) for _ in range(20)] + [(0, draw()), (draw(), 0)]:
    square, root = IntFp2.square(a), IntFp2.sqrt(a)
    assert IntFp2.sqrt(square) in (a, IntFp2.negate(a))
    is_square = a == (0, 0) or pow(a[0]**2 + a[1]**2, (P - 1) // 2, P) == 1        # the norm of a square is a square
    assert (root is not None) == is_square and (root is None or IntFp2.square(root) == a)


def test_first_not_below_compares_whole_numbers():
  values = [0, R - 1, R, R + 1, 2**256 - 1, R - 2**32, R + 2**32, R - 2**224, R + 2**224]
  rows = lambda vs: np.frombuffer(b"".join(v.to_bytes(32, "little") for v in vs), "<u4").reshape(-1, 8)
  for i, value in enumerate(values):
    assert first_not_below(rows([value]), R) == (None if value < R else 0), i
  assert first_not_below(rows([0, R - 1, 5, R]), R) == 3
  assert first_not_below(rows([]), R) is None


def test_check_points_names_the_first_bad_point():
  good, off = G1.generator, (1, 1)
  batch = Affine.from_ints(Fp, [good, None, off, off])
  with pytest.raises(FormatError, match="query 2 is not on the curve") as info:
    check_points(batch, "points", "query", Place("f", 5, 100), offset=4, stride=96)
  assert info.value.offset == 100 + 4 + 2 * 96
  check_points(batch, "none", "query", Place("f", 5), stride=96)


def test_many_points_are_checked_in_blocks(monkeypatch):
  monkeypatch.setattr(checks, "_FEW_POINTS", 2)
  monkeypatch.setattr(checks, "_BLOCK_POINTS", 4)
  for field, group in ((Fp, G1), (Fp2, G2)):
    for count in (3, 4, 5, 8, 9):
      batch = [group.multiply(group.generator, k + 1) for k in range(count)]
      check_points(Affine.from_ints(field, batch), "points", "query", Place("f", 5), stride=96)
      for bad in (0, count - 1):
        x, y = batch[bad]
        changed = batch[:bad] + [(x, group.field.add(y, group.field.one))] + batch[bad + 1:]
        with pytest.raises(FormatError, match=f"query {bad} is not on the curve"):
          check_points(Affine.from_ints(field, changed), "points", "query", Place("f", 5), stride=96)


def test_decode_point_reports_its_place():
  with pytest.raises(FormatError) as info:
    decode_point(G1, bytes(48), "full", Place("file.bin", "h", 1000))
  assert (info.value.file, info.value.section, info.value.offset) == ("file.bin", "h", 1000)
