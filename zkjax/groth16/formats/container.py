"""The binary container of circom and snarkjs (r1cs, wtns, zkey), mapped into memory, and files that appear whole or not at all.

| offset | size | field |
|---|---|---|
| 0 | 4 | magic |
| 4 | 4 | version, u32 |
| 8 | 4 | number of sections, u32 |
| 12 | | sections one after the other: type u32, payload size u64, payload |

All integers are little-endian. The order of the sections is free, so a reader builds a table first.
"""
import contextlib
import dataclasses
import os
import secrets

import numpy as np

from zkjax.groth16.formats.checks import Place

_HEADER_BYTES = 12


@dataclasses.dataclass(frozen=True)
class Section(Place):
  """One payload: `section` is its type, `start` its byte offset in the file, `data` a uint8 view of it."""
  data: np.ndarray = None

  def expect_bytes(self, size, meaning):
    """Raises FormatError unless the payload has exactly `size` bytes."""
    if len(self.data) != size:
      raise self.error(f"{meaning} need {size} bytes, the section has {len(self.data)}")

  def expect_at_least(self, size, meaning):
    """Raises FormatError unless the payload has `size` bytes or more."""
    if len(self.data) < size:
      raise self.error(f"{meaning} need at least {size} bytes, the section has {len(self.data)}")

  def u32(self, offset):
    return int.from_bytes(self.data[offset:offset + 4].tobytes(), "little")

  def u64(self, offset):
    return int.from_bytes(self.data[offset:offset + 8].tobytes(), "little")

  def words(self, offset, count, width):
    """uint32[count, width] view of the payload from `offset` on."""
    return self.data[offset:offset + 4 * count * width].view("<u4").reshape(count, width)

  def expect_field(self, offset, name, modulus, size):
    """Raises FormatError unless a u32 `size` and the little-endian `modulus` stand at `offset`."""
    got = self.u32(offset)
    if got != size:
      raise self.error(f"the {name} has {got} bytes, BLS12-381 needs {size}", offset)
    prime = int.from_bytes(self.data[offset + 4:offset + 4 + size].tobytes(), "little")
    if prime != modulus:
      raise self.error(f"the {name} is {prime:#x}, not that of BLS12-381", offset + 4)


@dataclasses.dataclass(frozen=True)
class Container:
  """The table of sections, in file order."""
  file: object
  sections: tuple

  def find(self, kind):
    """The section of this type, or None."""
    return next((s for s in self.sections if s.section == kind), None)

  def require(self, kind, meaning):
    """The section of this type, or a FormatError that says what is missing."""
    section = self.find(kind)
    if section is None:
      raise Place(self.file, kind).error(f"the section with the {meaning} is missing", _HEADER_BYTES)
    return section


def map_file(path):
  """The bytes of a file as a read-only uint8 array that the system pages in on demand.

  The file must not be truncated while the array is in use; replacing it (as the writers here do) is harmless.

  Raises: OSError when there is no such file; FormatError when it is empty.
  """
  with open(path, "rb") as file:
    if os.fstat(file.fileno()).st_size == 0:
      raise Place(path).error("the file is empty")
    return np.asarray(np.memmap(file, np.uint8, "r"))


def read_container(path, magic, max_version, known):
  """Reads the table of sections.

  Args: path: file name. magic: its first four bytes. max_version: versions 1 to this are accepted. known: section types that may
    occur once only; other types are skipped, any number of times.
  Returns: Container.
  Raises: FormatError for another magic or version, a section that leaves the file, a duplicate, or bytes after the last section.
  """
  data = map_file(path)
  place = Place(path)
  if data[:4].tobytes() != magic:
    raise place.error(f"expected the magic {magic}, got {data[:4].tobytes()}")
  if len(data) < _HEADER_BYTES:
    raise place.error("the file ends inside its header", len(data))
  version, count = (int(v) for v in data[4:12].view("<u4"))
  if not 1 <= version <= max_version:
    raise place.error(f"version {version} is not supported, expected 1 to {max_version}", 4)
  sections, offset = [], _HEADER_BYTES
  for _ in range(count):
    if offset + 12 > len(data):
      raise place.error(f"the file ends before section {len(sections) + 1} of {count}", offset)
    kind = int.from_bytes(data[offset:offset + 4].tobytes(), "little")
    size = int.from_bytes(data[offset + 4:offset + 12].tobytes(), "little")
    offset += 12
    if size > len(data) - offset:
      raise Place(path, kind, offset).error(f"the section claims {size} bytes, the file has {len(data) - offset} left")
    sections.append(Section(path, kind, offset, data[offset:offset + size]))
    offset += size
  if offset != len(data):
    raise place.error(f"{len(data) - offset} bytes follow the last section", offset)
  _refuse_duplicates(sections, known)
  return Container(path, tuple(sections))


def _refuse_duplicates(sections, known):
  seen = set()
  for section in sections:
    if section.section in seen:
      raise section.error("the section occurs twice")
    seen |= {section.section} & set(known)


@contextlib.contextmanager
def replace_file(path):
  """A binary file to write that takes the place of `path` when the block ends, and vanishes if the block raises."""
  temporary = f"{os.fspath(path)}.{secrets.token_hex(8)}.tmp"
  try:
    with open(temporary, "xb") as file:
      yield file
    os.replace(temporary, path)
  except BaseException:
    with contextlib.suppress(FileNotFoundError):
      os.unlink(temporary)
    raise


def write_container(path, magic, version, count, sections):
  """Writes `count` sections, given as an iterable of (type, list of bytes or arrays), so that one section at a time is in memory."""
  with replace_file(path) as file:
    file.write(magic + version.to_bytes(4, "little") + count.to_bytes(4, "little"))
    for kind, parts in sections:
      parts = [p if isinstance(p, bytes) else np.ascontiguousarray(p) for p in parts]
      size = sum(len(p) if isinstance(p, bytes) else p.nbytes for p in parts)
      file.write(kind.to_bytes(4, "little") + size.to_bytes(8, "little"))
      for part in parts:
        file.write(part if isinstance(part, bytes) else part.data)
