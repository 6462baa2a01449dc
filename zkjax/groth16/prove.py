"""The prover: check, evaluate, quotient, five multi-scalar multiplications, assemble (Groth16, eprint 2016/260, section 3.2).

`prove` = `finish(start(...))`. `start` checks its input, dispatches everything and returns; `finish` waits and does the last point
arithmetic on Python integers. On the CPU backend each multi-scalar multiplication is a task of a small thread pool, because only calls
from several threads overlap there; XLA releases the interpreter while it computes. On a GPU everything is queued on the device in one
sequence, and nothing but A, B and C comes back.

On the CPU backend each stage runs inside `span(name)`, a context manager on the thread that runs it: by default a mark in the profiler's
trace. The names are those of STAGES; they are stable.
"""
import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import math
import os
import threading
import time
from typing import Optional

import jax
import jax.numpy as jnp
import numpy as np

from zkjax.groth16.qap import quotient
from zkjax.groth16.r1cs import evaluate
from zkjax.groth16.types import Blinding, Proof, ProvingKey
from zkjax.ops import bls12_381
from zkjax.ops.curve import Affine
from zkjax.ops.field import Fp, Fp2, Fr
from zkjax.ops.int_curve import G1
from zkjax.ops.msm import on_gpu, shared_scalars
from zkjax.ops.programs import stored
from zkjax.ops.queued import compile_sums, start_combined, start_sums

_WORTH_CUTTING = 8192                        # points of a sum whose parts, together, do not take much longer

# quotient: matvec and quotient, one program
STAGES = ("quotient", "msm_a", "msm_b_g1", "msm_b_g2", "msm_h", "msm_l")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Pending:
  """A proof that has been dispatched. Holds secrets: it has no repr of its content."""
  key: ProvingKey
  blinding: Blinding
  sums: dict                                  # name of the query -> something whose result() is an affine integer point
  first: Optional[object] = None              # on a GPU: wire 0, to be checked when it is there, and the sums are A, B and C
  begun_ns: int = 0                           # and the time.perf_counter_ns() in the middle of the call that queued the first kernels


def prove(key, witness, blinding=None):
  """Returns a Groth16 proof that `witness` satisfies the key's circuit.

  Args:
    key: ProvingKey, from `formats.snarkjs.read_zkey` or `setup`.
    witness: Fr[num_wires] or a sequence of num_wires ints in [0, r), wire 0 being the constant 1.
    blinding: Blinding(r, s); None draws r and s from the operating system. Fixed blinding destroys zero knowledge: for tests.

  Returns:
    Proof. A zkey holds no C matrix, so an unsatisfying witness gives a proof that does not verify: use `r1cs.check_satisfied` to find
    the constraint.

  Raises:
    ValueError: the witness has another length or its first value is not 1.

  Cost: three sparse products' worth of Fr work, six or seven NTTs of the domain size, four multi-scalar multiplications in G1 and one in
  G2.
  """
  return finish(start(key, witness, blinding))


def prove_batch(key, witnesses, blindings=None):
  """Proofs of several witnesses (partitions) of one circuit, in order; evaluation and quotient run as one vmapped call.

  Args: as `prove`, with sequences of witnesses and of blindings (or None). Raises ValueError before any work if one of them is wrong.
  """
  return [finish(p) for p in start_batch(key, witnesses, blindings)]


def start_batch(key, witnesses, blindings=None, *, spans=None, threads=None):
  """Checks and dispatches several proofs, see `prove_batch`; returns a pending proof for each. spans: a `span` for each, see `start`."""
  witnesses = list(witnesses)
  if blindings is not None and len(blindings) != len(witnesses):
    raise ValueError(f"{len(witnesses)} witnesses need as many blindings, got {len(blindings)}: pass None to draw them")
  if not witnesses:
    return []
  witnesses = [_checked(key, w) for w in witnesses]
  blindings = [Blinding.random() for _ in witnesses] if blindings is None else blindings
  if on_gpu():                                # one proof fills the device, and the next is queued behind it
    return [_start_on_device(key, w, b) for w, b in zip(witnesses, blindings)]
  spans = [jax.profiler.TraceAnnotation] * len(witnesses) if spans is None else spans
  stacked = Fr(jnp.stack([jnp.asarray(w.limbs) for w in witnesses]))

  def evaluate_all():
    with contextlib.ExitStack() as stack:
      for span in spans:                                     # the work of all of them
        stack.enter_context(span("quotient"))
      return list(map(shared_scalars, np.asarray(_batch_quotient_scalars(key.constraints, stacked, key.domain, key.h_basis))))

  evaluated = _once(evaluate_all)
  with _pool(threads or _threads(key)) as pool:
    return [Pending(key, b, _dispatch(key, w, b, pool, lambda k=k: evaluated()[k], span, threads))
            for k, (w, b, span) in enumerate(zip(witnesses, blindings, spans))]


def start(key, witness, blinding=None, *, span=jax.profiler.TraceAnnotation, threads=None):
  """Checks the input and dispatches a proof; see `prove` for the arguments. Pass the result to `finish`.

  Args: span: called with the name of a stage, a context manager around it. threads: how many stages may run at once; None means as many as
  the machine has cores, and one more if they are short, 1 one after the other.
  """
  witness = _checked(key, witness)
  blinding = Blinding.random() if blinding is None else blinding
  if on_gpu():
    return _start_on_device(key, witness, blinding)

  def evaluate_one():
    with span("quotient"):
      return shared_scalars(quotient_scalars(key.constraints, witness, key.domain, key.h_basis))

  with _pool(threads or _threads(key)) as pool:
    return Pending(key, blinding, _dispatch(key, witness, blinding, pool, _once(evaluate_one), span, threads))


def finish(pending):
  """Waits for a dispatched proof and assembles it."""
  if pending.first is None:
    return assemble({name: future.result() for name, future in pending.sums.items()}, pending.blinding)
  _check_first(pending.first.result())        # it and A are there, and A's inversion done, while the device still works on B and C
  a, b, c = (pending.sums[name].result() for name in ("a", "b_g2", "c"))
  return Proof(Affine.from_ints(Fp, a), Affine.from_ints(Fp2, b), Affine.from_ints(Fp, c))


def assemble(sums, blinding):
  """A, B and C = l + h + s A + r B1, where B1 is B in G1, from the sums over `ProvingKey.bases` of the `blinded` scalars: affine integer
  points by name."""
  a, b, b1 = (sums[name] for name in ("a", "b_g2", "b_g1"))
  c = G1.sum([G1.subgroup_combination([(blinding.s, a), (blinding.r, b1)]), sums["l"], sums["h"]])
  return Proof(Affine.from_ints(Fp, a), Affine.from_ints(Fp2, b), Affine.from_ints(Fp, c))


def blinded(witness, blinding):
  """Fr[num_wires + 4], what all of `ProvingKey.bases` but h take: the witness and 1, r, s, -r s."""
  return jax.tree.map(lambda w, more: np.concatenate([w, more], axis=1), witness, _more_scalars(blinding))


def _more_scalars(blinding):
  return Fr.from_ints([1, blinding.r, blinding.s, -blinding.r * blinding.s])


def public_inputs(key, witness):
  """The public part of a witness, as the list of ints a verifier takes (without the constant 1)."""
  return _checked(key, witness)[1:key.num_public + 1].to_ints()


@functools.partial(stored, static_argnames=("domain", "h_basis"))
def quotient_scalars(constraints, witness, domain, h_basis):
  """The plain scalars uint32[8, n] that the h query is fed with; see `qap.quotient`."""
  return quotient_scalars_with(constraints, witness, None, domain, h_basis)


@functools.partial(jax.jit, static_argnames=("domain", "h_basis"))
def quotient_scalars_with(constraints, witness, tables, domain, h_basis):
  """As `quotient_scalars`, with `ntt.twiddles(domain)`."""
  with jax.named_scope("matvec"):
    az, bz, cz = evaluate(constraints, witness, 1 << domain.log2_size)
  with jax.named_scope("quotient"):
    return quotient(az, bz, cz, domain, h_basis, tables).to_plain()


@functools.partial(stored, static_argnames=("domain", "h_basis"))
def _batch_quotient_scalars(constraints, witnesses, domain, h_basis):
  return jax.vmap(lambda w: quotient_scalars(constraints, w, domain, h_basis))(witnesses)


def _dispatch(key, witness, blinding, pool, exponents, span, threads):
  """Submits the five sums and returns their futures by name. `exponents()` makes the scalars of the h query, or waits for another thread
  that makes them: the first task of all."""
  bases, scalars = key.bases, shared_scalars(blinded(witness, blinding).to_plain())
  values = dict.fromkeys(bases._fields, lambda: scalars) | {"h": exponents}
  tasks = _tasks(bases, scalars.large(), threads or _cores())
  submitted = {name: [] for name in bases._fields}

  def terms(name, part):
    words = values[name]()
    with span(f"msm_{name}"):
      return getattr(bases, name).terms(words, part, tasks.count(name))

  def total(name, part, others):
    """Waits for the others, which have been submitted before."""
    own = terms(name, part)
    return getattr(bases, name).total(itertools.chain(own, *(other.result() for other in others)))

  for name in tasks:
    part = len(submitted[name])
    work = (terms, name, part) if part < tasks.count(name) - 1 else (total, name, part, list(submitted[name]))
    submitted[name].append(pool.submit(*work))
  return {name: parts[-1] for name, parts in submitted.items()}


def _tasks(bases, large, threads):
  """The sums in the order of their tasks, as often as they have parts, so that threads end at about the same time: h first, since its
  scalars are made first, then the longest one; none takes longer than a thread's share of all, and the last one is cut if it is worth it.

  large: which scalars of the others are; small ones, most often bits, cost next to nothing.
  """
  costs = {name: query.cost(None if name == "h" else large) for name, query in bases._asdict().items()}
  share = max(sum(costs.values()), 1) / threads
  parts = {name: math.ceil(cost / share) or 1 for name, cost in costs.items()}
  others = sorted((name for name in costs if name != "h"), key=costs.get, reverse=True)
  if parts["h"] == 1 and costs[others[-1]] > _WORTH_CUTTING:
    parts[others[-1]] = threads
  return ["h"] + [name for name in others for _ in range(parts[name])] + ["h"] * (parts["h"] - 1)


def _once(make):
  """A function that returns what make() does, and calls it once, on the first thread that asks."""
  lock, made = threading.Lock(), []

  def get():
    with lock:
      if not made:
        made.append(make())
      return made[0]
  return get


def prepare_on_device(key):
  """Makes what proofs of a key use on a GPU and compiles their programs, all at the same time; nothing where that has been done."""
  if "bases" in vars(key):
    return
  bases, values = key.bases, lambda n: Fr(jax.ShapeDtypeStruct((Fr.num_limbs, n), jnp.uint32))
  witness = values(key.num_wires)
  compile_sums([bases.a, bases.b_g1, bases.l], witness, values(4), bases.b_g2, bases.h, *_quotient_of(key, witness))


def _quotient_of(key, witness):
  """The scalars of the h query as a function, its arrays and its static arguments."""
  return quotient_scalars_with, (key.resident_constraints, witness, key.twiddles), (key.domain, key.h_basis)


def _start_on_device(key, witness, blinding):
  """Queues everything on the GPU, and returns at once: two programs, of which the last one assembles C from what the other made."""
  prepare_on_device(key)
  bases, r, s = key.bases, blinding.r, blinding.s
  witness = witness if isinstance(witness.limbs, jax.Array) else jax.device_put(witness)
  before = time.perf_counter_ns()
  (a, b_g1, l, h), scalars, first = start_sums(
      [bases.a, bases.b_g1, bases.l], witness, _more_scalars(blinding), bases.h, *_quotient_of(key, witness))
  begun = (before + time.perf_counter_ns()) // 2
  b_g2, c = start_combined(bases.b_g2, scalars, [a, b_g1], [s, r], [l, h])
  return Pending(key, blinding, {"a": a, "b_g2": b_g2, "c": c}, first, begun)


@contextlib.contextmanager
def _pool(threads):
  """Threads that finish what was submitted after the block has been left. If it raises, they have ended: they read the caller's arrays."""
  pool = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="zkjax-msm")
  try:
    yield pool
  except BaseException:
    pool.shutdown(wait=True, cancel_futures=True)
    raise
  pool.shutdown(wait=False)


def _threads(key):
  """Short sums wait for their additions now and then: one thread more than cores. Long ones do not, and each takes a hundred megabytes."""
  return _cores() + (key.domain.log2_size < 16)


def _cores():
  return max(2, os.cpu_count() or 1)


def _checked(key, witness):
  """The witness as Fr, or ValueError before any work. Never prints a value: they are secrets."""
  if not isinstance(witness, Fr):
    values = list(witness)
    if any(not isinstance(v, int) or not 0 <= v < bls12_381.R for v in values):
      raise ValueError("every witness value must be an int in [0, r); reduce it mod r first")
    witness = Fr.from_ints(values)
  if witness.shape != (key.num_wires,):
    raise ValueError(f"the key's circuit has {key.num_wires} wires, the witness has shape {witness.shape}: it belongs to another circuit")
  if not (on_gpu() and isinstance(witness.limbs, jax.Array)):        # there `finish` does it: reading it would wait for all that is queued
    _check_first(witness[0].to_ints())
  return witness


def _check_first(value):
  if value != 1:
    raise ValueError("wire 0 of a witness is the constant 1, this one has another value: it is not a circom witness")
