"""The sums of a proof, queued on a GPU as a few programs: see `ops.msm.on_gpu` for whether they can be. Kernels are loaded on first use,
since loading them takes a good part of a second."""


def start_sums(bases, values, more, made, function, arrays, static):
  """Starts on a GPU, as one program, the sums of several FixedBases with the same scalars, Fr[n] and behind them Fr[m], and the sum of
  FixedBases `made` with the plain scalars that a function makes of trees of arrays and of hashable arguments.

  Returns the pending sums, as `FixedBases.start` does, that of `made` last; the scalars, prepared for others with the same plan; and the
  first of them, pending, plain. Nothing is copied to the host before it is asked for.
  """
  from zkjax.ops.gpu import fixed
  return fixed.start_several([b.prepared for b in bases], values, more, made.prepared, function, arrays, static)


def start_combined(bases, scalars, factored, factors, plain):
  """Starts on a GPU, as one program, the sum of FixedBases with what `start_sums` prepared, and k_0 P_0 + k_1 P_1 + ... + Q_0 + Q_1 + ...
  of pending sums P (factored) and Q (plain) in G1, with integers k below r. Returns both, pending, on their way to the host."""
  from zkjax.ops.gpu import fixed
  return fixed.start_combined(bases.prepared, scalars, factored, factors, plain)


def compile_sums(bases, values, more, other, made, function, arrays, static):
  """Compiles at the same time what start_sums(bases, values, more, made, function, arrays, static) will run, and start_combined of `other`
  and those sums, two of them with factors."""
  from zkjax.ops.gpu import fixed
  fixed.compile_together([b.prepared for b in bases], values, more, other.prepared, made.prepared, function, arrays, static)
