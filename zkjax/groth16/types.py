"""Keys, proofs and blinding: the words used in zkjax beside the symbols of the paper.

| here | Groth16 (eprint 2016/260) | meaning |
|---|---|---|
| vk.alpha_g1, beta_g1, vk.beta_g2 | alpha, beta | trapdoor elements in G1 and G2 |
| vk.gamma_g2; vk.delta_g2, delta_g1 | gamma; delta | divisors of the public and of the private part |
| vk.public_query[i] | (beta u_i + alpha v_i + w_i)(tau) / gamma | for the constant 1 and the public wires |
| l_query[i] | (beta u_i + alpha v_i + w_i)(tau) / delta | for the private wires |
| a_query[i], b_g1_query[i], b_g2_query[i] | u_i(tau), v_i(tau), v_i(tau) | for every wire |
| h_query[i], monomial | tau^i (tau^n - 1) / delta | n - 1 points, fed with the coefficients of h |
| h_query[i], coset | L_(2i+1)(tau) / delta over 2n-th roots | n points, fed with a b - c on the odd coset |
| Proof.a, .b, .c | A, B, C | |
| Blinding.r, .s | r, s | |
"""
import functools
import secrets
from typing import NamedTuple, Optional

import jax
import jax.numpy as jnp
import numpy as np

from zkjax.ops import bls12_381
from zkjax.ops.curve import Affine
from zkjax.ops.field import Fp, Fp2, Fr
from zkjax.ops.msm import FixedBases, table_budget
from zkjax.ops.ntt import Domain, twiddles
from zkjax.pytree import pytree, static


class FormatError(ValueError):
  """Bytes or JSON that do not follow their format. Says the file, the section and the byte offset."""

  def __init__(self, message, *, file=None, section=None, offset=None):
    self.file, self.section, self.offset = file, section, offset
    place = [str(file)] if file is not None else []
    place += [f"section {section}"] if section is not None else []
    place += [f"byte {offset}"] if offset is not None else []
    super().__init__(f"{', '.join(place)}: {message}" if place else message)


class UnsatisfiedError(ValueError):
  """The witness violates a constraint; `constraint` is the index of the first one."""

  def __init__(self, message, *, constraint):
    self.constraint = constraint
    super().__init__(message)


@pytree
class SparseMatrix:
  """Entries (row, wire, value) in any order, duplicates add up. rows, wires: int32[nnz]; values: Fr[nnz]."""
  rows: object
  wires: object
  values: Fr


@pytree
class Constraints:
  """(A w) * (B w) = C w, row by row. `c` is None where C is not known (a zkey): then C w := (A w)(B w).

  The input rows that Groth16 adds for the constant and the public wires are part of `a`. num_rows counts all rows.
  """
  a: SparseMatrix
  b: SparseMatrix
  c: Optional[SparseMatrix]
  num_rows: int = static()
  num_wires: int = static()
  num_public: int = static()

  def stacked(self, size):
    """The matrices one below the other, at rows 0, size, 2 size: one product of a third of the operations, for a GPU."""
    matrices = [m for m in (self.a, self.b, self.c) if m is not None]
    moved = [SparseMatrix(m.rows + np.int32(k * size), m.wires, m.values) for k, m in enumerate(matrices)]
    join = lambda *parts: (jnp if isinstance(parts[0], jax.Array) else np).concatenate(parts, axis=-1)
    return StackedConstraints(jax.tree.map(join, *moved), self.num_rows, len(matrices))


@pytree
class StackedConstraints:
  """The matrices of Constraints as one, see `Constraints.stacked`. num_matrices: 3, or 2 where C is not known."""
  matrix: SparseMatrix
  num_rows: int = static()
  num_matrices: int = static()


@pytree
class VerifyingKey:
  """What a verifier needs; public_query has num_public + 1 points."""
  alpha_g1: Affine
  beta_g2: Affine
  gamma_g2: Affine
  delta_g2: Affine
  public_query: Affine


class QueryBases(NamedTuple):
  """The five queries of a key, prepared for multi-scalar multiplication. All but h take the whole witness: l skips its public part."""
  a: FixedBases
  b_g1: FixedBases
  b_g2: FixedBases
  h: FixedBases
  l: FixedBases


@pytree
class ProvingKey:
  """What a prover needs, whatever ecosystem the key comes from: loaders hide every difference but `h_basis`."""
  vk: VerifyingKey
  beta_g1: Affine
  delta_g1: Affine
  a_query: Affine
  b_g1_query: Affine
  b_g2_query: Affine
  h_query: Affine
  l_query: Affine
  constraints: Constraints
  domain: Domain = static()
  h_basis: str = static()                    # "coset" (snarkjs) or "monomial" (bellman, arkworks)

  @functools.cached_property
  def bases(self):
    """The queries prepared for this machine, with the points of blinding behind them: all but h take the wires' scalars and then 1, r, s,
    -r s. Made on first use, kept as long as the key.

    So their sums are A, B in G1, B, and what C has beside h, s A and r B.
    """
    alpha, beta, delta, nothing = self.vk.alpha_g1, self.beta_g1, self.delta_g1, Affine.infinity(Fp)
    beta2, delta2, nothing2 = self.vk.beta_g2, self.vk.delta_g2, Affine.infinity(Fp2)
    return self._prepared(
        _followed(self.a_query, alpha, delta, nothing, nothing), _followed(self.b_g1_query, beta, nothing, delta, nothing),
        _followed(self.b_g2_query, beta2, nothing2, delta2, nothing2), self.h_query,
        _followed(self.l_query, nothing, nothing, nothing, delta))

  def _prepared(self, *queries):
    """QueryBases. On a GPU every point may take as much memory as another of its group: then queries of equal sizes get equal plans."""
    stages = (f"msm_{name}" for name in QueryBases._fields)
    return QueryBases(*map(FixedBases.prepare, queries, *self._shares(queries), stages))

  def _shares(self, queries):
    """(offsets, budgets) of the queries: with which scalar each begins, and the bytes that its tables may take."""
    offsets = (0, 0, 0, 0, self.num_public + 1)
    sizes = [(offset + query.shape[0]) * len(jax.tree.leaves(query)) for query, offset in zip(queries, offsets)]
    budget = table_budget()
    return offsets, [budget and budget * size // max(sum(sizes), 1) for size in sizes]

  def device_bytes(self):
    """Bytes of a GPU's memory that the prepared queries, the constraints and the tables of roots take; 0 without one. The four points of
    blinding behind each query are not counted."""
    if table_budget() is None:
      return 0
    queries = (self.a_query, self.b_g1_query, self.b_g2_query, self.h_query, self.l_query)
    tables, roots = sum(map(FixedBases.device_bytes, queries, *self._shares(queries))), 2 * 4 * Fr.num_limbs << self.domain.log2_size
    return tables + roots + sum(v.nbytes for v in jax.tree.leaves(self.constraints))

  @functools.cached_property
  def resident_constraints(self):
    """The constraints as StackedConstraints where a GPU's prover evaluates them: on the GPU, or where they are."""
    made = self.constraints.stacked(self.domain.size)
    return jax.device_put(made) if table_budget() is not None else made

  @functools.cached_property
  def twiddles(self):
    """Tables of the domain's roots of unity, or None; see `ntt.twiddles`."""
    return twiddles(self.domain)

  @property
  def num_public(self):
    return self.constraints.num_public

  @property
  def num_wires(self):
    return self.constraints.num_wires


def _followed(query, *points):
  """The query and the points, where the query lies."""
  def join(first, *others):
    library = jnp if isinstance(first, jax.Array) else np
    return library.concatenate([first] + [library.asarray(v)[:, None] for v in others], axis=1)
  return jax.tree.map(join, query, *points)


@pytree
class Proof:
  """A and C in G1, B in G2, each one affine point."""
  a: Affine
  b: Affine
  c: Affine


class Blinding:
  """The prover's secrets r and s, integers mod the group order. Never printed."""

  def __init__(self, r, s):
    for value in (r, s):
      if not 0 <= value < bls12_381.R:
        raise ValueError("a blinding factor must be an integer in [0, r); draw it with Blinding.random()")
    self.r, self.s = r, s

  @classmethod
  def random(cls):
    """Uniform r and s from the operating system."""
    return cls(secrets.randbelow(bls12_381.R), secrets.randbelow(bls12_381.R))

  def __repr__(self):
    return "Blinding(secret)"
