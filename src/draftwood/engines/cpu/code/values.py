"""Values of the code that is written: arithmetic as Python writes it, and memory as arrays.

    value * scale + 1.0             a Python number beside a value becomes a constant of the value's type;
    keys * query                    a number beside a vector stands in every lane of it
    total.plus_product(a, b)        total + a * b, rounded once (fma)
    place + 8                       an address 8 bytes further
    place.f32[i], place.f32x16[i]   number ``i`` of an array of float32; 16 of them from number ``i`` on

All arithmetic is stated operation by operation, so that every processor computes the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from llvmlite import ir

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16, F32, POINTER, VOID = ir.HalfType(), ir.FloatType(), ir.PointerType(), ir.VoidType()
LANES = 16
"""Lanes of the vectors that rows are computed with; processors with shorter vectors take several for one."""
LOWEST = float("-inf")
"""What the largest of some numbers begins with."""

_KINDS = {"i8": (I8, 1), "i16": (I16, 2), "i32": (I32, 4), "i64": (I64, 8), "f32": (F32, 4)}
"""LLVM's type and the bytes of an element, by name."""


def vector(kind: ir.Type, lanes: int = LANES) -> ir.VectorType:
    """Return the type of a vector."""
    return ir.VectorType(kind, lanes)


def constant(kind: ir.Type, value: float | Sequence[float]) -> ir.Constant:
    """Return a constant; of a vector, with one number in every lane, or with these."""
    if isinstance(kind, ir.VectorType) and not isinstance(value, Sequence):
        value = [value] * kind.count
    return ir.Constant(kind, list(value) if isinstance(value, Sequence) else value)


class Value:
    """A number, or a vector of numbers: int8 to int64, float16 or float32. Comparisons give int1.

    ``builder`` writes the code, ``ir`` is llvmlite's object for it.
    """

    __slots__ = ("builder", "ir")

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.ir = builder, value

    @property
    def lanes(self) -> int:
        """Lanes of the vector; 1 for a number."""
        return self.ir.type.count if isinstance(self.ir.type, ir.VectorType) else 1

    @property
    def element(self) -> ir.Type:
        """The type of the number, or of a lane."""
        return self.ir.type.element if isinstance(self.ir.type, ir.VectorType) else self.ir.type

    @property
    def _is_real(self) -> bool:
        return self.element in (F32, F16)

    def as_value(self, other: Operand) -> Value:
        """Return the other operand as a `Value` of at least as many lanes; Python numbers get this one's type."""
        if not isinstance(other, Value):
            return Value(self.builder, constant(self.ir.type, other))
        return other.splat(self.lanes) if other.lanes < self.lanes else other

    def _two(self, whole: str, real: str, other: Operand, *, swapped: bool = False) -> Value:
        a, b = self, self.as_value(other)
        a = b.as_value(a)
        if swapped:
            a, b = b, a
        return Value(self.builder, getattr(self.builder, real if a._is_real else whole)(a.ir, b.ir))

    def __add__(self, other: Operand) -> Value:
        return self._two("add", "fadd", other)

    def __sub__(self, other: Operand) -> Value:
        return self._two("sub", "fsub", other)

    def __mul__(self, other: Operand) -> Value:
        return self._two("mul", "fmul", other)

    def __truediv__(self, other: Operand) -> Value:
        return self._two("", "fdiv", other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self._two("", "fdiv", other, swapped=True)

    def __floordiv__(self, other: Operand) -> Value:
        return self._two("sdiv", "", other)

    def __mod__(self, other: Operand) -> Value:
        return self._two("srem", "", other)

    def __and__(self, other: Operand) -> Value:
        return self._two("and_", "", other)

    def __or__(self, other: Operand) -> Value:
        return self._two("or_", "", other)

    def __lshift__(self, other: Operand) -> Value:
        return self._two("shl", "", other)

    def __rshift__(self, other: Operand) -> Value:
        """Shift to the right; zeros come in from the left."""
        return self._two("lshr", "", other)

    def __neg__(self) -> Value:
        return Value(self.builder, self.builder.fneg(self.ir) if self._is_real else self.builder.neg(self.ir))

    def _compared(self, sign: str, other: Operand) -> Value:
        compare = self.builder.fcmp_ordered if self._is_real else self.builder.icmp_signed
        return Value(self.builder, compare(sign, self.ir, self.as_value(other).ir))

    def __lt__(self, other: Operand) -> Value:
        return self._compared("<", other)

    def __le__(self, other: Operand) -> Value:
        return self._compared("<=", other)

    def __gt__(self, other: Operand) -> Value:
        return self._compared(">", other)

    def __ge__(self, other: Operand) -> Value:
        return self._compared(">=", other)

    def equals(self, other: Operand) -> Value:
        return self._compared("==", other)

    def differs(self, other: Operand) -> Value:
        return self._compared("!=", other)

    def below(self, other: Operand) -> Value:
        """Compare whole numbers without a sign."""
        return Value(self.builder, self.builder.icmp_unsigned("<", self.ir, self.as_value(other).ir))

    @property
    def is_nan(self) -> Value:
        return Value(self.builder, self.builder.fcmp_unordered("uno", self.ir, self.ir))

    def where(self, yes: Operand, no: Operand) -> Value:
        """Return ``yes`` where this condition holds, else ``no``; at least one of them is a `Value`."""
        if isinstance(yes, Value):
            return Value(self.builder, self.builder.select(self.ir, yes.ir, yes.as_value(no).ir))
        assert isinstance(no, Value)
        return Value(self.builder, self.builder.select(self.ir, no.as_value(yes).ir, no.ir))

    def least(self, other: Operand) -> Value:
        """Return this if it is less than the other, else the other."""
        return (self < other).where(self, other)

    def most(self, other: Operand) -> Value:
        """Return this if it is greater than the other, else the other: so NaN of this one is left out."""
        return (self > other).where(self, other)

    def _call(self, name: str, *others: Operand) -> Value:
        suffix = f"v{self.lanes}f32" if self.lanes > 1 else "f32"
        every = [self, *map(self.as_value, others)]
        return self.builder.intrinsic(f"llvm.{name}.{suffix}", self.ir.type, *every)

    def plus_product(self, a: Value, b: Value) -> Value:
        """Return this + a * b, rounded once."""
        return self.as_value(a)._call("fma", b, self)

    def sqrt(self) -> Value:
        return self._call("sqrt")

    def __abs__(self) -> Value:
        return self._call("fabs")

    # --- other types ---------------------------------------------------------------------------------------------

    def _like(self, kind: ir.Type) -> ir.Type:
        return vector(kind, self.lanes) if isinstance(self.ir.type, ir.VectorType) else kind

    def signed(self, kind: ir.Type = I64) -> Value:
        """Sign-extend whole numbers to a wider type."""
        return Value(self.builder, self.builder.sext(self.ir, self._like(kind)))

    def unsigned(self, kind: ir.Type) -> Value:
        """Zero-extend whole numbers to a wider type."""
        return Value(self.builder, self.builder.zext(self.ir, self._like(kind)))

    def narrow(self, kind: ir.Type) -> Value:
        """Truncate whole numbers to a narrower type."""
        return Value(self.builder, self.builder.trunc(self.ir, self._like(kind)))

    def real(self) -> Value:
        """Return whole numbers as float32."""
        return Value(self.builder, self.builder.sitofp(self.ir, self._like(F32)))

    def bits_as(self, kind: ir.Type, lanes: int = 0) -> Value:
        """Return the same bits as another type; ``lanes`` 0: with as many lanes."""
        return Value(
            self.builder, self.builder.bitcast(self.ir, vector(kind, lanes) if lanes else self._like(kind))
        )

    def from_half(self) -> Value:
        """Return float16 numbers, given as int16, as float32: exactly."""
        if self.builder.has_half:
            return Value(self.builder, self.builder.fpext(self.bits_as(F16).ir, self._like(F32)))
        wide = self.unsigned(I32)
        sign, rest = (wide & 0x8000) << 16, (wide & 0x7FFF) << 13
        # The product changes the bias of the exponent from 15 to 127, for subnormal numbers too.
        size = (rest.bits_as(F32) * 2.0**112).bits_as(I32)
        is_odd = rest >= 0x7C00 << 13  # infinity or NaN
        return (is_odd.where(rest | 0x7F800000, size) | sign).bits_as(F32)

    def place(self) -> Place:
        """Return the place at this address, an int64."""
        return Place(self.builder, self.builder.inttoptr(self.ir, POINTER))

    # --- vectors -------------------------------------------------------------------------------------------------

    def splat(self, lanes: int = LANES) -> Value:
        """Return a vector with this number in every lane."""
        kind = vector(self.ir.type, lanes)
        nothing = ir.Constant(kind, ir.Undefined)
        one = self.builder.insert_element(nothing, self.ir, ir.Constant(I32, 0))
        return Value(self.builder, self.builder.shuffle_vector(one, nothing, constant(vector(I32, lanes), 0)))

    def pick(self, lanes: Sequence[int]) -> Value:
        """Return some lanes of a vector."""
        order = constant(vector(I32, len(lanes)), list(lanes))
        nothing = ir.Constant(self.ir.type, ir.Undefined)
        return Value(self.builder, self.builder.shuffle_vector(self.ir, nothing, order))

    def lane(self, at: int | Value) -> Value:
        """Return the number of one lane; of a number, itself."""
        if not isinstance(self.ir.type, ir.VectorType):
            return self
        number = at.narrow(I32).ir if isinstance(at, Value) else ir.Constant(I32, at)
        return Value(self.builder, self.builder.extract_element(self.ir, number))

    def fold(self, combine: Callable[[Value, Value], Value]) -> Value:
        """Combine all lanes into one number: upper half with lower half, again and again."""
        value, lanes = self, self.lanes
        while lanes > 1:
            lanes //= 2
            value = combine(value.pick(range(lanes)), value.pick(range(lanes, 2 * lanes)))
        return value.lane(0)

    def sum(self) -> Value:
        """Return the sum of all lanes, added as `fold` does."""
        return self.fold(Value.__add__)

    def padded(self, to: int = LANES) -> Value:
        """Round up to a multiple of ``to``, a power of two."""
        return (self + (to - 1)) & -to


Operand: TypeAlias = Value | float


class Array:
    """Memory as an array of one type, or of vectors of it. Indices count elements, also where vectors are read."""

    __slots__ = ("_bytes", "_kind", "_place")

    def __init__(self, place: Place, element: str, lanes: int) -> None:
        kind, self._bytes = _KINDS[element]
        self._place, self._kind = place, vector(kind, lanes) if lanes > 1 else kind

    def _pointer(self, at: int | Value) -> Any:
        return (self._place + at * self._bytes).ir

    def __getitem__(self, at: int | Value) -> Value:
        builder = self._place.builder
        return Value(builder, builder.load(self._pointer(at), typ=self._kind, align=self._bytes))

    def __setitem__(self, at: int | Value, value: Value) -> None:
        self._place.builder.store(value.ir, self._pointer(at), align=self._bytes)


class Place:
    """An address in the code. ``place.f32`` is the memory there as an `Array` of float32."""

    __slots__ = ("builder", "ir")

    def __init__(self, builder: Any, pointer: Any) -> None:
        self.builder, self.ir = builder, pointer

    def __add__(self, offset: int | Value) -> Place:
        """Return the address so many bytes further."""
        if isinstance(offset, int):
            if offset == 0:
                return self
            offset = Value(self.builder, ir.Constant(I64, offset))
        return Place(self.builder, self.builder.gep(self.ir, [offset.ir], source_etype=I8))

    def array(self, element: str, lanes: int) -> Array:
        """As ``place.f32x16``, with element and lanes given."""
        return Array(self, element, lanes)

    def __getattr__(self, name: str) -> Array:
        element, _, lanes = name.partition("x")
        return Array(self, element, int(lanes or 1))

    def number(self) -> Value:
        """Return the address as an int64."""
        return Value(self.builder, self.builder.ptrtoint(self.ir, I64))

    def prefetch(self, *, second: bool = False) -> None:
        """Prefetch a cache line into the first-level cache, or the ``second``; any address may be given."""
        near = [Value(self.builder, ir.Constant(I32, number)) for number in (0, 2 if second else 3, 1)]
        self.builder.intrinsic("llvm.prefetch.p0", VOID, self, *near)


class Variable:
    """A value that changes; ``now`` is what it is."""

    __slots__ = ("_builder", "_kind", "_place")

    def __init__(self, first: Value) -> None:
        self._builder, self._kind = first.builder, first.ir.type
        self._place = self._builder.room(first.ir.type).ir
        self.now = first

    @property
    def now(self) -> Value:
        return Value(self._builder, self._builder.load(self._place, typ=self._kind))

    @now.setter
    def now(self, value: Value) -> None:
        self._builder.store(value.ir, self._place)
