"""Scopes of operations, out of programs written here byte by byte, and out of a file that the profiler wrote."""
import jax
import jax.numpy as jnp
import pytest

from zkjax import profiling, xplane


def varint(value):
  out = bytearray()
  while value > 127:
    out.append(value & 127 | 128)
    value >>= 7
  return bytes(out + bytes([value]))


def field(number, value):
  if isinstance(value, int):
    return varint(number << 3) + varint(value)
  value = value.encode() if isinstance(value, str) else value
  return varint(number << 3 | 2) + varint(len(value)) + value


def space(path="jit(f)/msm_a/add", plane="/host:metadata"):
  instruction = field(1, "fusion.1") + field(2, "fusion") + varint(9 << 3 | 1) + bytes(8) + field(7, field(1, "add") + field(2, path))
  program = field(1, field(1, "jit_f") + field(3, field(1, "main") + field(2, instruction) + field(2, field(1, "nothing"))))
  metadata = field(1, 7) + field(2, "jit_f(7)") + field(5, field(1, 3) + field(6, program)) + field(5, varint(2 << 3 | 5) + bytes(4))
  return field(1, field(2, "/device:GPU:0")) + field(1, field(1, 300) + field(2, plane) + field(4, field(1, 7) + field(2, metadata)))


def test_operations_are_found_by_program_and_name():
  long = "jit(f)/" + "scope/" * 60
  assert xplane.scopes(space()) == {("jit_f(7)", "fusion.1"): "jit(f)/msm_a/add"}
  assert xplane.scopes(space(long)) == {("jit_f(7)", "fusion.1"): long}
  assert xplane.scopes(space(plane="/host:CPU")) == xplane.scopes(b"") == {}


def test_what_is_no_protocol_buffer_is_refused():
  with pytest.raises(ValueError, match="wire type 7"):
    xplane.scopes(b"\x0f")


@pytest.mark.parametrize("programs", [True, False])
def test_a_file_of_the_profiler(programs, tmp_path):
  @jax.jit
  def scoped(x):
    with jax.named_scope("msm_l"):
      return jnp.sin(x) * 2
  with profiling.capture(tmp_path, programs):
    scoped(jnp.arange(3.0)).block_until_ready()
  (file,) = tmp_path.rglob("*.xplane.pb")
  found = {path for (program, _), path in xplane.scopes(file.read_bytes()).items() if program.startswith("jit_scoped(")}
  assert any("/msm_l/" in path for path in found) == programs


def test_a_kernel_has_the_innermost_stage_of_its_operation():
  paths = {("jit_f(7)", "fusion.1"): "jit(f)/msm_a/quotient/add"}
  stats = {"hlo_module": "jit_f", "program_id": 7, "hlo_op": "fusion.1", "tf_op": "XlaModule:"}
  assert profiling._stage(stats, paths) == "quotient" and profiling._stage(stats | {"hlo_op": "command_buffer_1"}, paths) is None
  assert profiling._stage({"tf_op": "jit(f)/msm_h/add"}, {}) == "msm_h"
