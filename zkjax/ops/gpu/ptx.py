"""Field operations as inline PTX text, one thread an element, for the moduli of the curve card.

An element is N words of 32 bits in Montgomery form, R = 2^(32 N). Between operations it is below rest(m) * p: Fp has three spare bits and
rests in [0, 2p), which saves the final subtraction of a product; Fr has one and rests in [0, r). With room = R / p:

  sum of products  requires  sum alpha_k + 1 <= room   for a_k < alpha_k p (so that no row overflows, see `product`)
                   returns   (sum a_k b_k + q p) / R < (1 + sum alpha_k beta_k / room) p   for b_k < beta_k p
  add, subtract, negate      operands at rest, result at rest
  is_zero, reduce            operand at rest

Every operation states what it computes on Python integers (`evaluate`), exactly, representative and all: tests run the text against it.
"""
import dataclasses
import functools
from collections.abc import Callable

from zkjax.ops.limbs import Modulus


@dataclasses.dataclass(frozen=True, eq=False)
class Operation:
  """The text of one operation.

  text: PTX; $0, $1, ... are the words of the outputs and then of the inputs, low words first. num_inputs: input elements of
  `modulus.words` words.
  num_outputs: words. evaluate: the same function on Python integers, inputs to output.
  """
  name: str
  modulus: Modulus
  num_inputs: int
  num_outputs: int
  text: str
  evaluate: Callable

  @property
  def constraints(self):
    """The constraint string of `llvm.inline_asm`: outputs are early clobbers, because they are written before the last input is read."""
    return ",".join(["=&r"] * self.num_outputs + ["r"] * (self.num_inputs * self.modulus.words))


def room(modulus):
  """R / p rounded down: how many times the modulus fits into the words (9 for Fp, 2 for Fr)."""
  return (1 << 32 * modulus.words) // modulus.value


def rest(modulus):
  """Elements rest in [0, rest p): 2 if a product of such elements needs no subtraction (1 + 4 / room <= 2) and no row overflows, else 1."""
  return 2 if room(modulus) >= 4 else 1


def product_bound(modulus, bounds):
  """Whether sum a_k b_k may be computed for a_k < alpha_k p, b_k < beta_k p, and if so the bound before the subtraction.

  Args: bounds: pairs (alpha, beta) of integers. Returns: B = 1 + sum alpha beta / room: the value is below B p.
  Raises: ValueError where a row, or the result even after its conditional subtraction, could overflow.
  """
  p, radix = modulus.value, 1 << 32 * modulus.words
  if (sum(a for a, _ in bounds) + 1) * p > radix:
    raise ValueError(f"a row of the products with bounds {bounds} overflows {modulus.words} words")
  bound = 1 + sum(a * b for a, b in bounds) * p / radix
  limit = rest(modulus) * (2 if _subtracts(modulus, len(bounds)) else 1)
  if bound >= limit:
    raise ValueError(f"products with bounds {bounds} reach {bound:.2f} p, the limit is {limit} p")
  return bound


def _subtracts(modulus, pairs):
  """Whether `product` ends with a conditional subtraction of rest p: if operands at rest can reach that."""
  k = rest(modulus)
  return (1 << 32 * modulus.words) + pairs * k * k * modulus.value > k << 32 * modulus.words


class _Text:
  """Instructions in order, and the registers that they use."""

  def __init__(self, modulus, num_inputs, num_outputs=None):
    self.n, self.modulus = modulus.words, modulus
    self.num_outputs = modulus.words if num_outputs is None else num_outputs
    self.lines, self.registers, self.predicates = [], {}, False
    self.out = [f"${i}" for i in range(self.num_outputs)]
    self.inputs = [[f"${self.num_outputs + k * self.n + i}" for i in range(self.n)] for k in range(num_inputs)]

  def __call__(self, instruction, *operands):
    self.lines.append(f"{instruction} {', '.join(map(str, operands))};")

  def array(self, name, count):
    names = [f"{name}{i}" for i in range(count)]
    self.registers.update(dict.fromkeys(names))
    return names

  def chain(self, op, out, a, b, carry_out=False):
    """out = a op b with the carry running up the words."""
    for i, words in enumerate(zip(out, a, b)):
      first, last = i == 0, i == len(out) - 1 and not carry_out
      self(f"{op}{'' if first else 'c'}{'' if last else '.cc'}.u32", *words)

  def subtract_if_not_less(self, out, value, multiple):
    """out = value - multiple p if that is not negative, else value."""
    difference, borrow = self.array("d", self.n), self.array("m", 1)[0]
    self.chain("sub", difference, value, _words(self.modulus, multiple * self.modulus.value), carry_out=True)
    self("subc.u32", borrow, 0, 0)
    self.predicates = True
    self("setp.ne.u32", "c", borrow, 0)
    for o, v, d in zip(out, value, difference):
      self("selp.u32", o, v, d, "c")

  def operation(self, name, evaluate):
    declared = (".reg .pred c; " if self.predicates else "") + (f".reg .u32 {','.join(self.registers)}; " if self.registers else "")
    text = "{ " + declared + " ".join(self.lines) + " }"
    return Operation(name, self.modulus, len(self.inputs), self.num_outputs, text, evaluate)


def _words(modulus, value):
  return [str((value >> (32 * i)) & 0xffffffff) for i in range(modulus.words)]


def _less(value, limit):
  return value - limit if value >= limit else value


@functools.cache
def product(modulus, pairs=1):
  """(sum_k a_k b_k) / R for `pairs` pairs a_0, b_0, a_1, b_1, ..., with one Montgomery reduction; at rest for operands at rest.

  Row i adds every a_k b_k[i] and q p, q chosen to clear the lowest word, and drops that word. Two accumulators, products at even and at
  odd word positions, make every (mad.lo.cc, madc.hi.cc) pair one 64-bit multiply-add with the carry running straight up the row; they
  swap roles each row.

  No overflow: with A = sum alpha_k p, T <= A + p before a row gives (T + (A + p)(2^32 - 1)) / 2^32 <= A + p after it, and the row itself
  holds at most 2^32 (A + p) <= 2^(32 (N + 1)), which is what both accumulators together hold. The even one carries into the top of the
  odd one.
  """
  text = _Text(modulus, 2 * pairs)
  n, p, radix = modulus.words, modulus.value, 1 << 32 * modulus.words
  operands = list(zip(text.inputs[::2], text.inputs[1::2]))
  even, odd, q = text.array("e", n), text.array("o", n), text.array("q", 1)[0]
  for i in range(n):
    for k, (a, b) in enumerate(operands):
      if k == 0 and i == 0:
        for acc, x in ((odd, a[1:]), (even, a)):
          for j in range(0, n, 2):
            text("mul.lo.u32", acc[j], x[j], b[0])
            text("mul.hi.u32", acc[j + 1], x[j], b[0])
      else:
        if k == 0:
          text("add.cc.u32", even[0], even[0], odd[1])
          _shifted_row(text, odd, a[1:], b[i])
        else:
          _row(text, odd, a[1:], b[i], None)
        _row(text, even, a, b[i], odd[n - 1])
    text("mul.lo.u32", q, even[0], _negative_inverse(modulus))
    _row(text, odd, _words(modulus, p)[1:], q, None)
    _row(text, even, _words(modulus, p), q, odd[n - 1])
    even, odd = odd, even
  _finish(text, even, odd, _subtracts(modulus, pairs))

  def evaluate(*values):
    total = sum(a * b for a, b in zip(values[::2], values[1::2]))
    return _reduced(modulus, total, radix, _subtracts(modulus, pairs))
  return text.operation(f"product{pairs}", evaluate)


@functools.cache
def square(modulus):
  """a^2 / R, the same integer as product(a, a): cross products once, doubled, with the squares added; then the reduction of the low half.

  N (N + 1) / 2 + N^2 + N word products instead of 2 N^2 + N. The low half t gives (t + q p) / R <= p, and the high half is at most
  alpha^2 p^2 / R.
  """
  text, n = _Text(modulus, 1), modulus.words
  a, = text.inputs
  t = _wide_square(text, a)
  # The rows of the reduction: as in `product`, without the part a b_i, so the shift of the odd accumulator joins q p.
  even, odd, q = t[:n], text.array("o", n), text.array("q", 1)[0]
  p = _words(modulus, modulus.value)
  for i in range(n):
    if i:
      text("add.cc.u32", even[0], even[0], odd[1])
    text("mul.lo.u32", q, even[0], _negative_inverse(modulus))
    if i:
      _shifted_row(text, odd, p[1:], q)
    else:
      for j in range(0, n, 2):
        text("mul.lo.u32", odd[j], (p[1:] + ["0"])[j], q)
        text("mul.hi.u32", odd[j + 1], (p[1:] + ["0"])[j], q)
    _row(text, even, p, q, odd[n - 1])
    even, odd = odd, even
  low = text.array("l", n)
  text.chain("add", low, even, odd[1:] + ["0"])
  subtracts = _subtracts(modulus, 1)
  target = text.array("s", n) if subtracts else text.out
  text.chain("add", target, low, t[n:])
  if subtracts:
    text.subtract_if_not_less(text.out, target, rest(modulus))
  return text.operation("square", lambda v: _reduced(modulus, v * v, 1 << 32 * n, subtracts))


def _wide_square(text, a):
  """Registers of a^2, 2 N words. Cross products a_i a_j, i < j, go to the accumulator of the parity of i + j.

  The rows 0 .. i of either accumulator sum to at most (a mod 2^(32 (i + 1))) a < 2^(32 (N + i + 1)): word N + i takes the last carry of
  row i.
  """
  n = text.n
  sums = [{}, {}]                             # parity -> position -> register
  names = [text.array("u", 2 * n), text.array("v", 2 * n)]
  for i in range(n - 1):
    for parity in (0, 1):
      acc, columns = sums[parity], [j for j in range(i + 1, n) if (i + j) % 2 == parity]
      for step, j in enumerate(columns):
        for part, position in (("lo", i + j), ("hi", i + j + 1)):
          carry_in = "" if step == 0 and part == "lo" else "c"
          text(f"mad{carry_in}.{part}.cc.u32", names[parity][position], a[i], a[j], acc.get(position, "0"))
          acc[position] = names[parity][position]
      top = i + columns[-1] + 2 if columns else None
      if top == n + i:
        text("addc.u32", names[parity][top], acc.get(top, "0"), 0)
        acc[top] = names[parity][top]
  t = text.array("t", 2 * n)
  both = [[acc.get(k, "0") for k in range(2 * n)] for acc in sums]
  text.chain("add", t, *both)
  text.chain("add", t, t, t)
  for i in range(n):
    text(f"mad{'c' if i else ''}.lo.cc.u32", t[2 * i], a[i], a[i], t[2 * i])
    text(f"madc.hi{'' if i == n - 1 else '.cc'}.u32", t[2 * i + 1], a[i], a[i], t[2 * i + 1])
  return t


def _row(text, acc, x, y, tail):
  """acc += x[0, 2, 4, ...] y, one 64-bit product a register pair; the carry goes to `tail`, or is proven to be zero."""
  for j in range(0, text.n, 2):
    if j < len(x):
      text(f"mad{'c' if j else ''}.lo.cc.u32", acc[j], x[j], y, acc[j])
      text("madc.hi.cc.u32", acc[j + 1], x[j], y, acc[j + 1])
  if tail:
    text("addc.u32", tail, tail, 0)


def _shifted_row(text, acc, x, y):
  """acc = (acc >> 64) + x[0, 2, 4, ...] y + the carry in CC."""
  n = text.n
  for j in range(0, n - 2, 2):
    text("madc.lo.cc.u32", acc[j], x[j], y, acc[j + 2])
    text("madc.hi.cc.u32", acc[j + 1], x[j], y, acc[j + 3])
  text("madc.lo.cc.u32", acc[n - 2], x[n - 2], y, 0)
  text("madc.hi.u32", acc[n - 1], x[n - 2], y, 0)


def _finish(text, even, odd, subtracts):
  """The two accumulators joined."""
  target = text.array("s", text.n) if subtracts else text.out
  text.chain("add", target, even, odd[1:] + ["0"])
  if subtracts:
    text.subtract_if_not_less(text.out, target, rest(text.modulus))


def _negative_inverse(modulus):
  return str(-pow(modulus.value, -1, 1 << 32) % (1 << 32))


def _reduced(modulus, total, radix, subtracts):
  """The integer that Montgomery reduction row by row returns: (total + q p) / R with q = -total / p mod R."""
  q = (total & (radix - 1)) * _negative_inverse_of_all_words(modulus) & (radix - 1)
  value = (total + q * modulus.value) // radix
  return _less(value, rest(modulus) * modulus.value) if subtracts else value


@functools.cache
def _negative_inverse_of_all_words(modulus):
  return -pow(modulus.value, -1, 1 << 32 * modulus.words)


@functools.cache
def add(modulus):
  """a + b less rest p if that is not negative: below 2 rest p <= R before, at rest after."""
  text = _Text(modulus, 2)
  total, limit = text.array("s", modulus.words), rest(modulus) * modulus.value
  text.chain("add", total, *text.inputs)
  text.subtract_if_not_less(text.out, total, rest(modulus))
  return text.operation("add", lambda a, b: _less(a + b, limit))


@functools.cache
def add_loose(modulus):
  """a + b, not reduced: the bounds add up. Needs alpha + beta <= room."""
  text = _Text(modulus, 2)
  text.chain("add", text.out, *text.inputs)
  return text.operation("add_loose", lambda a, b: a + b)


@functools.cache
def subtract(modulus):
  """a - b, plus rest p if that is negative."""
  text = _Text(modulus, 2)
  limit = rest(modulus) * modulus.value
  _difference(text, *text.inputs)
  return text.operation("subtract", lambda a, b: a - b if a >= b else a - b + limit)


@functools.cache
def negate(modulus):
  """0 for 0, else rest p - a."""
  text = _Text(modulus, 1)
  limit = rest(modulus) * modulus.value
  _difference(text, ["0"] * modulus.words, text.inputs[0])
  return text.operation("negate", lambda a: limit - a if a else 0)


def _difference(text, a, b):
  n, modulus = text.n, text.modulus
  difference, masked, mask = text.array("d", n), text.array("x", n), text.array("m", 1)[0]
  text.chain("sub", difference, a, b, carry_out=True)
  text("subc.u32", mask, 0, 0)
  for x, word in zip(masked, _words(modulus, rest(modulus) * modulus.value)):
    text("and.b32", x, mask, word)
  text.chain("add", text.out, difference, masked)


@functools.cache
def reduce(modulus):
  """The representative in [0, p) of an element at rest."""
  text = _Text(modulus, 1)
  if rest(modulus) == 1:
    for o, v in zip(text.out, text.inputs[0]):
      text("mov.u32", o, v)
  else:
    text.subtract_if_not_less(text.out, text.inputs[0], 1)
  return text.operation("reduce", lambda a: _less(a, modulus.value) if rest(modulus) == 2 else a)


@functools.cache
def is_zero(modulus):
  """1 if a = 0 mod p, else 0: at rest that is a = 0 or, for Fp, a = p. One output word."""
  text = _Text(modulus, 1, num_outputs=1)
  a, words, zero, other = text.inputs[0], _words(modulus, modulus.value), text.array("z", 1)[0], text.array("y", 2)
  text("or.b32", zero, a[0], a[1])
  for word in a[2:]:
    text("or.b32", zero, zero, word)
  if rest(modulus) == 2:
    text("xor.b32", other[0], a[0], words[0])
    for word, constant in zip(a[1:], words[1:]):
      text("xor.b32", other[1], word, constant)
      text("or.b32", other[0], other[0], other[1])
    text("min.u32", zero, zero, other[0])
  text.predicates = True
  text("setp.eq.u32", "c", zero, 0)
  text("selp.u32", text.out[0], 1, 0, "c")
  return text.operation("is_zero", lambda a: int(a % modulus.value == 0))
