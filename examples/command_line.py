"""What the scripts in this folder share: exit codes, one-line errors, --help, progress, output files and the compilation cache.

Exit codes: 0 done, 1 a proof is false, 2 an error.
"""
import contextlib
import os
import pathlib
import sys
import textwrap
import threading
import time
import traceback

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")          # NumPy's BLAS, which nothing here uses, starts threads that spin for 0.1 s

import jax  # noqa: E402
from absl import flags  # noqa: E402

DATA = pathlib.Path(__file__).resolve().parent / "data"
DONE, FALSE_PROOF, ERROR, INTERRUPTED = 0, 1, 2, 130

_CACHE = flags.DEFINE_bool(
    "compilation_cache", True, "Keep compiled programs for the next run, in JAX_COMPILATION_CACHE_DIR or else in the folder zkjax of the "
    "user's cache.")
_TRACEBACK = flags.DEFINE_bool("traceback", False, "On an error, print where in the program it happened, for a report of a fault.")


def run(main):
  """Parses the flags, calls main() and exits with the code that it returns. Whatever it raises becomes one line and exit code 2."""
  if {"-h", "-help", "--help"} & set(sys.argv[1:]):
    print(_help())
    sys.exit(DONE)
  try:
    if len(flags.FLAGS(sys.argv)) > 1:
      raise ValueError("this script takes flags only, such as --name=value; --help lists them")
    use_compilation_cache(_CACHE.value)
    code = main()
    sys.stdout.flush()
  except KeyboardInterrupt:
    os._exit(INTERRUPTED)                                     # without waiting for the threads of a proof
  except Exception as error:                                  # a traceback would end with exit code 1, which means a false proof here
    if flags.FLAGS.is_parsed() and _TRACEBACK.value:
      traceback.print_exc()
    print(f"error: {_describe(error)}", file=sys.stderr)
    code = ERROR
  for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(OSError):                        # whoever read it has gone
      stream.flush()
  os._exit(code)                                              # taking JAX's programs apart first would cost a third of a second


def use_compilation_cache(enabled):
  """Makes JAX keep every compiled program on disk, or none. Settings of the environment come first."""
  if not enabled:
    jax.config.update("jax_enable_compilation_cache", False)
    return
  if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    user_cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", str(user_cache / "zkjax"))
  if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@contextlib.contextmanager
def progress(what):
  """Tells on stderr what is being done, once it has taken a second, and for how long."""
  done, started = threading.Event(), time.perf_counter()
  live = sys.stderr.isatty()

  def tell(end):
    print(f"{what}: {time.perf_counter() - started:.0f} s", end=end, file=sys.stderr, flush=True)

  def watch():
    wait = 1
    while not done.wait(wait):
      tell("\r" if live else "\n")
      wait = 1 if live else 2 * wait

  thread = threading.Thread(target=watch, daemon=True)
  thread.start()
  try:
    yield
  finally:
    done.set()
    thread.join()
    if live and time.perf_counter() - started > 1:
      tell("\n")


def warn(message):
  """Prints a warning that is hard to miss."""
  print(f"WARNING: {message}", file=sys.stderr, flush=True)


def check_outputs(*paths):
  """Raises before any work if a file could not be written later, or two outputs are one file. None stands for no file."""
  paths = [pathlib.Path(path) for path in paths if path]
  for path in paths:
    if path.is_dir() or not os.access(path.parent, os.W_OK):
      raise ValueError(f"{path} cannot be written: {'it is a folder' if path.is_dir() else 'its folder does not exist or is read-only'}")
  if len({path.resolve() for path in paths}) < len(paths):
    raise ValueError("two of the output files are the same")


def given_or_default(default, **paths):
  """The values of flags that belong together, or `default` if none is given. Raises ValueError if only some of them are."""
  missing = [f"--{name}" for name, path in paths.items() if not path]
  if len(missing) == len(paths) and default is not None:
    return default
  if missing:
    raise ValueError(f"{' and '.join(missing)} missing: {', '.join(f'--{name}' for name in paths)} belong together; --help says more")
  return tuple(paths.values())


def _describe(error):
  """One line about an exception."""
  if isinstance(error, OSError) and error.strerror:
    message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
  elif isinstance(error, (ValueError, flags.Error)):
    message = str(error)
  else:
    message = f"{type(error).__name__}: {error} (--traceback shows where)"
  return " ".join(message.split())


def _help():
  """The text of the script and its flags, in the order of definition."""
  lines = [(sys.modules["__main__"].__doc__ or "").strip(), "", "Flags:"]
  for module in (sys.argv[0], __name__):
    for flag in flags.FLAGS.get_key_flags_for_module(module):
      default = "" if flag.default is None else f" (default: {('off', 'on')[flag.default] if flag.boolean else flag.default})"
      lines.append(f"  --[no]{flag.name}" if flag.boolean else f"  --{flag.name}=...")
      lines += textwrap.wrap(flag.help + default, 100, initial_indent=" " * 6, subsequent_indent=" " * 6)
  return "\n".join(lines)
