"""Points in the shared memory of a block, added and doubled by its four warps together.

A thread that is alone takes a microsecond for a product, fourteen for an addition, and towards the end of a sum few additions are left.
Here an addition is four products deep: lane l of every warp works for addition l, and in each of four rounds a warp makes one of its
products.
Over Fp2 two lanes, sixteen apart, make the two coordinates of a product: so there are sixteen additions at a time instead of 32.

Every value is read from shared memory and written there: a round is one piece of code with operands chosen by the warp, few registers are
in use, and a kernel with additions in G2 compiles as fast as one in G1.
"""
from zkjax.ops.gpu import simt
from zkjax.ops.gpu.program import load_field, store_field, sum_of_products
from zkjax.ops.limbs import FP

_WARP, _HALF = 32, 16
_COLUMNS = 96                                # coordinates x, y, zz, zzz have so many each, then 12 temporaries a warp's width each
_TEMPORARIES = 4 * _COLUMNS
_FLAGS = 11                                  # the last temporary
SHARED = (FP.words, _TEMPORARIES + 12 * _WARP)          # shape of the shared memory: 36 KiB


def lanes_of(degree):
  """Additions that a team makes at a time."""
  return _WARP // degree


def tile_of(degree):
  """Points that its memory holds; behind them are `lanes_of` slots more, for operands."""
  return 2 * lanes_of(degree)


class Team:
  """The threads of a block. Slots and flags are those of a thread's own addition; all threads call each method at once.

  The element of a place e is memory[0..11, e]. Over Fp2 places name coordinate c0, and c1 lies sixteen further.
  """

  def __init__(self, b, degree, memory):
    self.builder, self.degree, self._memory = b, degree, memory
    self.lanes, self.tile = lanes_of(degree), tile_of(degree)
    self.warp, lane = b.thread() >> 5, b.thread() & (_WARP - 1)
    self.addition, self._coordinate = lane & (self.lanes - 1), lane // self.lanes

  # Memory

  def _place(self, coordinate, slot):
    """Of coordinate 0..3 of the point in a slot."""
    column = slot if self.degree == 1 else ((slot >> 4) << 5) + (slot & (_HALF - 1))
    return column + coordinate * _COLUMNS

  def _temporary(self, k):
    return self.addition + k * _WARP + _TEMPORARIES

  def _own(self, place):
    """The place of this thread's coordinate."""
    return place if self.degree == 1 else place + self._coordinate * _HALF

  def _load(self, place):
    return self.builder.load_limbs(self._memory, FP, place)

  def _get(self, k):
    return self._load(self._own(self._temporary(k)))

  def _put(self, k, value):
    self.builder.store_limbs(self._memory, value, self._own(self._temporary(k)))

  def fill(self, first, count, fetch):
    """Slots first, first + 1, ...: element `part` of the point in slot first + i becomes fetch(i, part), part < 4 degree."""
    for i, part in self._parts(count):
      self.builder.store_limbs(self._memory, fetch(i, part), self._part_place(first + i, part))

  def drain(self, count, store):
    """store(i, part, load) for the slots i < count; load() is the element."""
    for i, part in self._parts(count):
      store(i, part, lambda i=i, part=part: self._load(self._part_place(i, part)))

  def _parts(self, count):
    parts = 4 * self.degree
    for start in range(0, count * parts, simt.THREADS):
      index = self.builder.thread() + start
      yield index // parts, index % parts

  def _part_place(self, slot, part):
    return self._place(part // self.degree, slot) + (part % self.degree) * _HALF

  def any_finite(self):
    """Flag, the same in all threads: whether a point of the tile is not infinite."""
    zz = self._place(2, self.builder.thread() & (self.tile - 1))
    infinite = self._load(zz).all_words_zero()
    if self.degree == 2:
      infinite = infinite & self._load(zz + _HALF).all_words_zero()
    return self.builder.any_thread(~infinite)

  # Arithmetic

  def _product(self, x, y):
    """This thread's coordinate of the product of the elements at two places."""
    if self.degree == 1:
      return self._load(x) * self._load(y)
    own, other = y + self._coordinate * _HALF, y + (1 - self._coordinate) * _HALF
    x1 = self._load(x + _HALF)
    x1 = self._coordinate.equals(0).choose(-x1, x1)
    return sum_of_products((self._load(x), self._load(own)), (x1, self._load(other)))

  def _by_warp(self, *values):
    chosen = self.builder.word(values[-1]) if isinstance(values[-1], int) else values[-1]
    for k in reversed(range(len(values) - 1)):
      chosen = self.warp.equals(k).choose(values[k], chosen)
    return chosen

  def _in_warp(self, k, action):
    self.builder.when(self.warp.equals(k), action)

  def add(self, p, q, active):
    """The point in slot p becomes P + Q, where `active`. EFD add-2008-s; complete: for equal points the same rounds make dbl-2008-s-1.

    round   warp 0          warp 1         warp 2               warp 3               equal points instead
    1       U1 = X1 ZZ2     U2 = X2 ZZ1    S1 = Y1 ZZZ2         S2 = Y2 ZZZ1
            P = U2 - U1     R = S2 - S1                                              P = 2 Y1, R = X1, U1 = X1, S1 = Y1
    2       PP = P^2        RR = R^2       ZZ = ZZ1 ZZ2         ZZZ = ZZZ1 ZZZ2      R = 3 RR
    3       PPP = P PP      Q = U1 PP      ZZ3 = ZZ PP          RR = R^2             ZZ3 = ZZ1 PP
            V = Q - X3      X3 = RR - PPP - 2 Q                                      X3 = RR - 2 Q
    4       A = R V         B = S1 PPP     ZZZ3 = ZZZ PPP                            ZZZ3 = ZZZ1 PPP
            Y3 = A - B
    """
    b, warp, put, get, place, temporary = self.builder, self.warp, self._put, self._get, self._place, self._temporary
    odd, kind = warp & 1, warp >> 1
    first, second = odd.equals(1).choose((q, p), (p, q))
    put(warp, self._product(place(kind, first), place(kind + 2, second)))
    b.barrier()
    self._find_cases(p, q)
    b.barrier()
    dx_zero, dy_zero, p_infinite, q_infinite = self._cases()
    finite = ~p_infinite & ~q_infinite
    equal, opposite = dx_zero & dy_zero & finite, dx_zero & ~dy_zero & finite

    def prepare_doubling():
      value = self._load(self._own(place(self._by_warp(1, 0, 0, 1), p)))
      put(self._by_warp(1, 3, 0, 2), warp.equals(0).choose(value.double(), value))
    b.when(equal, prepare_doubling)
    b.barrier()
    early, difference = warp < 2, temporary(warp * 2 + 1)
    put(warp + 4, self._product(*early.choose((difference, difference), (place(warp, p), place(warp, q)))))
    b.barrier()
    self._in_warp(1, lambda: b.when(equal, lambda: put(3, get(5).double() + get(5))))
    b.barrier()
    x = self._by_warp(temporary(1), temporary(0), equal.choose(place(2, p), temporary(6)), temporary(3))
    put(self._by_warp(8, 9, 10, 5), self._product(x, self._by_warp(temporary(4), temporary(4), temporary(4), temporary(3))))
    b.barrier()

    def finish_x():
      v = get(9)
      x3 = get(5) - v.double()
      x3 = b.when(equal, lambda: x3, lambda: x3 - get(8))
      put(self._by_warp(1, 6), warp.equals(0).choose(v - x3, x3))
    b.when(early, finish_x)
    b.barrier()
    x = self._by_warp(temporary(3), temporary(2), equal.choose(place(3, p), temporary(7)), temporary(3))
    put(self._by_warp(4, 9, 0, 5), self._product(x, self._by_warp(temporary(1), temporary(8), temporary(8), temporary(1))))
    b.barrier()

    def result():
      chord = get(self._by_warp(6, 4, 10, 0))
      chord = b.when(warp.equals(1), lambda: chord - get(9), lambda: chord)
      return opposite.choose(b.element(FP, 0), chord)
    value = b.when(p_infinite, lambda: self._load(self._own(place(warp, q))), result)
    b.when(active & ~q_infinite, lambda: b.store_limbs(self._memory, value, self._own(place(warp, p))))
    b.barrier()

  def _find_cases(self, p, q):
    """The differences of round 1, and as flags: whether they are zero, and whether P and Q are infinite."""
    b, k = self.builder, self.warp * 2

    def difference():
      value = self._get(k + 1) - self._get(k)
      self._put(k + 1, value)
      return value.is_zero()
    points = lambda: self._load(self._own(self._place(2, self.warp.equals(2).choose(p, q)))).all_words_zero()
    flag = b.when(self.warp < 2, difference, points)
    b.store(self._memory, flag.choose(1, 0), self.warp, self._own(self._temporary(_FLAGS)))

  def _cases(self):
    """The four flags that the warps found, over Fp2 of both coordinates."""
    place = self._temporary(_FLAGS)
    flags = []
    for k in range(4):
      word = self.builder.load(self._memory, k, place)
      word = word if self.degree == 1 else word & self.builder.load(self._memory, k, place + _HALF)
      flags.append(word.differs(0))
    return flags

  def double(self, p, active):
    """The point in slot p becomes 2 P, where `active`. EFD dbl-2008-s-1, three products deep; infinity stays.

    round   warp 0            warp 1            warp 2            warp 3
    1       YY = Y^2          XX = X^2
            V = 4 YY          M = 3 XX          U = 2 Y
    2       W = U V           S = X V           MM = M^2          ZZ3 = V ZZ
            D = S - X3        X3 = MM - 2 S
    3       A = M D           B = W Y           ZZZ3 = W ZZZ
            Y3 = A - B
    """
    b, warp, put, get, place, temporary = self.builder, self.warp, self._put, self._get, self._place, self._temporary
    operand = place(self._by_warp(1, 0, 1, 0), p)
    put(warp, self._product(operand, operand))
    b.barrier()
    self._in_warp(0, lambda: put(4, get(0).double().double()))
    self._in_warp(1, lambda: put(5, get(1).double() + get(1)))
    self._in_warp(2, lambda: put(6, self._load(self._own(place(1, p))).double()))
    b.barrier()
    x = self._by_warp(temporary(6), place(0, p), temporary(5), place(2, p))
    put(warp, self._product(x, self._by_warp(temporary(4), temporary(4), temporary(5), temporary(4))))
    b.barrier()

    def finish_x():
      s = get(1)
      x3 = get(2) - s.double()
      put(warp + 7, warp.equals(0).choose(s - x3, x3))
    b.when(warp < 2, finish_x)
    b.barrier()
    x = self._by_warp(temporary(5), temporary(0), temporary(0), temporary(5))
    put(self._by_warp(9, 10, 6, 4), self._product(x, self._by_warp(temporary(7), place(1, p), place(3, p), temporary(7))))
    b.barrier()
    value = get(self._by_warp(8, 9, 3, 6))
    value = b.when(warp.equals(1), lambda: value - get(10), lambda: value)
    b.when(active, lambda: b.store_limbs(self._memory, value, self._own(place(warp, p))))
    b.barrier()


def load_part(b, ref, row, parts, part):
  """Element `part` of a row of points, from an array seen as uint32[rows * parts, 12]."""
  return load_field(b, ref, row * parts + part, 0, 1)


def store_part(b, ref, row, parts, part, value):
  """The inverse of `load_part`."""
  store_field(b, ref, row * parts + part, 0, value)


def nothing(b):
  """Every element of a point at infinity."""
  return b.element(FP, 0)


