"""What a kernel is written in: words, flags and field elements of one thread, over a builder.

A kernel is a function `program(b, *refs)` of one thread. `b` is a Builder: the one that makes MLIR (simt.py) or the one that runs NumPy
over all threads at once (in the tests). Words are 32-bit unsigned integers, arithmetic wraps; flags are booleans. Trees of words, flags and
elements are what loops and branches carry.
"""
import abc

import jax

from zkjax.ops.gpu import ptx
from zkjax.ops.limbs import FP, Modulus
from zkjax.pytree import pytree, static


class _Handle:
  def __init__(self, builder, raw):
    self.builder, self.raw = builder, raw

  def _raw(self, other):
    return other.raw if isinstance(other, _Handle) else self.builder.constant(other)


def _binary(op, swapped=False):
  def method(self, other):
    a, b = self.raw, self._raw(other)
    return Word(self.builder, self.builder.binary(op, *((b, a) if swapped else (a, b))))
  return method


def _compare(op):
  return lambda self, other: Flag(self.builder, self.builder.compare(op, self.raw, self._raw(other)))


class Word(_Handle):
  """A 32-bit unsigned integer; the other operand of an operator may be a Python integer. `==` is `equals`."""
  __add__ = __radd__ = _binary("add")
  __sub__, __rsub__ = _binary("sub"), _binary("sub", swapped=True)
  __mul__ = __rmul__ = _binary("mul")
  __and__, __or__, __xor__ = _binary("and"), _binary("or"), _binary("xor")
  __lshift__, __rshift__ = _binary("shl"), _binary("shr")
  __floordiv__, __mod__ = _binary("div"), _binary("rem")
  __lt__, __le__ = _compare("lt"), _compare("le")
  equals, differs = _compare("eq"), _compare("ne")

  def minimum(self, other):
    """The smaller of two words."""
    return (self < other).choose(self, other)


class Flag(_Handle):
  """A boolean."""

  def __and__(self, other):
    return Flag(self.builder, self.builder.logic("and", self.raw, other.raw))

  def __or__(self, other):
    return Flag(self.builder, self.builder.logic("or", self.raw, other.raw))

  def __invert__(self):
    return Flag(self.builder, self.builder.invert(self.raw))

  def choose(self, a, b):
    """The tree `a` where the flag is set, else `b`, by a select on every word. Integers become words."""
    lift = lambda v: v if isinstance(v, _Handle) else self.builder.word(v)
    pick = lambda x, y: type(lift(x))(self.builder, self.builder.choose(self.raw, lift(x).raw, lift(y).raw))
    return jax.tree.map(pick, a, b)


class Builder(abc.ABC):
  """The primitives, on raw values, that an implementation gives, and what follows from them."""

  @abc.abstractmethod
  def constant(self, value):
    """A raw word from a Python integer in [0, 2^32)."""

  @abc.abstractmethod
  def binary(self, op, a, b):
    """add, sub, mul, and, or, xor, shl, shr, div, rem on raw words, unsigned."""

  @abc.abstractmethod
  def compare(self, op, a, b):
    """eq, ne, lt, le on raw words, unsigned; a raw flag."""

  @abc.abstractmethod
  def logic(self, op, a, b):
    """and, or on raw flags."""

  @abc.abstractmethod
  def invert(self, a):
    """The other raw flag."""

  @abc.abstractmethod
  def choose(self, flag, a, b):
    """a if flag else b, raw."""

  @abc.abstractmethod
  def execute(self, operation, words):
    """The raw output words of a ptx.Operation on raw input words."""

  @abc.abstractmethod
  def load(self, ref, *index):
    """The word at an index of Words or integers, one a dimension of the array."""

  @abc.abstractmethod
  def load_row(self, ref, row, first, count):
    """`count` words of a row of a read-only array [rows, columns], from a column that is a multiple of four; count and columns are too."""

  @abc.abstractmethod
  def store(self, ref, value, *index):
    """Writes a word."""

  @abc.abstractmethod
  def store_row(self, ref, row, first, words):
    """Writes words as `load_row` reads them."""

  @abc.abstractmethod
  def repeat(self, count, carried, body):
    """carried = body(i, carried) for i < count (a Word or an integer): the loop of a thread, whose bound may differ from thread to
    thread."""

  @abc.abstractmethod
  def when(self, flag, then, otherwise=None):
    """The tree then() where the flag is set, else otherwise(): a branch. Without `otherwise` the branch has no value."""

  @abc.abstractmethod
  def thread(self):
    """The index of the thread in its block."""

  @abc.abstractmethod
  def block(self):
    """The index of the block."""

  @abc.abstractmethod
  def barrier(self):
    """All threads of a block arrive here, outside of branches and loops that they do not share, before one goes on; shared memory is then
    seen."""

  @abc.abstractmethod
  def any_thread(self, flag):
    """Flag: whether `flag` is set in some thread of the block. A barrier, too."""

  def word(self, value):
    """A Word from a Python integer."""
    return Word(self, self.constant(value))

  def call(self, operation, *elements):
    """A ptx.Operation on elements: its output Words."""
    raws = self.execute(operation, [w.raw for e in elements for w in e.words])
    return tuple(Word(self, r) for r in raws)

  def element(self, modulus, value):
    """The element with the words of a Python integer, which is in Montgomery form already."""
    return Element(tuple(self.word((value >> 32 * k) & 0xffffffff) for k in range(modulus.words)), modulus, ptx.rest(modulus))

  def load_limbs(self, ref, modulus, index, first=0):
    """An element at rest from an array [words, n], word k at [first + k, index]."""
    return Element(tuple(self.load(ref, first + k, index) for k in range(modulus.words)), modulus, ptx.rest(modulus))

  def store_limbs(self, ref, element, index, first=0):
    """The inverse of `load_limbs`."""
    for k, word in enumerate(element.words):
      self.store(ref, word, first + k, index)


@pytree
class Element:
  """A field element of one thread: words, low first, of a value below bound * modulus. Operators need and give elements at rest, but for
  a product."""
  words: tuple
  modulus: Modulus = static()
  bound: int = static()

  @property
  def builder(self):
    return self.words[0].builder

  def _apply(self, operation, *others):
    for e in (self,) + others:
      if e.bound > ptx.rest(self.modulus):
        raise ValueError(f"{operation.name} needs operands below {ptx.rest(self.modulus)} p, one may reach {e.bound} p")
    return Element(self.builder.call(operation, self, *others), self.modulus, ptx.rest(self.modulus))

  def __add__(self, other):
    return self._apply(ptx.add(self.modulus), other)

  def __sub__(self, other):
    return self._apply(ptx.subtract(self.modulus), other)

  def __neg__(self):
    return self._apply(ptx.negate(self.modulus))

  def __mul__(self, other):
    return sum_of_products((self, other))

  def square(self):
    """self * self."""
    ptx.product_bound(self.modulus, [(self.bound, self.bound)])
    return Element(self.builder.call(ptx.square(self.modulus), self), self.modulus, ptx.rest(self.modulus))

  def double(self):
    """self + self."""
    return self + self

  def plus(self, other):
    """self + other without reduction, for use in a product."""
    if self.bound + other.bound > ptx.room(self.modulus):
      raise ValueError(f"a sum may reach {self.bound + other.bound} p, which does not fit the words")
    return Element(self.builder.call(ptx.add_loose(self.modulus), self, other), self.modulus, self.bound + other.bound)

  def reduced(self):
    """The representative in [0, p)."""
    return self._apply(ptx.reduce(self.modulus))

  def is_zero(self):
    """Flag: self = 0."""
    word, = self.builder.call(ptx.is_zero(self.modulus), self)
    return word.differs(0)

  def all_words_zero(self):
    """Flag: the words are all zero. The zero that stands for infinity is stored that way."""
    return _any_bit(self.words).equals(0)


@pytree
class Pair:
  """c0 + c1 u in Fp2, u^2 = -1."""
  c0: Element
  c1: Element

  @property
  def builder(self):
    return self.c0.builder

  def __add__(self, other):
    return Pair(self.c0 + other.c0, self.c1 + other.c1)

  def __sub__(self, other):
    return Pair(self.c0 - other.c0, self.c1 - other.c1)

  def __neg__(self):
    return Pair(-self.c0, -self.c1)

  def __mul__(self, other):
    return sum_of_products((self, other))

  def square(self):
    """(c0 + c1)(c0 - c1) + 2 c0 c1 u."""
    return Pair(self.c0.plus(self.c1) * (self.c0 - self.c1), self.c0.plus(self.c0) * self.c1)

  def double(self):
    """self + self."""
    return self + self

  def reduced(self):
    """Both coordinates in [0, p)."""
    return Pair(self.c0.reduced(), self.c1.reduced())

  def is_zero(self):
    """Flag: self = 0."""
    return self.c0.is_zero() & self.c1.is_zero()

  def all_words_zero(self):
    """Flag: the words are all zero."""
    return _any_bit(self.c0.words + self.c1.words).equals(0)


def sum_of_products(*pairs):
  """sum a b over pairs of elements, with one reduction.

  In Fp2 schoolbook, one reduction a coordinate: c0 = a0 b0 - a1 b1, c1 = a0 b1 + a1 b0. Four products and two reductions cost as much as
  the three of Karatsuba, 12 N^2 against 12 N^2 word products, with fewer additions and fewer live registers.
  """
  a = pairs[0][0]
  if isinstance(a, Pair):
    low = [term for x, y in pairs for term in ((x.c0, y.c0), (-x.c1, y.c1))]
    high = [term for x, y in pairs for term in ((x.c0, y.c1), (x.c1, y.c0))]
    return Pair(sum_of_products(*low), sum_of_products(*high))
  ptx.product_bound(a.modulus, [(x.bound, y.bound) for x, y in pairs])
  words = a.builder.call(ptx.product(a.modulus, len(pairs)), *(v for pair in pairs for v in pair))
  return Element(words, a.modulus, ptx.rest(a.modulus))


def _any_bit(words):
  total = words[0]
  for word in words[1:]:
    total = total | word
  return total


def load_field(b, ref, row, first, degree):
  """A coordinate in Fp (degree 1) or Fp2 (degree 2) from columns first, ... of a row of an array [rows, columns]."""
  parts = [Element(b.load_row(ref, row, first + k * FP.words, FP.words), FP, ptx.rest(FP)) for k in range(degree)]
  return parts[0] if degree == 1 else Pair(*parts)


def store_field(b, ref, row, first, value):
  """The inverse of `load_field`."""
  for k, part in enumerate((value,) if isinstance(value, Element) else (value.c0, value.c1)):
    b.store_row(ref, row, first + k * FP.words, part.words)


def constant_field(b, degree, value):
  """The integer `value` of Fp, in Montgomery form in the kernel, as a coordinate in Fp or Fp2."""
  one = b.element(FP, value * (1 << 32 * FP.words) % FP.value)
  return one if degree == 1 else Pair(one, b.element(FP, 0))
