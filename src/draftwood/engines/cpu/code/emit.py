"""Writes LLVM code: an `IRBuilder` with the few operations that kernels are made of.

Every function that threads call has the signature ``void(pass, phase, piece)``: addresses of two records
(`draftwood.engines.cpu.code.records`) and the number of a piece of work. All float arithmetic is stated operation
by operation, with ``fma`` where one is meant, so that every processor computes the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16, F32, POINTER, VOID = ir.HalfType(), ir.FloatType(), ir.PointerType(), ir.VoidType()
PIECE = ir.FunctionType(VOID, [POINTER, POINTER, I64])
LANES = 16
"""Lanes of the vectors that rows are computed with; processors with shorter vectors take several for one."""


def vector(kind: ir.Type, lanes: int = LANES) -> ir.VectorType:
    """Return the type of a vector."""
    return ir.VectorType(kind, lanes)


class Body(ir.IRBuilder):
    """The body of a function that is being written."""

    def __init__(self, function: ir.Function, features: frozenset[str]) -> None:
        super().__init__(function.append_basic_block("entry"))
        self._entry = self.block
        self.features = features

    # --- numbers -------------------------------------------------------------------------------------------------

    def i64(self, value: int) -> ir.Constant:
        return ir.Constant(I64, value)

    def f32(self, value: float) -> ir.Constant:
        return ir.Constant(F32, value)

    def same(self, kind: ir.Type, value: float, lanes: int = LANES) -> ir.Constant:
        """Return a vector with one constant in every lane."""
        return ir.Constant(vector(kind, lanes), [value] * lanes)

    def splat(self, value: Any, lanes: int = LANES) -> Any:
        """Return a vector with one value in every lane."""
        kind = vector(value.type, lanes)
        one = self.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
        return self.shuffle_vector(
            one, ir.Constant(kind, ir.Undefined), ir.Constant(vector(I32, lanes), [0] * lanes)
        )

    def call_named(self, name: str, result: ir.Type, arguments: Sequence[Any]) -> Any:
        """Call a function outside of this module: an intrinsic of LLVM, or one of the C library."""
        module, kind = self.module, ir.FunctionType(result, [one.type for one in arguments])
        found = module.globals.get(name) or ir.Function(module, kind, name)
        return self.call(found, arguments)

    def call_at(self, address: Any, kind: ir.FunctionType, arguments: Sequence[Any]) -> Any:
        """Call the function at an address, an integer."""
        return self.call(self.inttoptr(address, kind.as_pointer()), arguments)

    def _elementwise(self, name: str, *values: Any) -> Any:
        kind = values[0].type
        suffix = f"v{kind.count}f32" if isinstance(kind, ir.VectorType) else "f32"
        return self.call_named(f"llvm.{name}.{suffix}", kind, values)

    def mul_add(self, a: Any, b: Any, c: Any) -> Any:
        """Return a * b + c, rounded once."""
        return self._elementwise("fma", a, b, c)

    def sqrt(self, value: Any) -> Any:
        return self._elementwise("sqrt", value)

    def magnitude(self, value: Any) -> Any:
        return self._elementwise("fabs", value)

    def larger(self, a: Any, b: Any) -> Any:
        """Return a where a > b, else b."""
        return self.select(self.fcmp_ordered(">", a, b), a, b)

    # --- memory --------------------------------------------------------------------------------------------------

    def at(self, pointer: Any, offset: Any) -> Any:
        """Return an address so many bytes further."""
        if isinstance(offset, int):
            if offset == 0:
                return pointer
            offset = self.i64(offset)
        return self.gep(pointer, [offset], source_etype=I8)

    def get(self, pointer: Any, kind: ir.Type, offset: Any = 0, align: int = 1) -> Any:
        return self.load(self.at(pointer, offset), typ=kind, align=align)

    def put(self, value: Any, pointer: Any, offset: Any = 0, align: int = 1) -> None:
        self.store(value, self.at(pointer, offset), align=align)

    def prefetch(self, pointer: Any, *, second: bool = False) -> None:
        """Prefetch a cache line into the first-level cache, or the ``second``; any address may be given."""
        zero, near, data = (ir.Constant(I32, number) for number in (0, 2 if second else 3, 1))
        self.call_named("llvm.prefetch.p0", VOID, [pointer, zero, near, data])

    def room(self, kind: ir.Type, count: int = 1) -> Any:
        """Return memory on the stack, reserved at the function's entry; its content is undefined."""
        with self.goto_block(self._entry):
            place = self.alloca(ir.ArrayType(kind, count) if count > 1 else kind)
            place.align = 64
            place.type = POINTER  # llvmlite would check what is stored by the type of the memory
            return place

    def variable(self, value: Any) -> Any:
        """Return memory for a value that changes, with its first value."""
        place = self.room(value.type)
        self.store(value, place)
        return place

    def read(self, place: Any, kind: ir.Type) -> Any:
        return self.load(place, typ=kind)

    def pointer(self, address: Any) -> Any:
        """Return a pointer to the memory at an address, an integer."""
        return self.inttoptr(address, POINTER)

    # --- control -------------------------------------------------------------------------------------------------

    @contextmanager
    def loop(self, start: Any, stop: Any, step: int = 1) -> Iterator[Any]:
        """Count from ``start`` up to, not including, ``stop``; the body may be left by `IRBuilder.branch`."""
        start = self.i64(start) if isinstance(start, int) else start
        stop = self.i64(stop) if isinstance(stop, int) else stop
        before = self.block
        head, body, after = (self.append_basic_block(name) for name in ("head", "body", "after"))
        self.branch(head)
        self.position_at_end(head)
        index = self.phi(I64)
        index.add_incoming(start, before)
        self.cbranch(self.icmp_signed("<", index, stop), body, after)
        self.position_at_end(body)
        yield index
        index.add_incoming(self.add(index, self.i64(step)), self.block)
        self.branch(head)
        self.position_at_end(after)

    @contextmanager
    def while_(self) -> Iterator[tuple[Any, Any]]:
        """Repeat the body; yields the blocks to branch to for the next round and for the end."""
        body, after = self.append_basic_block("again"), self.append_basic_block("done")
        self.branch(body)
        self.position_at_end(body)
        yield body, after
        if not self.block.is_terminated:
            self.branch(body)
        self.position_at_end(after)

    def go_on(self, condition: Any, elsewhere: Any) -> None:
        """Go on here where the condition holds, else in the block ``elsewhere``."""
        here = self.append_basic_block("on")
        self.cbranch(condition, here, elsewhere)
        self.position_at_end(here)

    def runs(self, count: Any, sizes: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Write loops over ``count`` things, in runs of the first size that fits; yields size and first one."""
        done = self.variable(self.i64(0))
        for size in sizes:
            with self.while_() as (_, end):
                first = self.read(done, I64)
                after = self.add(first, self.i64(size))
                self.go_on(self.icmp_signed("<=", after, count), end)
                yield size, first
                self.store(after, done)

    def padded(self, width: Any, to: int = LANES) -> Any:
        """Return the next multiple of a power of two."""
        return self.and_(self.add(width, self.i64(to - 1)), self.i64(-to))

    def least_of(self, a: Any, b: Any) -> Any:
        """Return the smaller of two integers."""
        return self.select(self.icmp_signed("<", a, b), a, b)

    def most_of(self, a: Any, b: Any) -> Any:
        """Return the larger of two integers."""
        return self.select(self.icmp_signed(">", a, b), a, b)

    # --- parts of vectors ----------------------------------------------------------------------------------------

    def pick(self, value: Any, lanes: Sequence[int]) -> Any:
        """Return some lanes of a vector."""
        undefined = ir.Constant(value.type, ir.Undefined)
        return self.shuffle_vector(value, undefined, ir.Constant(vector(I32, len(lanes)), list(lanes)))

    def lane(self, value: Any, at: int) -> Any:
        return self.extract_element(value, ir.Constant(I32, at))

    def fold(self, value: Any, combine: Any) -> Any:
        """Combine all lanes into one number: upper half with lower half, again and again."""
        lanes = value.type.count
        while lanes > 1:
            lanes //= 2
            value = combine(self.pick(value, range(lanes)), self.pick(value, range(lanes, 2 * lanes)))
        return self.lane(value, 0)

    # --- half precision ------------------------------------------------------------------------------------------

    def from_half(self, value: Any) -> Any:
        """Convert float16 numbers, given as int16, to float32: exactly."""
        lanes = value.type.count
        if "half" in self.features:
            return self.fpext(self.bitcast(value, vector(F16, lanes)), vector(F32, lanes))
        wide = self.zext(value, vector(I32, lanes))
        sign = self.shl(self.and_(wide, self.same(I32, 0x8000, lanes)), self.same(I32, 16, lanes))
        rest = self.shl(self.and_(wide, self.same(I32, 0x7FFF, lanes)), self.same(I32, 13, lanes))
        # The product changes the bias of the exponent from 15 to 127, for subnormal numbers too.
        size = self.fmul(self.bitcast(rest, vector(F32, lanes)), self.same(F32, 2.0**112, lanes))
        odd = self.icmp_unsigned(">=", rest, self.same(I32, 0x7C00 << 13, lanes))  # infinity or NaN
        bits = self.select(odd, self.or_(rest, self.same(I32, 0x7F800000, lanes)), self.bitcast(size, wide.type))
        return self.bitcast(self.or_(bits, sign), vector(F32, lanes))

    def to_half(self, value: Any) -> Any:
        """Round float32 to float16, given as int16: to the nearest, ties to even."""
        lanes = value.type.count
        if "half" in self.features:
            return self.bitcast(self.fptrunc(value, vector(F16, lanes)), vector(I16, lanes))
        return self._rounded_to_half(value, lanes)

    def _rounded_to_half(self, value: Any, lanes: int) -> Any:
        def const(number: int) -> Any:
            return self.same(I32, number, lanes)

        bits = self.bitcast(value, vector(I32, lanes))
        size = self.and_(bits, const(0x7FFFFFFF))
        odd = self.and_(self.lshr(size, const(13)), const(1))
        normal = self.lshr(self.add(self.add(size, const(0xFFF - (112 << 23))), odd), const(13))
        # Small numbers are rounded by adding 0.5, whose last bit is worth what the smallest float16 is worth.
        half = self.fadd(self.bitcast(size, vector(F32, lanes)), self.same(F32, 0.5, lanes))
        small = self.sub(self.bitcast(half, vector(I32, lanes)), const(0x3F000000))
        found = self.select(self.icmp_unsigned("<", size, const(113 << 23)), small, normal)
        infinite = self.select(self.icmp_unsigned(">", size, const(0x7F800000)), const(0x7E00), const(0x7C00))
        found = self.select(self.icmp_unsigned(">=", size, const(0x47800000)), infinite, found)
        sign = self.and_(self.lshr(bits, const(16)), const(0x8000))
        return self.trunc(self.or_(found, sign), vector(I16, lanes))


def function(module: ir.Module, name: str, kind: ir.FunctionType, features: frozenset[str]) -> tuple[Body, Any]:
    """Begin a function of a module; returns its body and its arguments."""
    made = ir.Function(module, kind, name)
    made.attributes.add("nounwind")
    return Body(made, features), made.args
