"""bellman's keys, parameters and proofs: layout against formats written by hand, round trips, and everything that is refused."""
import dataclasses
import pathlib

import pytest

from zkjax.groth16.formats import bellman, snarkjs
from zkjax.groth16.formats.points import encode_point
from zkjax.groth16.types import FormatError
from zkjax.ops.bls12_381 import P
from zkjax.ops.curve import Affine
from zkjax.ops.field import Fp, Fp2
from zkjax.ops.int_curve import G1, G2

DATA = pathlib.Path(__file__).parent / "data"


def multiples(group, *scalars):
  return [group.multiply(group.generator, k) for k in scalars]


# Not a key of any circuit: distinct points, so that no two places of the file can be confused.
KEY = dict(alpha_g1=multiples(G1, 2), beta_g1=multiples(G1, 3), beta_g2=multiples(G2, 3), gamma_g2=multiples(G2, 5),
           delta_g1=multiples(G1, 7), delta_g2=multiples(G2, 7))
IC = multiples(G1, 11, 13)
LISTS = dict(h=multiples(G1, 21, 22, 23), l=multiples(G1, 31, 32), a=multiples(G1, 41, 42, 43), b_g1=multiples(G1, 51, 52),
             b_g2=multiples(G2, 51, 52))


def group_of(name):
  return G2 if name.endswith("g2") else G1


def encode(name, points):
  return b"".join(encode_point(group_of(name), p, False) for p in points)


def counted(name, points):
  return len(points).to_bytes(4, "big") + encode(name, points)


def key_bytes(ic=IC, **changes):
  return b"".join(encode(name, points) for name, points in (KEY | changes).items()) + counted("ic", ic)


def parameter_bytes(**changes):
  return key_bytes() + b"".join(counted(name, points) for name, points in (LISTS | changes).items())


def affine(name, points):
  return Affine.from_ints(Fp2 if group_of(name) is G2 else Fp, points)


def read(tmp_path, data, reader, **kwargs):
  path = tmp_path / "file.params"
  path.write_bytes(data)
  return reader(path, **kwargs)


def refused(tmp_path, data, reader, match, **kwargs):
  with pytest.raises(FormatError, match=match) as info:
    read(tmp_path, data, reader, **kwargs)
  return info.value


def test_verifying_key_layout(tmp_path):
  data = key_bytes()
  assert len(data) == 864 + 4 + 96 * len(IC)
  key = read(tmp_path, data, bellman.read_verifying_key)
  for name, points in KEY.items():
    assert getattr(key if hasattr(key, name) else key.vk, name).to_ints() == points[0]
  assert key.vk.public_query.to_ints() == IC
  bellman.write_verifying_key(tmp_path / "again", key)
  assert (tmp_path / "again").read_bytes() == data


def test_parameters_layout(tmp_path):
  data = parameter_bytes()
  for check in ("none", "points", "full"):
    parameters = read(tmp_path, data, bellman.read_parameters, check=check)
    assert parameters.vk.public_query.to_ints() == IC and parameters.delta_g1.to_ints() == KEY["delta_g1"][0]
    for name, points in LISTS.items():
      assert getattr(parameters, name).to_ints() == points
  bellman.write_parameters(tmp_path / "again", parameters)
  assert (tmp_path / "again").read_bytes() == data


def test_empty_lists(tmp_path):
  data = parameter_bytes(h=[], l=[], a=LISTS["a"][:2], b_g1=[], b_g2=[])
  parameters = read(tmp_path, data, bellman.read_parameters)
  assert parameters.h.x.shape == (0,) and parameters.b_g2.x.shape == (0,)
  bellman.write_parameters(tmp_path / "again", parameters)
  assert (tmp_path / "again").read_bytes() == data


def test_key_of_a_circuit_survives(tmp_path):
  key = snarkjs.read_zkey(DATA / "mul/mul.zkey")
  bellman.write_verifying_key(tmp_path / "vk", bellman.BellmanVerifyingKey(key.vk, key.beta_g1, key.delta_g1))
  again = bellman.read_verifying_key(tmp_path / "vk")
  vk = snarkjs.read_vkey(DATA / "mul/vkey.json")
  for name in ("alpha_g1", "beta_g2", "gamma_g2", "delta_g2", "public_query"):
    assert getattr(again.vk, name).to_ints() == getattr(vk, name).to_ints()


def test_trailing_bytes_are_refused_unless_allowed(tmp_path):
  assert refused(tmp_path, parameter_bytes() + b"\0", bellman.read_parameters, "1 bytes follow").offset == len(parameter_bytes())
  refused(tmp_path, key_bytes() + b"\0", bellman.read_verifying_key, "1 bytes follow")
  assert read(tmp_path, parameter_bytes() + b"hash", bellman.read_parameters, allow_trailing=True).h.to_ints() == LISTS["h"]


def test_uncontributed_keys_are_refused_unless_allowed(tmp_path):
  data = key_bytes(delta_g2=KEY["gamma_g2"])
  assert refused(tmp_path, data, bellman.read_verifying_key, "nobody contributed").offset == 672
  assert read(tmp_path, data, bellman.read_verifying_key, allow_uncontributed=True).vk.public_query.to_ints() == IC


@pytest.mark.parametrize("changes,match", [
    (dict(h=LISTS["h"][:2]), "h has 2 points"), (dict(a=LISTS["a"][:1]), "a has 1 points"), (dict(a=LISTS["a"] + IC), "a has 5 points"),
    (dict(b_g1=LISTS["h"] + IC, b_g2=[]), "b_g1 has 5"), (dict(b_g2=LISTS["b_g2"][:1]), "b_g2 has 1 points and b_g1 2"),
])
def test_counts_that_disagree_are_refused(changes, match, tmp_path):
  refused(tmp_path, parameter_bytes(**changes), bellman.read_parameters, match)


def test_ic_needs_the_constant(tmp_path):
  refused(tmp_path, key_bytes(ic=[]), bellman.read_verifying_key, "constant")


@pytest.mark.parametrize("name", list(LISTS))
def test_infinity_is_refused_however_it_is_written(name, tmp_path):
  points = list(LISTS[name])
  size = 192 if name == "b_g2" else 96
  where = parameter_bytes().index(encode(name, points))
  for bad, match in ((b"\x40" + bytes(size - 1), "infinity"), (bytes(size), "zero"), (b"\x40" + bytes(size - 2) + b"\1", "infinity")):
    data = bytearray(parameter_bytes())
    data[where + size:where + 2 * size] = bad
    error = refused(tmp_path, bytes(data), bellman.read_parameters, f"point 1 is {match}")
    assert (error.section, error.offset) == (name, where + size)
  parameters = read(tmp_path, parameter_bytes(), bellman.read_parameters)
  with pytest.raises(ValueError, match="infinity"):
    bellman.write_parameters(tmp_path / "bad", dataclasses.replace(parameters, **{name: affine(name, [points[0], None])}))
  assert not (tmp_path / "bad").exists() and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", list(KEY) + ["h", "b_g2"])
def test_bad_points_are_refused(name, tmp_path):
  data = bytearray(parameter_bytes())
  where = data.index(encode(name, (KEY | LISTS)[name]))
  for offset, new, match in ((0, b"\x80", "flags"), (0, b"\x20", "flags"), (0, P.to_bytes(48, "big"), "modulus"), (95, None, "curve"),
                             (48, P.to_bytes(48, "big"), "modulus")):
    bad = bytearray(data)
    bad[where + offset:where + offset + len(new or b"x")] = new or bytes([bad[where + offset] ^ 1])
    error = refused(tmp_path, bytes(bad), bellman.read_parameters, match)
    assert error.section == name and where <= error.offset <= where + 192


@pytest.mark.parametrize("group", [G1, G2], ids=["G1", "G2"])
def test_points_outside_the_subgroup_are_found_by_the_full_check(group, tmp_path):
  xs = [(x, 1) if group is G2 else x for x in range(20)]
  outside = next((x, y) for x in xs if (y := group.field.sqrt(group.curve_equation(x))) and not group.is_in_subgroup((x, y)))
  data = parameter_bytes(h=[outside] * 3) if group is G1 else parameter_bytes(b_g2=[LISTS["b_g2"][0], outside])
  assert read(tmp_path, data, bellman.read_parameters) is not None
  refused(tmp_path, data, bellman.read_parameters, "subgroup", check="full")
  refused(tmp_path, key_bytes(alpha_g1=[outside]) if group is G1 else key_bytes(gamma_g2=[outside]), bellman.read_verifying_key, "subgroup")


def test_huge_counts_are_refused(tmp_path):
  data = key_bytes()
  refused(tmp_path, data[:864] + b"\xff" * 4 + data[868:], bellman.read_verifying_key, "bytes expected")
  refused(tmp_path, b"", bellman.read_parameters, "empty")
  with pytest.raises(OSError):
    bellman.read_parameters(tmp_path)
  with pytest.raises(ValueError, match="check must be"):
    read(tmp_path, data, bellman.read_parameters, check="some")


def test_proofs_one_after_the_other(tmp_path):
  proofs = [snarkjs.read_proof(DATA / "mul" / name) for name in ("proof.json", "det_r0_s0/proof.json", "det_r7_s11/proof.json")]
  bellman.write_proofs(tmp_path / "proofs", proofs)
  data = (tmp_path / "proofs").read_bytes()
  assert len(data) == 3 * 192
  again = bellman.read_proofs(tmp_path / "proofs")
  assert [snarkjs.proof_to_json(p) for p in again] == [snarkjs.proof_to_json(p) for p in proofs]
  assert bellman.proofs_from_bytes(b"") == [] and bellman.proofs_to_bytes([]) == b""
  refused(tmp_path, data[:-1], bellman.read_proofs, "multiple of 192")
  bad = bytearray(data)
  bad[192 + 48] ^= 0x80
  error = refused(tmp_path, bytes(bad), bellman.read_proofs, "compression flag")
  assert error.section == "proof 1" and error.offset == 192 + 48
