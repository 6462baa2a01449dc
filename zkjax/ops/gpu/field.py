"""Elementwise products on the GPU, one thread an element."""
from zkjax.ops.gpu import simt
from zkjax.ops.gpu.program import Pair
from zkjax.ops.limbs import FP


def mul(modulus, a, b, launch=simt.launch):
  """a b / R, the product of Montgomery forms.

  Args: a, b: canonical uint32[words, *batch], equal batches. Returns: canonical uint32[words, *batch]. Cost: 2 N^2 + N word products an
  element.
  """
  if a.size == 0:
    return a
  shape = a.shape
  flat = [v.reshape((modulus.words, -1)) for v in (a, b)]
  count = flat[0].shape[1]

  def program(builder, x, y, out):
    i = simt.thread_index(builder)

    def multiply():
      product = builder.load_limbs(x, modulus, i) * builder.load_limbs(y, modulus, i)
      builder.store_limbs(out, product.reduced(), i)
    builder.when(i < count, multiply)
  return launch(program, flat, [(modulus.words, count)], simt.blocks_for(count))[0].reshape(shape)


def mul_quadratic(a, b, launch=simt.launch):
  """(a0 b0 - a1 b1) / R and (a0 b1 + a1 b0) / R: products in Fp2.

  Args: a, b: pairs (c0, c1) of canonical uint32[12, *batch], equal batches. Returns: such a pair. Cost: six products of Fp.
  """
  if a[0].size == 0:
    return a
  shape = a[0].shape
  flat = [v.reshape((FP.words, -1)) for v in (*a, *b)]
  count = flat[0].shape[1]

  def program(builder, *refs):
    i = simt.thread_index(builder)

    def multiply():
      x0, x1, y0, y1 = (builder.load_limbs(ref, FP, i) for ref in refs[:4])
      product = (Pair(x0, x1) * Pair(y0, y1)).reduced()
      builder.store_limbs(refs[4], product.c0, i)
      builder.store_limbs(refs[5], product.c1, i)
    builder.when(i < count, multiply)
  c0, c1 = launch(program, flat, [(FP.words, count)] * 2, simt.blocks_for(count))
  return c0.reshape(shape), c1.reshape(shape)
