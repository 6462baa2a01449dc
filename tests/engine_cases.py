"""What the tests of the engine share: the smallest circuit, a prover whose device is a puppet, and a look at what is left behind."""
import concurrent.futures
import contextlib
import dataclasses
import functools
import pathlib
import threading

from zkjax import groth16
from zkjax.engine import Engine, EngineConfig, Job
from zkjax.engine.prover import Prover

MUL = pathlib.Path(__file__).resolve().parent / "data" / "mul"
WTNS = MUL / "witness.wtns"
SECONDS = 300                                 # a future that takes longer is lost

key = functools.cache(lambda: groth16.read_zkey(MUL / "mul.zkey"))
witness = functools.cache(lambda: groth16.read_wtns(WTNS))
proof = functools.cache(lambda: groth16.read_proof(MUL / "proof.json"))
PUBLIC = [int(value) for value in groth16.read_public(MUL / "public.json")]


def another_key():
  """The same key as another object: to an engine, another key."""
  return dataclasses.replace(key())


def job(count=1, source=WTNS, **options):
  return Job(options.pop("key", None) or key(), [source] * count, **options)


@contextlib.contextmanager
def engine(prover=None, devices=None, **config):
  """An Engine that is closed early at the end of the block, and has left nothing behind then."""
  made = Engine(EngineConfig(**config), prover=prover, devices=devices)
  try:
    yield made
  finally:
    made.close(drain=False)
    left_nothing(made)


def left_nothing(made):
  status = made.status()
  assert status["jobs"]["running"] == 0 and not status["grid"] and status["stopped"]
  assert status["host"]["bytes_reserved"] == 0 and not any(d["bytes_reserved"] for d in status["devices"])
  assert not any(status["queues"][name] for name in ("waiting", "admitted", "ready"))
  assert not any(d["in_flight"] or d["load"] or d["keys"] for d in status["devices"])
  jobs = status["jobs"]
  assert jobs["submitted"] == jobs["done"] + jobs["failed"] + jobs["cancelled"] + jobs["expired"]


@dataclasses.dataclass
class Pending:
  sums: dict
  proof: object
  first: object = None
  begun_ns: int = 0


class Puppet(Prover):
  """Proves nothing: each proof is the recorded one, and is ready when `allowed`, or when the test says so.

  started: (job, partition, attempt) in the order of dispatch. fault(number of the start) may raise, or return a proof to take instead.
  """

  def __init__(self, held=False, fault=lambda number: None):
    super().__init__()
    self.started, self.blindings, self.witnesses, self.keys, self.batches = [], [], [], [], []
    self.held, self.fault, self.lock = held, fault, threading.Lock()
    self.pending = []

  def start(self, key, witnesses, blindings, spans):
    out = []
    with self.lock:
      self.batches.append(len(witnesses))
    for one, blinding, span in zip(witnesses, blindings, spans):
      with self.lock:
        number = len(self.started)
        self.started.append(number)
        self.blindings.append(blinding)
        self.witnesses.append(one)
        self.keys.append(key)
      with span("msm_a"):
        made = Pending({"a": concurrent.futures.Future()}, self.fault(number) or proof())
      out.append(made)
    with self.lock:
      self.pending += out
    for made in out:
      if not self.held:
        made.sums["a"].set_result(None)
    return out

  def release(self, number=None):
    """Makes one, or all, of the proofs on the device ready."""
    with self.lock:
      chosen = list(self.pending) if number is None else [self.pending[number]]
      self.held = self.held and number is not None
    for made in chosen:
      if not made.sums["a"].done():
        made.sums["a"].set_result(None)

  def finish(self, pending):
    pending.sums["a"].result()
    return pending.proof


def until(condition):
  """Waits for something that other threads bring about."""
  end = threading.Event()
  for _ in range(SECONDS * 200):
    if condition():
      return
    end.wait(0.005)
  raise AssertionError("it did not happen")


def false_proof():
  """Well-formed and false: A and C are exchanged."""
  true = proof()
  return groth16.Proof(true.c, true.b, true.a)
