"""The XLA options that the CPU backend needs for multi-limb arithmetic, appended to XLA_FLAGS when zkjax is imported.

XLA reads the variable once, when the first backend starts. What the user set is kept. ZKJAX_NO_XLA_FLAGS=1 turns this off.

| option | without it |
|---|---|
| xla_cpu_use_multi_output_fusion | every limb of a product recomputes the whole product: 280 ns instead of 40 for one in Fp |
| xla_cpu_small_while_loop_byte_threshold | every operation of a loop is dispatched on its own: 66 ns instead of 44 at 128 lanes |
| --xla_cpu_prefer_vector_width | half-width vectors where the processor has 512 bits: a transform of 2^16 takes 18 ms instead of 14 |
| --xla_disable_hlo_passes | loops with many outputs, which are not vectorised: 6 % of an addition in G1, 10 % in G2 |
"""
import logging
import os
import re
import sys

OPTIONS = {"xla_cpu_use_multi_output_fusion": "true", "xla_cpu_small_while_loop_byte_threshold": "100000000"}
FLAGS = {"--xla_cpu_prefer_vector_width": "512", "--xla_disable_hlo_passes": "cpu_multi_output_fusion"}
_EXTRA = re.compile(r"--xla_backend_extra_options=(\S*)")
_WARNING = ("JAX has started before zkjax was imported, without the XLA options of zkjax: arithmetic on the CPU will be about five times "
            "slower. Import zkjax before the first JAX computation, or start Python with XLA_FLAGS=%r. ZKJAX_NO_XLA_FLAGS=1 silences this.")


def apply():
  """Appends OPTIONS and FLAGS to os.environ["XLA_FLAGS"], or warns that it is too late."""
  if os.environ.get("ZKJAX_NO_XLA_FLAGS", "0") not in ("", "0"):
    return
  flags = os.environ.get("XLA_FLAGS", "")
  if flags.strip() and not flags.lstrip().startswith("-"):
    logging.getLogger("zkjax").warning("XLA_FLAGS names a file, so zkjax leaves it alone; add %s to it", merged(""))
    return
  wanted = merged(flags)
  if wanted == flags:
    return
  if backend_has_started():
    logging.getLogger("zkjax").warning(_WARNING, wanted)
    return
  os.environ["XLA_FLAGS"] = wanted


def merged(flags):
  """The flags with FLAGS, and with OPTIONS added to their --xla_backend_extra_options, if any. What is set stays as it is."""
  match = _EXTRA.search(flags)
  present = match.group(1).split(",") if match and match.group(1) else []
  names = {option.partition("=")[0] for option in present}
  options = present + [f"{name}={value}" for name, value in OPTIONS.items() if name not in names]
  option = "--xla_backend_extra_options=" + ",".join(options)
  flags = flags[:match.start()] + option + flags[match.end():] if match else f"{flags} {option}"
  names = {flag.partition("=")[0] for flag in flags.split()}
  return " ".join([flags.strip()] + [f"{name}={value}" for name, value in FLAGS.items() if name not in names])


def backend_has_started():
  """Whether JAX has read XLA_FLAGS already. JAX does not say so in public; where its module is another one, the answer is no."""
  bridge = sys.modules.get("jax._src.xla_bridge")
  started = getattr(bridge, "backends_are_initialized", lambda: False)
  return bool(started())
