"""Kernels as per-thread programs through Pallas Mosaic GPU: the builder that makes MLIR, and the launch. The only file that knows either.

The whole kernel is one `inline_mgpu` body: no layouts are inferred, it lowers in a tenth of a second, and lowering for CUDA needs no GPU.
Tried with JAX 0.10.2 and 0.12.0 (lowering) and 0.11.2 (running on an H200).
"""
import inspect

import jax
import jax.numpy as jnp

from zkjax.ops.gpu.program import Builder, Word

try:
  from jax.experimental.pallas import mosaic_gpu as plgpu
  from jaxlib.mlir import ir
  from jaxlib.mlir.dialects import arith, gpu, llvm, memref, scf
except ImportError:                          # no Mosaic GPU in this JAX: `support` says so, and no kernel is launched
  plgpu = None

THREADS = 128                                # a block is one warpgroup


def num_cores(default=132):
  """Streaming multiprocessors of the device in use, `default` (an H200) where no GPU is present."""
  return getattr(jax.devices()[0], "core_count", None) or default


def launch(program, inputs, outputs, num_blocks, shared=()):
  """Runs program(b, *inputs, *outputs, *shared) in every thread of `num_blocks` blocks of THREADS threads.

  Args:
    inputs: uint32 arrays, read only. outputs: shapes of the uint32 arrays that the threads write; what no thread writes is undefined.
    shared: shapes of uint32 arrays in the shared memory of a block.

  Returns:
    The list of outputs.
  """
  num_refs = len(inputs) + len(outputs) + len(shared)

  def body(*refs):
    @plgpu.inline_mgpu(arg_types=(plgpu.RefType(),) * num_refs, return_type=())
    def thread_program(_, *arrays):
      program(MlirBuilder(), *arrays)
      return ()
    thread_program(*refs)

  body.__name__ = program.__qualname__.partition(".")[0].strip("_")          # what profilers show: the function that holds the program
  shapes = [jax.ShapeDtypeStruct(shape, jnp.uint32) for shape in outputs]
  out_name = "out_type" if "out_type" in inspect.signature(plgpu.kernel).parameters else "out_shape"
  kernel = plgpu.kernel(body, **{out_name: shapes}, grid=(num_blocks,), grid_names=("block",),
                        scratch_types=[plgpu.SMEM(shape, jnp.uint32) for shape in shared])
  return kernel(*inputs)


class MlirBuilder(Builder):
  """Makes the MLIR of a thread program at the current insertion point. Raw words are i32, raw flags i1."""

  _BINARY = {"add": "addi", "sub": "subi", "mul": "muli", "and": "andi", "or": "ori", "xor": "xori", "shl": "shli",
             "shr": "shrui", "div": "divui", "rem": "remui"}
  _COMPARE = {"eq": "eq", "ne": "ne", "lt": "ult", "le": "ule"}

  def __init__(self):
    self.i32, self.i64, self.index = ir.IntegerType.get_signless(32), ir.IntegerType.get_signless(64), ir.IndexType.get()

  def constant(self, value):
    return arith.constant(self.i32, value - (1 << 32) if value >> 31 else value)

  def binary(self, op, a, b):
    return getattr(arith, self._BINARY[op])(a, b)

  def compare(self, op, a, b):
    return arith.cmpi(getattr(arith.CmpIPredicate, self._COMPARE[op]), a, b)

  def logic(self, op, a, b):
    return getattr(arith, self._BINARY[op])(a, b)

  def invert(self, a):
    return arith.xori(a, arith.constant(ir.IntegerType.get_signless(1), 1))

  def choose(self, flag, a, b):
    return arith.select(flag, a, b)

  def execute(self, operation, words):
    return self._assembly(operation.text, operation.constraints, words, operation.num_outputs)

  def load(self, ref, *index):
    return Word(self, memref.load(ref, [self._index(i) for i in index]))

  def store(self, ref, value, *index):
    memref.store(value.raw, ref, [self._index(i) for i in index])

  def load_row(self, ref, row, first, count):
    address, words = self._address(ref, row), []
    for k in range(first, first + count, 4):
      text = f"ld.global.nc.v4.u32 {{$0,$1,$2,$3}}, [$4+{4 * k}];"
      words += self._assembly(text, "=r,=r,=r,=r,l", [address], 4)
    return tuple(Word(self, w) for w in words)

  def store_row(self, ref, row, first, words):
    address = self._address(ref, row)
    for k in range(0, len(words), 4):
      text = f"st.global.v4.u32 [$0+{4 * (first + k)}], {{$1,$2,$3,$4}};"
      llvm.inline_asm(None, [address] + [w.raw for w in words[k:k + 4]], text, "l,r,r,r,r", has_side_effects=True)

  def repeat(self, count, carried, body):
    leaves, structure = jax.tree.flatten(carried)
    loop = scf.ForOp(self._constant_index(0), self._index(count), self._constant_index(1), [v.raw for v in leaves])
    with ir.InsertionPoint(loop.body):
      state = self._wrapped(structure, leaves, loop.inner_iter_args)
      result = body(Word(self, arith.index_castui(self.i32, loop.induction_variable)), state)
      scf.YieldOp(_raw_leaves(result, structure))
    return self._wrapped(structure, leaves, loop.results)

  def when(self, flag, then, otherwise=None):
    if otherwise is None:
      branch = scf.IfOp(flag.raw)
      with ir.InsertionPoint(branch.then_block):
        then()
        scf.YieldOp([])
      return None
    leaves, structure = jax.tree.flatten(self._shape_of(then))
    types = [self.i32 if isinstance(v, Word) else ir.IntegerType.get_signless(1) for v in leaves]
    branch = scf.IfOp(flag.raw, types, has_else=True)
    for block, function in ((branch.then_block, then), (branch.else_block, otherwise)):
      with ir.InsertionPoint(block):
        scf.YieldOp(_raw_leaves(function(), structure))
    return self._wrapped(structure, leaves, branch.results)

  def _shape_of(self, function):
    """The tree that `function` returns, from a trial run in a region that is thrown away."""
    trial = scf.IfOp(arith.constant(ir.IntegerType.get_signless(1), 0))
    with ir.InsertionPoint(trial.then_block):
      tree = function()
      scf.YieldOp([])
    kinds = jax.tree.map(lambda v: type(v)(self, None), tree)
    trial.operation.erase()
    return kinds

  def thread(self):
    return Word(self, arith.index_castui(self.i32, gpu.thread_id(gpu.Dimension.x)))

  def block(self):
    return Word(self, arith.index_castui(self.i32, gpu.block_id(gpu.Dimension.x)))

  def barrier(self):
    # no assembly, which LLVM may copy into both sides of a branch whose condition comes again: a warp that parts there waits for ever
    gpu.barrier()

  def any_thread(self, flag):
    self.barrier()                             # keeps the block whole, and so the assembly in it, see there
    text = "{ .reg .pred p, q; setp.ne.u32 p, $1, 0; bar.red.or.pred q, 0, p; selp.u32 $0, 1, 0, q; }"
    word = arith.extui(self.i32, flag.raw)
    return Word(self, llvm.inline_asm(self.i32, [word], text, "=r,r,~{memory}", has_side_effects=True)).differs(0)

  def _assembly(self, text, constraints, operands, num_results):
    """The results of inline PTX without side effects."""
    if num_results == 1:
      return [llvm.inline_asm(self.i32, operands, text, constraints, has_side_effects=False)]
    struct = ir.Type.parse("!llvm.struct<(" + ", ".join(["i32"] * num_results) + ")>")
    packed = llvm.inline_asm(struct, operands, text, constraints, has_side_effects=False)
    return [llvm.extractvalue(self.i32, packed, ir.DenseI64ArrayAttr.get([k])) for k in range(num_results)]

  def _address(self, ref, row):
    """The byte address of a row of a contiguous array [rows, columns] in global memory."""
    columns = ir.MemRefType(ref.type).shape[1]
    base = arith.index_castui(self.i64, memref.extract_aligned_pointer_as_index(ref))
    offset = arith.muli(arith.extui(self.i64, row.raw), arith.constant(self.i64, 4 * columns))
    return arith.addi(base, offset)

  def _constant_index(self, value):
    return arith.constant(self.index, value)

  def _index(self, value):
    return self._constant_index(value) if isinstance(value, int) else arith.index_castui(self.index, value.raw)

  def _wrapped(self, structure, leaves, raws):
    return jax.tree.unflatten(structure, [type(leaf)(self, raw) for leaf, raw in zip(leaves, raws)])


def _raw_leaves(tree, structure):
  leaves, got = jax.tree.flatten(tree)
  if got != structure:
    raise ValueError(f"a loop or branch gives {got}, expected {structure}")
  return [v.raw for v in leaves]


def blocks_for(count):
  """The number of blocks that gives every one of `count` elements a thread."""
  return -(-count // THREADS)


def thread_index(b):
  """The index of the thread among all threads of the launch."""
  return b.block() * THREADS + b.thread()

