"""The quotient of the quadratic arithmetic program, in the form that a key's h query is fed with."""
import jax
import jax.numpy as jnp

from zkjax.ops.field import Fr
from zkjax.ops.ntt import extend, intt


def quotient(az, bz, cz, domain, h_basis, tables=None):
  """Returns what the h query takes of h(X) = (a(X) b(X) - c(X)) / (X^n - 1), where a, b, c interpolate az, bz, cz on `domain`.

  "monomial": the n - 1 coefficients of h. X^n - 1 vanishes on the domain but equals the constant g^n - 1 on its coset by g, so the division
  happens there; deg h <= n - 2. (bellman, arkworks; g is the domain's generator.)

  "coset": the n values of a b - c on the odd powers of the 2n-th root of unity. There X^n - 1 = -2, and the key's points hold the division
  (snarkjs).

  Args:
    az, bz, cz: Fr[n], values on the domain. domain: Domain of n points. h_basis: "coset" or "monomial".
    tables: `ntt.twiddles(domain)`, or None.

  Cost: six transforms of size n for "coset", seven for "monomial"; the three vectors go through them as one batch.
  """
  if h_basis not in ("coset", "monomial"):
    raise ValueError(f'h_basis must be "coset" or "monomial", got {h_basis!r}')
  coset = domain.odd_coset() if h_basis == "coset" else domain.coset(domain.generator)
  stacked = Fr(jnp.stack([v.limbs for v in (az, bz, cz)]))
  values = jax.vmap(lambda v: extend(domain, coset, v, tables))(stacked)
  a, b, c = (Fr(values.limbs[k]) for k in range(3))
  if h_basis == "coset":
    return a * b - c
  return intt(coset, (a * b - c) * Fr.from_ints(coset.inverse_vanishing).broadcast_to(a.shape), tables=tables)[:-1]
