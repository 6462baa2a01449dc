"""Files of bellman and bellperson. All integers and coordinates are big-endian, points in the ZCash encoding of points.py.

Verifying key, points uncompressed:

| offset | size | field |
|---|---|---|
| 0 | 96 | alpha in G1 |
| 96 | 96 | beta in G1 |
| 192 | 192 | beta in G2 |
| 384 | 192 | gamma in G2 |
| 576 | 96 | delta in G1 |
| 672 | 192 | delta in G2 |
| 864 | 4 | number of points of ic, u32 |
| 868 | 96 each | ic: public_query |

Parameters: the verifying key, then five lists, each a u32 count and that many uncompressed points, none of them infinity:

| list | group | content |
|---|---|---|
| h | G1 | tau^i (tau^m - 1) / delta for i < m - 1, where the domain has m = 2^k rows |
| l | G1 | for every auxiliary variable |
| a | G1 | for every input, then for the auxiliary variables that occur in A |
| b_g1, b_g2 | G1, G2 | for the inputs that occur in B, then for the auxiliary variables that occur in B |

Proofs: n times the 192 bytes of points.py, one after the other.
"""
import jax
import numpy as np

from zkjax.groth16.formats.checks import Place, check_coordinates, check_level, check_points
from zkjax.groth16.formats.container import map_file, replace_file
from zkjax.groth16.formats.points import INFINITY, PROOF_BYTES, proof_from_bytes, proof_to_bytes
from zkjax.groth16.types import VerifyingKey
from zkjax.ops.curve import Affine
from zkjax.ops.field import Fp, Fp2
from zkjax.pytree import pytree

_G1_BYTES, _G2_BYTES = 96, 192
_KEY_FIELDS = (("alpha_g1", 96), ("beta_g1", 96), ("beta_g2", 192), ("gamma_g2", 192), ("delta_g1", 96), ("delta_g2", 192))
_LISTS = (("h", 96), ("l", 96), ("a", 96), ("b_g1", 96), ("b_g2", 192))


@pytree
class BellmanVerifyingKey:
  """A verifying key with the two points that bellman stores beside it for its prover."""
  vk: VerifyingKey
  beta_g1: Affine
  delta_g1: Affine


@pytree
class BellmanParameters:
  """Parameters as they lie in the file: the lists a, b_g1 and b_g2 hold only the variables that occur.

  Which variables these are (the densities) is not in the file but follows from the circuit: wire i has a point in b_g1 and b_g2 when
  it occurs in B, in a when it is an input or occurs in A, in the order of bellman's inputs (the constant first) and then of its
  auxiliary variables. Putting infinity for all others gives the queries of a ProvingKey with h_basis "monomial" and the domain
  Domain(log2_size, generator=7), where 2^log2_size = len(h) + 1.
  """
  vk: VerifyingKey
  beta_g1: Affine
  delta_g1: Affine
  h: Affine
  l: Affine
  a: Affine
  b_g1: Affine
  b_g2: Affine


class _Reader:
  """A position in the mapped bytes of a file."""

  def __init__(self, path, check):
    self.path, self.data, self.offset, self.check = path, map_file(path), 0, check

  def take(self, size, section):
    """The next `size` bytes and their place."""
    place = Place(self.path, section, self.offset)
    if size > len(self.data) - self.offset:
      raise place.error(f"{size} bytes expected, {len(self.data) - self.offset} are left")
    self.offset += size
    return self.data[place.start:self.offset], place

  def point(self, size, section):
    """One uncompressed point, Affine of shape ()."""
    data, place = self.take(size, section)
    return jax.tree.map(lambda limbs: limbs[:, 0], _decode_points(data.reshape(1, size), self.check, section, place))

  def points(self, size, section):
    """A u32 count and that many uncompressed points, Affine[count]."""
    count = int.from_bytes(self.take(4, section)[0].tobytes(), "big")
    data, place = self.take(count * size, section)
    return _decode_points(data.reshape(count, size), self.check, "point", place)

  def finish(self):
    """Raises FormatError if bytes are left."""
    if self.offset != len(self.data):
      raise Place(self.path, None, self.offset).error(f"{len(self.data) - self.offset} bytes follow the end")


def read_verifying_key(path, allow_uncontributed=False):
  """Reads a verifying key.

  Args: path: file name. allow_uncontributed: accept delta = gamma, for which anybody can forge proofs.
  Returns: BellmanVerifyingKey, all points on the curve, in the subgroup and not infinity.
  Raises: FormatError otherwise, or when the file is cut or goes on after the key.
  """
  reader = _Reader(path, "full")
  key = _read_key(reader, allow_uncontributed)
  reader.finish()
  return key


def write_verifying_key(path, key):
  """Writes a BellmanVerifyingKey. Raises: ValueError when a point is infinity, which bellman refuses to read."""
  with replace_file(path) as file:
    _write_key(file, key)


def read_parameters(path, check="points", allow_uncontributed=False, allow_trailing=False):
  """Reads the parameters of a circuit.

  Args: path: file name. check: "none"; "points": coordinates below p, points on the curve and not infinity; "full": in the
    subgroup too. allow_uncontributed: accept delta = gamma. allow_trailing: accept bytes after the parameters, where ceremonies keep
    their contributions.
  Returns: BellmanParameters.
  Raises: FormatError for a file that is cut or goes on, counts that disagree, bad points. Also for what `snarkjs zkey export bellman`
    writes: it stores infinity, as zeros, where bellman leaves the point out.
  """
  reader = _Reader(path, check_level(check))
  key = _read_key(reader, allow_uncontributed)
  lists = {}
  for name, size in _LISTS:
    place = Place(path, name, reader.offset)
    lists[name] = reader.points(size, name)
    _check_count(name, lists, key.vk.public_query.x.shape[0], place)
  if not allow_trailing:
    reader.finish()
  return BellmanParameters(key.vk, key.beta_g1, key.delta_g1, **lists)


def write_parameters(path, parameters):
  """Writes BellmanParameters. Raises: ValueError when a point is infinity, which bellman refuses to read."""
  with replace_file(path) as file:
    _write_key(file, parameters)
    for name, _ in _LISTS:
      _write_list(file, name, getattr(parameters, name))


def read_proofs(path):
  """Reads proofs stored one after the other. Returns: list of Proof. Raises: FormatError as `proofs_from_bytes`."""
  return proofs_from_bytes(map_file(path).tobytes(), file=path)


def write_proofs(path, proofs):
  """Writes proofs one after the other. Args: proofs: list of Proof."""
  with replace_file(path) as file:
    file.write(proofs_to_bytes(proofs))


def proofs_from_bytes(data, file=None):
  """Decodes proofs of 192 bytes each. Returns: list of Proof. Raises: FormatError for another length or a bad proof."""
  if len(data) % PROOF_BYTES:
    raise Place(file, "proofs").error(f"{len(data)} bytes are not a multiple of {PROOF_BYTES}", len(data))
  starts = range(0, len(data), PROOF_BYTES)
  return [proof_from_bytes(data[i:i + PROOF_BYTES], Place(file, f"proof {i // PROOF_BYTES}", i)) for i in starts]


def proofs_to_bytes(proofs):
  """The concatenated 192-byte encodings of a list of Proof."""
  return b"".join(map(proof_to_bytes, proofs))


def _decode_points(data, check, name, place):
  """Affine[n] from uncompressed points, uint8[n, 96] (G1) or uint8[n, 192] (G2)."""
  count, size = data.shape
  flagged = data[:, 0] >= INFINITY >> 1
  if flagged.any():
    index = int(np.argmax(flagged))
    what = "is infinity" if data[index, 0] == INFINITY else "has flags that an uncompressed finite point must not have"
    raise place.error(f"{name} {index} {what}", index * size)
  words = np.ascontiguousarray(data.reshape(count, size // 48, 48)[:, :, ::-1]).view("<u4")     # [n, coordinate, 12]
  words = words.reshape(count, size // 48, 12)
  check_coordinates(words.reshape(count, size // 4), name, place)
  fields = [Fp.from_plain(words[:, k].T) for k in range(size // 48)]
  points = Affine(*fields) if size == _G1_BYTES else Affine(Fp2(fields[1], fields[0]), Fp2(fields[3], fields[2]))
  if check != "none":
    infinite = ~words.any(axis=(1, 2))
    if infinite.any():
      raise place.error(f"{name} {int(np.argmax(infinite))} is zero, not a point", int(np.argmax(infinite)) * size)
  check_points(points, check, name, place, stride=size)
  return points


def _read_key(reader, allow_uncontributed):
  start = reader.offset
  points = {name: reader.point(size, name) for name, size in _KEY_FIELDS}
  gamma, delta = reader.data[start + 384:start + 576], reader.data[start + 672:start + 864]
  if not allow_uncontributed and np.array_equal(gamma, delta):
    raise Place(reader.path, "delta_g2", start + 672).error(
        "delta equals gamma: nobody contributed to this key, so anybody can forge proofs for it; "
        "allow_uncontributed=True reads it all the same")
  place = Place(reader.path, "ic", reader.offset)
  queries = reader.points(_G1_BYTES, "ic")
  if queries.x.shape[0] == 0:
    raise place.error("ic must have a point for the constant")
  vk = VerifyingKey(points["alpha_g1"], points["beta_g2"], points["gamma_g2"], points["delta_g2"], queries)
  return BellmanVerifyingKey(vk, points["beta_g1"], points["delta_g1"])


def _check_count(name, lists, num_inputs, place):
  """Raises FormatError when the length of the list just read contradicts those before."""
  count = {key: points.x.shape[0] for key, points in lists.items()}
  if name == "h" and count["h"] & (count["h"] + 1):
    raise place.error(f"h has {count['h']} points, not one less than a power of two")
  if name == "a" and not num_inputs <= count["a"] <= num_inputs + count["l"]:
    raise place.error(f"a has {count['a']} points for {num_inputs} inputs and {count['l']} auxiliary variables")
  if name == "b_g1" and count["b_g1"] > num_inputs + count["l"]:
    raise place.error(f"b_g1 has {count['b_g1']} points for {num_inputs} inputs and {count['l']} auxiliary variables")
  if name == "b_g2" and count["b_g2"] != count["b_g1"]:
    raise place.error(f"b_g2 has {count['b_g2']} points and b_g1 {count['b_g1']}")


def _point_bytes(name, points):
  """Uncompressed points, concatenated."""
  coordinates = [f for e in (points.x, points.y) for f in ((e.c1, e.c0) if isinstance(e, Fp2) else (e,))]
  words = np.stack([np.asarray(f.to_plain()).reshape(12, -1).T for f in coordinates], axis=1)     # [n, coordinate, 12]
  if not words.any(axis=(1, 2)).all():
    raise ValueError(f"{name} contains infinity, which bellman does not read; leave such points out")
  return np.ascontiguousarray(np.ascontiguousarray(words).view(np.uint8)[:, :, ::-1]).tobytes()


def _write_list(file, name, points):
  file.write(points.x.shape[0].to_bytes(4, "big") + _point_bytes(name, points))


def _write_key(file, key):
  """Writes the verifying key of a BellmanVerifyingKey or BellmanParameters."""
  for name, _ in _KEY_FIELDS:
    file.write(_point_bytes(name, getattr(key if hasattr(key, name) else key.vk, name)))
  _write_list(file, "ic", key.vk.public_query)
