"""Files of snarkjs: the JSON of verifying keys, proofs and public values, and (from zkey.py) proving keys.

| file | member | value |
|---|---|---|
| vkey.json | protocol, curve | "groth16", "bls12381" |
| | nPublic | number of public values, a JSON number |
| | vk_alpha_1 | G1 |
| | vk_beta_2, vk_gamma_2, vk_delta_2 | G2 |
| | vk_alphabeta_12 | e(alpha, beta) as 2 x 3 x 2 numbers; verifiers ignore it and it may be absent |
| | IC | nPublic + 1 points of G1 |
| proof.json | pi_a, pi_b, pi_c | G1, G2, G1 |
| | protocol, curve | as above |
| public.json | | list of numbers below r |

| value | JSON |
|---|---|
| number | decimal string; integers and "0x" strings are read too |
| G1 | [x, y, "1"]; infinity ["0", "1", "0"] |
| G2 | [[x.c0, x.c1], [y.c0, y.c1], ["1", "0"]]; infinity [["0", "0"], ["1", "0"], ["0", "0"]] |

Unknown members are skipped. Written with one space of indent, as snarkjs does.
"""
import json
import os
import re

from zkjax.groth16.formats.container import replace_file
from zkjax.groth16.formats.zkey import Ceremony, Contribution, read_zkey, read_zkey_ceremony, write_zkey
from zkjax.groth16.types import FormatError, Proof, VerifyingKey
from zkjax.ops.bls12_381 import R
from zkjax.ops.curve import Affine
from zkjax.ops.field import Fp, Fp2
from zkjax.ops.int_curve import G1, G2

__all__ = ["Ceremony", "Contribution", "read_zkey", "read_zkey_ceremony", "write_zkey", "read_vkey", "write_vkey", "read_proof",
           "write_proof", "read_public", "write_public", "vkey_from_json", "vkey_to_json", "proof_from_json", "proof_to_json",
           "public_from_json", "public_to_json"]

_PROTOCOL, _CURVE = "groth16", "bls12381"
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,160}|[0-9]{1,160}")
_MAX_DEPTH = 16
_MAX_BYTES = 64 << 20                         # a JSON file becomes many small objects: bounded before it is parsed


def read_vkey(path, allow_uncontributed=False):
  """Reads a verifying key; see `vkey_from_json`. Raises: FormatError, OSError when there is no such file."""
  return vkey_from_json(_load(path), allow_uncontributed, file=path)


def read_proof(path):
  """Reads a proof; see `proof_from_json`. Raises: FormatError, OSError when there is no such file."""
  return proof_from_json(_load(path), file=path)


def read_public(path):
  """Reads the public values; see `public_from_json`. Raises: FormatError, OSError when there is no such file."""
  return public_from_json(_load(path), file=path)


def write_vkey(path, vk, alphabeta=None):
  """Writes a verifying key; arguments as in `vkey_to_json`."""
  _save(path, vkey_to_json(vk, alphabeta))


def write_proof(path, proof):
  """Writes a proof."""
  _save(path, proof_to_json(proof))


def write_public(path, values):
  """Writes the public values. Args: values: integers in [0, r). Raises: ValueError for others."""
  _save(path, public_to_json(values))


def vkey_from_json(data, allow_uncontributed=False, file=None):
  """The verifying key in a parsed vkey.json.

  Args: data: the parsed JSON. allow_uncontributed: accept delta = gamma, for which anybody can forge proofs. file: for messages.
  Returns: VerifyingKey, all points on the curve and in the subgroup, alpha, beta, gamma and delta not infinity.
  Raises: FormatError for another protocol or curve, a member missing or malformed, bad points, a length of IC other than nPublic + 1.
  """
  _expect_protocol(data, file)
  points = {}
  for name, group in (("vk_alpha_1", G1), ("vk_beta_2", G2), ("vk_gamma_2", G2), ("vk_delta_2", G2)):
    point = _point(group, _member(data, name, file), file, name)
    if point is None:
      raise FormatError("the point is infinity", file=file, section=name)
    points[name] = point
  if points["vk_delta_2"] == points["vk_gamma_2"] and not allow_uncontributed:
    raise FormatError("delta equals gamma: nobody contributed to this key, so anybody can forge proofs for it; "
                      "allow_uncontributed=True reads it all the same", file=file, section="vk_delta_2")
  num_public, queries = _member(data, "nPublic", file), _member(data, "IC", file)
  if type(num_public) is not int or num_public < 0 or not isinstance(queries, list) or len(queries) != num_public + 1:
    raise FormatError(f"IC must be a list of nPublic + 1 points, nPublic is {_show(num_public)}", file=file, section="IC")
  queries = [_point(G1, value, file, f"IC[{i}]") for i, value in enumerate(queries)]
  return VerifyingKey(Affine.from_ints(Fp, points["vk_alpha_1"]), Affine.from_ints(Fp2, points["vk_beta_2"]),
                      Affine.from_ints(Fp2, points["vk_gamma_2"]), Affine.from_ints(Fp2, points["vk_delta_2"]),
                      Affine.from_ints(Fp, queries))


def vkey_to_json(vk, alphabeta=None):
  """A verifying key as the object to put into vkey.json.

  Args: vk: VerifyingKey. alphabeta: e(alpha, beta) as `pairing.pairing` returns it, six pairs of ints that are the coefficients of
    w^0 ... w^5; None leaves vk_alphabeta_12 out. snarkjs nests Fp12 as Fp2[v]/(v^3 - xi)[w]/(w^2 - v): even powers of w first.
  """
  queries = [_g1_to_json(point) for point in vk.public_query.to_ints()]
  data = {"protocol": _PROTOCOL, "curve": _CURVE, "nPublic": len(queries) - 1, "vk_alpha_1": _g1_to_json(vk.alpha_g1.to_ints())}
  for name, point in (("vk_beta_2", vk.beta_g2), ("vk_gamma_2", vk.gamma_g2), ("vk_delta_2", vk.delta_g2)):
    data[name] = _g2_to_json(point.to_ints())
  if alphabeta is not None:
    data["vk_alphabeta_12"] = [[[str(int(v)) for v in pair] for pair in half] for half in (alphabeta[0::2], alphabeta[1::2])]
  return data | {"IC": queries}


def proof_from_json(data, file=None):
  """The proof in a parsed proof.json.

  Returns: Proof, each element on the curve and in the subgroup (infinity included).
  Raises: FormatError for another protocol or curve, a member missing or malformed, bad points.
  """
  _expect_protocol(data, file)
  parts = []
  for name, group, field in (("pi_a", G1, Fp), ("pi_b", G2, Fp2), ("pi_c", G1, Fp)):
    parts.append(Affine.from_ints(field, _point(group, _member(data, name, file), file, name)))
  return Proof(*parts)


def proof_to_json(proof):
  """A proof as the object to put into proof.json."""
  return {"pi_a": _g1_to_json(proof.a.to_ints()), "pi_b": _g2_to_json(proof.b.to_ints()), "pi_c": _g1_to_json(proof.c.to_ints()),
          "protocol": _PROTOCOL, "curve": _CURVE}


def public_from_json(data, file=None):
  """The public values in a parsed public.json. Returns: list of ints. Raises: FormatError unless all are numbers in [0, r)."""
  if not isinstance(data, list):
    raise FormatError("the public values must be a list", file=file)
  values = []
  for i, item in enumerate(data):
    values.append(_number(item, file, f"value {i}"))
    if values[-1] >= R:
      raise FormatError("a public value must be below r", file=file, section=f"value {i}")
  return values


def public_to_json(values):
  """Public values as the list to put into public.json. Raises: ValueError unless all are integers in [0, r)."""
  values = [int(v) for v in values]
  if not all(0 <= v < R for v in values):
    raise ValueError("public values must be in [0, r)")
  return [str(v) for v in values]


def _load(path):
  """Parsed JSON, or FormatError for whatever is wrong with it."""
  with open(path, "rb") as file:
    size = os.fstat(file.fileno()).st_size
    if size > _MAX_BYTES:
      raise FormatError(f"{size} bytes of JSON, at most {_MAX_BYTES} are read", file=path)
    data = file.read()
  if not data:
    raise FormatError("the file is empty", file=path, offset=0)
  try:
    return json.loads(_shallow(data.decode("utf-8")), object_pairs_hook=_unique_members)
  except json.JSONDecodeError as error:
    raise FormatError(f"not JSON: {error.msg}", file=path, offset=error.pos) from None
  except ValueError as error:                                    # not UTF-8, a number of 4300 digits, members twice, deep nesting
    raise FormatError(f"not JSON that is read here: {error}", file=path) from None


def _shallow(text):
  """The text, or ValueError if its brackets nest deeper than any of these files: the parser recurses, on a stack that may be small."""
  depth = 0
  for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', text):
    depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token.group(), 0)
    if depth > _MAX_DEPTH:
      raise ValueError(f"brackets nest deeper than {_MAX_DEPTH} levels")
  return text


def _unique_members(pairs):
  members = dict(pairs)
  if len(members) != len(pairs):
    raise ValueError("an object has the same member twice")
  return members


def _save(path, data):
  """One space of indent; an empty list at the top is "[", newline, "]" as snarkjs writes it."""
  text = json.dumps(data, indent=1) if data else "[\n]"
  with replace_file(path) as file:
    file.write(text.encode("ascii"))


def _member(data, name, file):
  if name not in data:
    raise FormatError("the member is missing", file=file, section=name)
  return data[name]


def _expect_protocol(data, file):
  if not isinstance(data, dict):
    raise FormatError("expected a JSON object", file=file)
  for name, expected in (("protocol", _PROTOCOL), ("curve", _CURVE)):
    got = _member(data, name, file)
    if got != expected:
      raise FormatError(f"expected {expected!r}, got {_show(got)}", file=file, section=name)


def _show(value):
  """What was found, short enough for a message."""
  return repr(value)[:80] if isinstance(value, (str, int)) else f"a {type(value).__name__}"


def _number(value, file, section):
  """A non-negative integer from a JSON integer, a decimal or a "0x" string."""
  if type(value) is int and value >= 0:
    return value
  if isinstance(value, str) and _NUMBER.fullmatch(value):
    return int(value, 16 if value.startswith("0x") else 10)
  raise FormatError(f"expected a decimal string, got {_show(value)}", file=file, section=section)


def _point(group, value, file, section):
  """(x, y) of Python integers, or None for infinity, checked to be on the curve and in the subgroup."""
  error = lambda message: FormatError(message, file=file, section=section)
  width = 2 if group is G2 else 1
  rows = value if width == 2 or not isinstance(value, list) else [[v] for v in value]
  if not isinstance(rows, list) or len(rows) != 3 or any(not isinstance(row, list) or len(row) != width for row in rows):
    raise error(f"a point of G{width} is three {'pairs' if width == 2 else 'numbers'}")
  x, y, z = (tuple(_number(v, file, section) for v in row) for row in rows)
  zero, one = (0,) * width, (1,) + (0,) * (width - 1)
  if (x, y, z) == (zero, one, zero):
    return None
  if z != one:
    raise error("the third coordinate is not 1")
  point = (x, y) if width == 2 else (x[0], y[0])
  if not all(group.field.is_reduced(c) for c in point):
    raise error("a coordinate is not below p")
  if not group.is_on_curve(point):
    raise error("the point is not on the curve")
  if not group.is_in_subgroup(point):
    raise error("the point is not in the subgroup of order r")
  return point


def _g1_to_json(point):
  return ["0", "1", "0"] if point is None else [str(point[0]), str(point[1]), "1"]


def _g2_to_json(point):
  x, y, z = ((0, 0), (1, 0), (0, 0)) if point is None else (*point, (1, 0))
  return [[str(c) for c in pair] for pair in (x, y, z)]
