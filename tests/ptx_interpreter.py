"""An interpreter of the PTX instructions that zkjax/ops/gpu/ptx.py uses, on Python integers. Imports nothing from zkjax.

Semantics: the PTX ISA manual, sections "Integer Arithmetic" and "Extended-Precision Integer Arithmetic". CC is the carry flag: only
instructions with .cc write it; sub.cc and subc.cc write the borrow. Reading a register or a carry that nothing has written is an error.
"""
import re

MASK = 0xffffffff


def run(text, num_outputs, inputs):
  """The output words of a block of inline PTX, `inputs` being the words of $num_outputs, $num_outputs + 1, ...

  Outputs are early clobbers, so they may be read back once written.
  """
  body = re.fullmatch(r"\{ (.*) \}", text).group(1)
  declared, state = set(), {f"${num_outputs + i}": v for i, v in enumerate(inputs)}
  state["cc"] = None
  writable = {f"${i}" for i in range(num_outputs)}
  for line in filter(None, (part.strip() for part in body.split(";"))):
    name, _, rest = line.partition(" ")
    if name == ".reg":
      declared.update(v.strip() for v in rest.partition(" ")[2].split(","))
      continue
    target, *sources = (v.strip() for v in rest.split(","))
    if target not in declared | writable:
      raise ValueError(f"{line}: {target} is not declared")
    state[target] = _execute(name, [_value(state, v, line) for v in sources], state)
  return [state[f"${i}"] for i in range(num_outputs)]


def _value(state, operand, line):
  if re.fullmatch(r"\d+", operand):
    if int(operand) > MASK:
      raise ValueError(f"{line}: {operand} does not fit 32 bits")
    return int(operand)
  if operand not in state:
    raise ValueError(f"{line}: {operand} is read before it is written")
  return state[operand]


def _execute(name, v, state):
  op, *modifiers = name.split(".")
  carried = op in ("addc", "subc", "madc")
  if carried and state["cc"] is None:
    raise ValueError(f"{name} reads a carry that nothing has written")
  carry = state["cc"] if carried else 0
  if op in ("mul", "mad", "madc"):
    product = v[0] * v[1]
    part = product & MASK if "lo" in modifiers else product >> 32
    total = part if op == "mul" else part + v[2] + carry
  elif op in ("add", "addc"):
    total = v[0] + v[1] + carry
  elif op in ("sub", "subc"):
    total = v[0] - v[1] - carry
  elif op == "setp":
    return v[0] == v[1] if modifiers[0] == "eq" else v[0] != v[1]
  elif op == "selp":
    return v[0] if v[2] else v[1]
  else:
    return {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "min": min, "mov": lambda a: a}[op](*v)
  if "cc" in modifiers:
    state["cc"] = int(total < 0 or total > MASK)
  return total & MASK
