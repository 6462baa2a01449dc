"""The scopes in which the operations of a GPU were traced, out of the programs that a profiler's file holds.

A kernel of a GPU's trace names its program and its operation in it; what the operation was traced from stands in the program, in the plane
/host:metadata, which `jax.profiler.ProfileData` does not show. Both are protocol buffers, of which this reads what it needs:

  XSpace.planes 1: XPlane.name 2, .event_metadata 4: (map) value 2: XEventMetadata.name 2, .stats 5: XStat.bytes_value 6: HloProto
  HloProto.hlo_module 1: HloModuleProto.computations 3: HloComputationProto.instructions 2: HloInstructionProto.name 1, .metadata 7:
  OpMetadata.op_name 2

The numbers are those of openxla/tsl profiler/protobuf/xplane.proto and openxla/xla xla/service/hlo.proto, xla_data.proto.
"""


def scopes(data):
  """{(program as "name(number)", operation): op_name, the path of scopes} of the bytes of an XSpace; {} where no programs were kept."""
  found = {}
  for plane in _all(data, 1):
    if _text(plane, 2) == "/host:metadata":
      for entry in _all(plane, 4):
        for metadata in _all(entry, 2):
          for stat in _all(metadata, 5):
            for program in _all(stat, 6):
              found.update({(_text(metadata, 2), name): path for name, path in _operations(program)})
  return found


def _operations(program):
  for module in _all(program, 1):
    for computation in _all(module, 3):
      for instruction in _all(computation, 2):
        for metadata in _all(instruction, 7):
          yield _text(instruction, 1), _text(metadata, 2)


def _text(message, number):
  return next((bytes(value).decode(errors="replace") for value in _all(message, number)), "")


def _all(message, number):
  """The values of a field of a message that have a length: texts, bytes and messages."""
  message, place = memoryview(message), 0
  while place < len(message):
    tag, place = _varint(message, place)
    kind = tag & 7
    if kind == 2:
      size, place = _varint(message, place)
      if tag >> 3 == number:
        yield message[place:place + size]
      place += size
    elif kind == 0:
      _, place = _varint(message, place)
    elif kind in (1, 5):
      place += 8 if kind == 1 else 4
    else:
      raise ValueError(f"not a protocol buffer: wire type {kind} at byte {place}")


def _varint(message, place):
  value = shift = 0
  while True:
    byte = message[place]
    value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
    if byte < 128:
      return value, place
