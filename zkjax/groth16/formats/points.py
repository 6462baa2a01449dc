"""Points as bytes, in the encoding of ZCash (also of gnark-crypto, blst, arkworks >= 0.4 and the IETF draft), and the 192-byte proof.

| group | compressed | uncompressed |
|---|---|---|
| G1 | x (48) | x (48), y (48) |
| G2 | x.c1 (48), x.c0 (48) | x.c1, x.c0, y.c1, y.c0 (48 each) |

Coordinates are big-endian. The top three bits of byte 0 are flags:

| bit | meaning |
|---|---|
| 0x80 | compressed |
| 0x40 | infinity: every other bit but 0x80 is zero |
| 0x20 | y is the lexicographically larger of y and -y (c1 compared first); compressed and finite points only |

| proof byte | field |
|---|---|
| 0 | A, G1 compressed (48) |
| 48 | B, G2 compressed (96) |
| 144 | C, G1 compressed (48) |

Decoding is on Python integers, about a millisecond a point.
"""
from zkjax.groth16.formats.checks import Place
from zkjax.groth16.types import Proof
from zkjax.ops.bls12_381 import P
from zkjax.ops.curve import Affine
from zkjax.ops.field import Fp, Fp2
from zkjax.ops.int_curve import G1, G2

COMPRESSED, INFINITY, LARGER = 0x80, 0x40, 0x20
_FLAGS = COMPRESSED | INFINITY | LARGER
_COORDINATE_BYTES = 48
_FIELDS = {G1: Fp, G2: Fp2}
PROOF_BYTES = 192


def g1_to_bytes(points, compressed=True):
  """ZCash encoding of one G1 point (48 or 96 bytes) or of a batch, concatenated. Args: points: Affine over Fp, not checked."""
  return _to_bytes(G1, points, compressed)


def g2_to_bytes(points, compressed=True):
  """ZCash encoding of one G2 point (96 or 192 bytes) or of a batch, concatenated. Args: points: Affine over Fp2, not checked."""
  return _to_bytes(G2, points, compressed)


def g1_from_bytes(data, count=None, check="full"):
  """Decodes G1 points.

  Args: data: 48 (compressed) or 96 (uncompressed) bytes, times `count`. count: None for one point, n for a batch of n, all in
    one form. check: "full", or "points" to leave out the subgroup check.
  Returns: Affine over Fp, of shape () or (n,).
  Raises: FormatError for a wrong length, a coordinate >= p, contradictory flags, infinity with other bits set, a point off the
    curve or outside the subgroup of order r.
  """
  return _from_bytes(G1, data, count, _known_check(check))


def g2_from_bytes(data, count=None, check="full"):
  """Decodes G2 points of 96 (compressed) or 192 (uncompressed) bytes; otherwise as `g1_from_bytes`. Returns: Affine over Fp2."""
  return _from_bytes(G2, data, count, _known_check(check))


def g1_from_bytes_unchecked(data, count=None):
  """`g1_from_bytes` that trusts uncompressed points to be on the curve and all points to have order r."""
  return _from_bytes(G1, data, count, "none")


def g2_from_bytes_unchecked(data, count=None):
  """`g2_from_bytes` that trusts uncompressed points to be on the curve and all points to have order r."""
  return _from_bytes(G2, data, count, "none")


def proof_to_bytes(proof):
  """The 192 bytes of a proof, as bellman, arkworks and Filecoin write it.

  Raises: ValueError when an element is infinity: no honest prover makes one and readers refuse it.
  """
  elements = ((G1, proof.a), (G2, proof.b), (G1, proof.c))
  if any(point.to_ints() is None for _, point in elements):
    raise ValueError("a proof with an element at infinity has no valid encoding; prove again")
  return b"".join(_to_bytes(group, point, True) for group, point in elements)


def proof_from_bytes(data, place=None):
  """Decodes and checks a 192-byte proof.

  Args: data: the bytes. place: where they come from, for the error message.
  Returns: Proof, each element on the curve, in the subgroup and not infinity.
  Raises: FormatError otherwise.
  """
  place = Place(section="proof") if place is None else place
  if len(data) != PROOF_BYTES:
    raise place.error(f"a proof has {PROOF_BYTES} bytes, got {len(data)}")
  parts = []
  for group, start, end in ((G1, 0, 48), (G2, 48, 144), (G1, 144, 192)):
    point = decode_point(group, data[start:end], "full", Place(place.file, place.section, place.start + start))
    if point is None:
      raise place.error("an element of the proof is infinity", start)
    parts.append(Affine.from_ints(_FIELDS[group], point))
  return Proof(*parts)


def encode_point(group, point, compressed):
  """Bytes of a point (x, y) of Python integers, or None for infinity. group: int_curve.G1 or G2."""
  size = _COORDINATE_BYTES * (2 if group is G2 else 1)
  length = size if compressed else 2 * size
  flags = COMPRESSED if compressed else 0
  if point is None:
    return bytes([flags | INFINITY]) + bytes(length - 1)
  data = b"".join(_coordinate_to_bytes(c) for c in point)[:length]
  flags |= LARGER if compressed and group.field.is_larger(point[1]) else 0
  return bytes([data[0] | flags]) + data[1:]


def decode_point(group, data, check, place):
  """The point (x, y) of Python integers, or None for infinity, from the bytes of one point; the inverse of `encode_point`.

  Args: group: int_curve.G1 or G2. check: "full", "points" or "none". place: Place of the first byte.
  """
  size = _COORDINATE_BYTES * (2 if group is G2 else 1)
  if len(data) not in (size, 2 * size):
    raise place.error(f"a point has {size} or {2 * size} bytes, got {len(data)}")
  compressed = len(data) == size
  flags, data = data[0] & _FLAGS, bytes([data[0] & ~_FLAGS]) + bytes(data[1:])
  if bool(flags & COMPRESSED) != compressed:
    raise place.error(f"the compression flag is {'missing' if compressed else 'set'} on a point of {len(data)} bytes")
  if flags & LARGER and (flags & INFINITY or not compressed):
    raise place.error("the sign flag is set on a point that is infinity or not compressed")
  if flags & INFINITY:
    if any(data):
      raise place.error("infinity must have no other bit set")
    return None
  x = _coordinate_from_bytes(group, data[:size], place, 0)
  y = _root(group, x, bool(flags & LARGER), place) if compressed else _coordinate_from_bytes(group, data[size:], place, size)
  if check != "none" and not compressed and not group.is_on_curve((x, y)):
    raise place.error("the point is not on the curve")
  if check == "full" and not group.is_in_subgroup((x, y)):
    raise place.error("the point is not in the subgroup of order r")
  return x, y


def _root(group, x, larger, place):
  y = group.field.sqrt(group.curve_equation(x))
  if y is None:
    raise place.error("no point of the curve has this x")
  if larger and y == group.field.zero:
    raise place.error("the sign flag is set but y = 0 has no larger root")
  return y if group.field.is_larger(y) == larger else group.field.negate(y)


def _coordinate_to_bytes(value):
  limbs = (value,) if isinstance(value, int) else (value[1], value[0])
  return b"".join(int(v).to_bytes(_COORDINATE_BYTES, "big") for v in limbs)


def _coordinate_from_bytes(group, data, place, offset):
  values = []
  for k in range(0, len(data), _COORDINATE_BYTES):
    values.append(int.from_bytes(data[k:k + _COORDINATE_BYTES], "big"))
    if values[-1] >= P:
      raise place.error("a coordinate is not below p", offset + k)
  return (values[1], values[0]) if group is G2 else values[0]


def _known_check(check):
  if check not in ("points", "full"):
    raise ValueError(f'check must be "points" or "full" (there is also from_bytes_unchecked), got {check!r}')
  return check


def _to_bytes(group, points, compressed):
  integers = points.to_ints()
  points = integers if isinstance(integers, list) else [integers]
  return b"".join(encode_point(group, p, compressed) for p in points)


def _from_bytes(group, data, count, check):
  data, name = bytes(data), "G2 points" if group is G2 else "G1 points"
  if count is None:
    return Affine.from_ints(_FIELDS[group], decode_point(group, data, check, Place(section=name)))
  size = _COORDINATE_BYTES * (2 if group is G2 else 1)
  if count < 0 or len(data) not in (count * size, 2 * count * size):
    raise Place(section=name).error(f"{count} points have {count * size} or {2 * count * size} bytes, got {len(data)}")
  step = len(data) // count if count else size
  points = [decode_point(group, data[i:i + step], check, Place(section=name, start=i)) for i in range(0, len(data), step)]
  return Affine.from_ints(_FIELDS[group], points)
