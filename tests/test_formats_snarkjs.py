"""zkey, vkey, proof and public files: byte round trips of snarkjs' files, what they mean, and everything that is refused."""
import copy
import dataclasses
import json
import tracemalloc

import numpy as np
import oracle
import pytest
from shared_files import DATA, circuit, u32

from zkjax.groth16.formats import snarkjs, zkey
from zkjax.groth16.formats.circom import read_r1cs, read_wtns
from zkjax.groth16.pairing import pairing
from zkjax.groth16.types import FormatError
from zkjax.ops.bls12_381 import P, R
from zkjax.ops.curve import Affine
from zkjax.ops.field import Fp
from zkjax.ops.int_curve import G1, G2
from zkjax.ops.ntt import Domain

NAMES = ["mul", "chain10", "chain12", "edge_addonly", "edge_bits", "edge_linear", "edge_nopub", "edge_pow2exact", "edge_unused",
         "edge_zeroconstr", "merkle20_poseidon", "sha256_64"]
MUL = DATA / "mul/mul.zkey"


def split(data):
  """{type: payload} of a container, in file order."""
  sections, offset = {}, 12
  while offset < len(data):
    size = int.from_bytes(data[offset + 4:offset + 12], "little")
    sections[int.from_bytes(data[offset:offset + 4], "little")] = data[offset + 12:offset + 12 + size]
    offset += 12 + size
  return sections


def join(sections, version=1):
  body = b"".join(u32(kind) + len(data).to_bytes(8, "little") + data for kind, data in sections)
  return b"zkey" + u32(version) + u32(len(sections)) + body


def patch(payload, offset, new):
  return payload[:offset] + new + payload[offset + len(new):]


def refused(tmp_path, data, match, **kwargs):
  path = tmp_path / "bad.zkey"
  path.write_bytes(data)
  with pytest.raises(FormatError, match=match) as info:
    snarkjs.read_zkey(path, **kwargs)
  assert str(path) in str(info.value)
  return info.value


@pytest.mark.parametrize("name", NAMES)
def test_zkey_round_trip_to_the_byte(name, tmp_path):
  path = circuit(name) / f"{name}.zkey"
  key = snarkjs.read_zkey(path, check="none")
  snarkjs.write_zkey(tmp_path / "again.zkey", key, snarkjs.read_zkey_ceremony(path))
  assert (tmp_path / "again.zkey").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["mul", "edge_addonly", "edge_linear", "edge_nopub", "edge_unused", "edge_zeroconstr", "chain10"])
def test_zkey_agrees_with_the_circuit_and_the_vkey(name):
  folder = circuit(name)
  key = snarkjs.read_zkey(folder / f"{name}.zkey", check="points" if name == "chain10" else "full")
  vk = snarkjs.read_vkey(folder / "vkey.json")
  for field in ("alpha_g1", "beta_g2", "gamma_g2", "delta_g2", "public_query"):
    assert getattr(key.vk, field).to_ints() == getattr(vk, field).to_ints()
  expected = read_r1cs(folder / f"{name}.r1cs").constraints()
  assert (key.num_wires, key.num_public) == (expected.num_wires, expected.num_public)
  assert key.constraints.num_rows == expected.num_rows and key.constraints.c is None
  assert key.domain == Domain((expected.num_rows - 1).bit_length(), 5, 1) and key.h_basis == "coset"
  for got, want in ((key.constraints.a, expected.a), (key.constraints.b, expected.b)):
    entries = lambda m: sorted(zip(np.asarray(m.rows).tolist(), np.asarray(m.wires).tolist(), np.array(m.values.to_ints()).tolist()))
    assert entries(got) == entries(want)


def test_zkey_points_are_views_of_the_file():
  key = snarkjs.read_zkey(MUL)
  limbs = key.b_g2_query.x.c1.limbs
  assert limbs.shape == (12, 4) and limbs.dtype == np.uint32 and not limbs.flags.owndata and not limbs.flags.writeable
  root = limbs
  while isinstance(root, np.ndarray) and root.base is not None:
    root = root.base
  assert not isinstance(root, np.ndarray)                        # the memory map


def test_evaluations_of_the_zkey_match_an_independent_prover():
  constraints = snarkjs.read_zkey(MUL).constraints
  witness = read_wtns(DATA / "mul/witness.wtns").to_ints()
  rows = [0] * 4
  for row, wire, value in zip(constraints.a.rows.tolist(), constraints.a.wires.tolist(), constraints.a.values.to_ints()):
    rows[row] += value * witness[wire]
  assert [v % R for v in rows] == [R - 3, 1, 33, 0]


def test_zkey_sections_in_any_order_with_unknown_ones(tmp_path):
  sections = split(MUL.read_bytes())
  order = [99, 10, 4, 2, 9, 1, 99, 3, 8, 7, 6, 5]
  data = join([(kind, b"\x01\x02\x03" if kind == 99 else sections[kind]) for kind in order], version=2)
  (tmp_path / "x.zkey").write_bytes(data)
  snarkjs.write_zkey(tmp_path / "y.zkey", snarkjs.read_zkey(tmp_path / "x.zkey"), snarkjs.read_zkey_ceremony(tmp_path / "x.zkey"))
  assert (tmp_path / "y.zkey").read_bytes() == MUL.read_bytes()


def test_a_key_without_ceremony_has_no_contribution(tmp_path):
  snarkjs.write_zkey(tmp_path / "x.zkey", snarkjs.read_zkey(MUL))
  assert snarkjs.read_zkey_ceremony(tmp_path / "x.zkey") == snarkjs.Ceremony()
  old, new = split(MUL.read_bytes()), split((tmp_path / "x.zkey").read_bytes())
  assert list(new) == list(range(1, 11)) and new.pop(10) == bytes(68) and old.pop(10) and old == new


def test_ceremony_of_mul():
  ceremony = snarkjs.read_zkey_ceremony(MUL)
  assert len(ceremony.circuit_hash) == 64 and len(ceremony.contributions) == 1
  assert ceremony.contributions[0].kind == 0 and ceremony.contributions[0].points[:96] == split(MUL.read_bytes())[2][676:772]


def test_uncontributed_keys_are_refused_unless_allowed(tmp_path):
  key_path, vk_path = DATA / "rejected/mul_uncontributed.zkey", DATA / "rejected/mul_uncontributed_vkey.json"
  for read, path in ((snarkjs.read_zkey, key_path), (snarkjs.read_vkey, vk_path)):
    with pytest.raises(FormatError, match="nobody contributed"):
      read(path)
  key = snarkjs.read_zkey(key_path, allow_uncontributed=True)
  vk = snarkjs.read_vkey(vk_path, allow_uncontributed=True)
  assert key.vk.delta_g2.to_ints() == key.vk.gamma_g2.to_ints() == vk.delta_g2.to_ints()
  assert key.h_query.to_ints() != [] and snarkjs.read_zkey_ceremony(key_path).contributions == ()


ZKEY_FIELDS = [
    (1, 0, u32(2), "protocol 2"), (1, 0, u32(10), "protocol 10"),
    (2, 0, u32(32), "base field"), (2, 4, (P + 2).to_bytes(48, "little"), "base field"), (2, 52, u32(48), "scalar field"),
    (2, 56, (R + 2).to_bytes(32, "little"), "scalar field"),
    (2, 88, u32(1), "do not fit"), (2, 88, u32(5), "5 points"), (2, 88, u32(3), "wire 3"), (2, 88, u32(2**31), "do not fit"),
    (2, 92, u32(0), "1 points of public_query"), (2, 92, u32(2), "3 points"), (2, 92, u32(4), "do not fit"),
    (2, 92, u32(2**32 - 1), "do not fit"),
    (2, 96, u32(0), "power of two"), (2, 96, u32(3), "power of two"), (2, 96, u32(8), "8 points of h_query"),
    (2, 96, u32(2), "row 2"), (2, 96, u32(2**31), "points of h_query"),
    (2, 100, P.to_bytes(48, "little"), "modulus"), (2, 100, b"\x01", "not on the curve"), (2, 100, bytes(96), "infinity"),
    (2, 292, bytes(192), "infinity"), (2, 484, bytes(192), "infinity"), (2, 772, bytes(192), "infinity"),
    (2, 772 + 144, P.to_bytes(48, "little"), "modulus"),
    (3, 0, b"\xff" * 48, "modulus"), (3, 96, b"\x01", "point 1 is not on the curve"),
    (4, 0, u32(3), "3 entries"), (4, 0, u32(5), "5 entries"), (4, 0, u32(2**32 - 1), "entries"),
    (4, 4, u32(2), "matrix 2"), (4, 8, u32(4), "row 4"), (4, 12, u32(4), "wire 4"), (4, 12, u32(2**32 - 1), "wire"),
    (4, 16, R.to_bytes(32, "little"), "modulus"), (4, 4 + 44 * 3 + 12, b"\xff" * 32, "value of entry 3"),
    (5, 48, b"\x01", "not on the curve"), (6, 0, P.to_bytes(48, "little"), "modulus"), (7, 191, b"\xff", "modulus"),
    (8, 95, b"\x00", "not on the curve"), (9, 96 * 3, b"\x00" * 48, "point 3"),
    (10, 64, u32(0), "follow the last contribution"), (10, 64, u32(2), "contributions"), (10, 64, u32(2**32 - 1), "contributions"),
    (10, 68 + 548, u32(2**32 - 1), "leaves the section"),
]


@pytest.mark.parametrize("kind,offset,new,match", ZKEY_FIELDS)
def test_zkey_fields_that_do_not_fit_are_refused(kind, offset, new, match, tmp_path):
  sections = split(MUL.read_bytes())
  sections[kind] = patch(sections[kind], offset, new)
  error = refused(tmp_path, join(list(sections.items())), match)
  assert error.section == kind or error.section in (3, 4, 5, 8, 9)          # where the count in the header is contradicted


def test_zkey_error_offset_is_that_of_the_bad_point(tmp_path):
  data = bytearray(MUL.read_bytes())
  at = bytes(data).index(split(bytes(data))[9]) + 2 * 96
  data[at] ^= 1
  assert refused(tmp_path, bytes(data), "point 2 is not on the curve").offset == at
  (tmp_path / "x.zkey").write_bytes(data)
  snarkjs.read_zkey(tmp_path / "x.zkey", check="none")


def test_points_outside_the_subgroup_are_found_by_the_full_check(tmp_path):
  outside = next((x, y) for x in range(9) if (y := G1.field.sqrt(G1.curve_equation(x))) and not G1.is_in_subgroup((x, y)))
  sections = split(MUL.read_bytes())
  sections[5] = patch(sections[5], 96, b"".join((c * 2**384 % P).to_bytes(48, "little") for c in outside))
  data = join(list(sections.items()))
  (tmp_path / "x.zkey").write_bytes(data)
  assert snarkjs.read_zkey(tmp_path / "x.zkey").a_query.to_ints()[1] == outside
  refused(tmp_path, data, "subgroup", check="full")
  with pytest.raises(ValueError, match="check must be"):
    snarkjs.read_zkey(MUL, check="some")


def test_zkey_frames_that_are_wrong_are_refused(tmp_path):
  good = MUL.read_bytes()
  sections = split(good)
  refused(tmp_path, b"", "empty")
  refused(tmp_path, b"zkez" + good[4:], "magic")
  refused(tmp_path, join(list(sections.items()), version=3), "version 3")
  refused(tmp_path, good + b"x", "follow the last section")
  refused(tmp_path, good[:-300], "section 10")
  for kind in range(1, 10):
    refused(tmp_path, join([s for s in sections.items() if s[0] != kind]), "missing")
    refused(tmp_path, join(list(sections.items()) + [(kind, sections[kind])]), "twice")
    refused(tmp_path, join([(k, v[:-1] if k == kind else v) for k, v in sections.items()]), "bytes|entries")
    refused(tmp_path, join([(k, v + b"\0" if k == kind else v) for k, v in sections.items()]), "bytes|entries")
  with pytest.raises(FileNotFoundError):
    snarkjs.read_zkey(tmp_path / "absent")
  with pytest.raises(OSError):
    snarkjs.read_zkey(tmp_path)


def test_zkey_without_ceremony_section_is_a_key(tmp_path):
  sections = split(MUL.read_bytes())
  del sections[10]
  (tmp_path / "x.zkey").write_bytes(join(list(sections.items())))
  assert snarkjs.read_zkey(tmp_path / "x.zkey").num_wires == 4
  with pytest.raises(FormatError, match="missing"):
    snarkjs.read_zkey_ceremony(tmp_path / "x.zkey")


def test_zkey_counts_are_checked_before_memory_is_taken(tmp_path):
  for kind, offset in ((2, 88), (2, 96), (4, 0), (10, 64)):
    sections = split(MUL.read_bytes())
    sections[kind] = patch(sections[kind], offset, u32(2**30))
    tracemalloc.start()
    refused(tmp_path, join(list(sections.items())), "section")
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_keys_that_a_zkey_cannot_hold_are_not_written(tmp_path):
  key, target = snarkjs.read_zkey(MUL), tmp_path / "x.zkey"
  target.write_bytes(b"old")
  short = Affine.from_ints(Fp, [None])
  bad = [dict(h_basis="monomial"), dict(domain=Domain(2, 7)), dict(domain=Domain(3, 5)), dict(domain=Domain(2, 5, 5)),
         dict(a_query=short), dict(l_query=short), dict(vk=dataclasses.replace(key.vk, public_query=short)),
         dict(constraints=dataclasses.replace(key.constraints, num_rows=5))]
  for change in bad:
    with pytest.raises(ValueError):
      snarkjs.write_zkey(target, dataclasses.replace(key, **change))
  for ceremony in (snarkjs.Ceremony(bytes(63)), snarkjs.Ceremony(contributions=(snarkjs.Contribution(b"", bytes(64), 0, b""),))):
    with pytest.raises(ValueError, match="64"):
      snarkjs.write_zkey(target, key, ceremony)
  assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]


def test_zkey_can_replace_the_file_it_was_read_from(tmp_path):
  path = tmp_path / "x.zkey"
  path.write_bytes(MUL.read_bytes())
  key = snarkjs.read_zkey(path)
  snarkjs.write_zkey(path, key, snarkjs.read_zkey_ceremony(path))
  assert path.read_bytes() == MUL.read_bytes()


@pytest.mark.parametrize("name", NAMES + ["chain14", "chain16"])
def test_json_round_trip_to_the_byte(name, tmp_path):
  folder, again = circuit(name), tmp_path / "again.json"
  for path in sorted(folder.glob("**/proof.json")):
    snarkjs.write_proof(again, snarkjs.read_proof(path))
    assert again.read_bytes() == path.read_bytes()
  snarkjs.write_public(again, snarkjs.read_public(folder / "public.json"))
  assert again.read_bytes() == (folder / "public.json").read_bytes()
  vk = snarkjs.read_vkey(folder / "vkey.json")
  snarkjs.write_vkey(again, vk, pairing(vk.alpha_g1.to_ints(), vk.beta_g2.to_ints()))
  assert again.read_bytes() == (folder / "vkey.json").read_bytes()
  snarkjs.write_vkey(again, vk)
  assert "vk_alphabeta_12" not in json.loads(again.read_text())
  assert snarkjs.read_vkey(again).public_query.to_ints() == vk.public_query.to_ints()


def load(name):
  return json.loads((DATA / "mul" / name).read_text())


def test_numbers_may_be_integers_and_hexadecimal():
  proof = load("proof.json")
  expected = snarkjs.proof_from_json(proof)
  proof["pi_a"] = [int(proof["pi_a"][0]), hex(int(proof["pi_a"][1])), 1]
  assert snarkjs.proof_from_json(proof).a.to_ints() == expected.a.to_ints()
  assert snarkjs.public_from_json(["0x21", 33, "33", str(R - 1), "0x00"]) == [33, 33, 33, R - 1, 0]


BAD_NUMBERS = ["", " 33", "33 ", "-1", "+1", "3_3", "0x", "0xg", "0X21", "1e3", "33.0", "\u0663", -1, 1.0, True, None, [], {}, "9" * 200]


@pytest.mark.parametrize("value", BAD_NUMBERS + [R, R + 33, str(R), hex(R)], ids=repr)
def test_bad_public_values_are_refused(value):
  with pytest.raises(FormatError) as info:
    snarkjs.public_from_json([33, value])
  assert info.value.section == "value 1"


@pytest.mark.parametrize("value", BAD_NUMBERS + [P, str(P + 5)], ids=repr)
def test_bad_coordinates_are_refused(value):
  proof = load("proof.json")
  for member, change in (("pi_a", [value, proof["pi_a"][1], "1"]), ("pi_b", [proof["pi_b"][0], [proof["pi_b"][1][0], value], ["1", "0"]])):
    with pytest.raises(FormatError) as info:
      snarkjs.proof_from_json(proof | {member: change}, file="p.json")
    assert info.value.section == member and info.value.file == "p.json"


def test_points_of_another_shape_are_refused():
  proof = load("proof.json")
  a, b = proof["pi_a"], proof["pi_b"]
  for bad in (None, "1", 5, {}, [], a[:2], a + ["1"], [a[0], a[1], "2"], [a[0], a[1], "0"], ["0", "0", "0"], ["0", "0", "1"],
              [[v] for v in a], b):
    with pytest.raises(FormatError):
      snarkjs.proof_from_json(proof | {"pi_a": bad})
  for bad in (None, a, [], b[:2], b + [["1", "0"]], [b[0], b[1], ["0", "1"]], [b[0], b[1], "1"], [b[0] * 2, b[1], b[2]], [["0", "0"]] * 3):
    with pytest.raises(FormatError):
      snarkjs.proof_from_json(proof | {"pi_b": bad})


def test_infinity_in_json():
  proof = load("proof.json") | {"pi_a": ["0", "1", "0"], "pi_b": [["0", "0"], ["1", "0"], ["0", "0"]]}
  read = snarkjs.proof_from_json(proof)
  assert read.a.to_ints() is None and read.b.to_ints() is None and snarkjs.proof_to_json(read) == proof
  vk = load("vkey.json")
  for name in ("vk_alpha_1", "vk_beta_2", "vk_gamma_2", "vk_delta_2"):
    value = proof["pi_a" if name == "vk_alpha_1" else "pi_b"]
    with pytest.raises(FormatError, match="infinity"):
      snarkjs.vkey_from_json(vk | {name: value})


@pytest.mark.parametrize("name,match", [("A_not_in_subgroup", "pi_a.*subgroup"), ("A_not_on_curve", "pi_a.*curve"),
                                        ("B_not_in_subgroup", "pi_b.*subgroup")])
def test_rejected_proofs(name, match):
  with pytest.raises(FormatError, match=match):
    snarkjs.read_proof(DATA / "rejected" / f"proof_{name}.json")


def test_a_rescaled_proof_is_well_formed():
  assert snarkjs.read_proof(DATA / "rejected/proof_scaled.json").a.to_ints() != snarkjs.read_proof(DATA / "mul/proof.json").a.to_ints()


@pytest.mark.parametrize("name,convert", [("vkey.json", snarkjs.vkey_from_json), ("proof.json", snarkjs.proof_from_json)])
def test_protocol_and_curve_are_required(name, convert):
  data = load(name)
  for member in data:
    if member != "vk_alphabeta_12":
      with pytest.raises(FormatError, match="missing"):
        convert({k: v for k, v in data.items() if k != member})
  for change in (dict(protocol="plonk"), dict(curve="bn128"), dict(curve=None), dict(protocol=["groth16"]), dict(curve="BLS12381")):
    with pytest.raises(FormatError, match="expected"):
      convert(data | change)
  for other in (None, [], "x", 3, [data]):
    with pytest.raises(FormatError, match="object"):
      convert(other)
  convert(data | {"unknown": [1, 2]})


def test_vkey_counts_must_agree():
  vk = load("vkey.json")
  ic = vk["IC"]
  for change in (dict(nPublic=0), dict(nPublic=2), dict(nPublic="1"), dict(nPublic=True), dict(nPublic=-1, IC=[]), dict(IC=ic[:1]),
                 dict(IC=ic * 2), dict(IC=None), dict(IC="ab"), dict(IC={"0": ic[0], "1": ic[1]})):
    with pytest.raises(FormatError, match="IC"):
      snarkjs.vkey_from_json(vk | change)
  moved = copy.deepcopy(vk)
  moved["IC"][1][0] = "1"
  with pytest.raises(FormatError, match=r"IC\[1\].*curve"):
    snarkjs.vkey_from_json(moved)


@pytest.mark.parametrize("text", ["", "{", "[1,", "\ufeff[]", "nul", "[1] 2", '{"a":1,"a":2}', "[" * 100000, "[" + "9" * 5000 + "]",
                                  "NaN", "[Infinity]", b"\xff\xfe[\x00]\x00", b'["\xe9"]'], ids=lambda t: repr(t)[:20])
@pytest.mark.parametrize("read", [snarkjs.read_vkey, snarkjs.read_proof, snarkjs.read_public])
def test_what_is_not_json_is_refused(read, text, tmp_path):
  path = tmp_path / "x.json"
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  with pytest.raises(FormatError, match="x.json"):
    read(path)


def test_public_values_to_write_must_be_canonical(tmp_path):
  for values in ([R], [-1], [0, R + 1]):
    with pytest.raises(ValueError):
      snarkjs.write_public(tmp_path / "x.json", values)
  assert list(tmp_path.iterdir()) == []
  for other in (None, {}, "33", 33):
    with pytest.raises(FormatError, match="list"):
      snarkjs.public_from_json(other)


def test_large_json_is_not_parsed(tmp_path):
  with open(tmp_path / "x.json", "wb") as file:
    file.truncate(65 << 20)
  with pytest.raises(FormatError, match="at most"):
    snarkjs.read_public(tmp_path / "x.json")


def test_generators_of_the_key_are_those_of_the_oracle():
  assert snarkjs.read_zkey(MUL).vk.gamma_g2.to_ints() == G2.generator == oracle.G2
  assert set(zkey._QUERIES) == {"public_query", "a_query", "b_g1_query", "b_g2_query", "l_query", "h_query"}
