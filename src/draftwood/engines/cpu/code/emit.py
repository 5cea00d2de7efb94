"""Writes functions as LLVM code: constants, memory on the stack, loops and conditions around `values`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from draftwood.engines.cpu.code.instructions import Instructions
from draftwood.engines.cpu.code.values import F32, I64, LANES, POINTER, Place, Value, Variable, constant, vector


class Code(ir.IRBuilder):
    """A function that is being written, for an instruction set."""

    def __init__(self, made: ir.Function, instructions: Instructions) -> None:
        super().__init__(made.append_basic_block("entry"))
        self.entry, self.instructions = self.block, instructions
        self.has_half = instructions.has_half

    # --- numbers -------------------------------------------------------------------------------------------------

    def whole(self, value: int) -> Value:
        """Return a constant int64."""
        return Value(self, ir.Constant(I64, value))

    def real(self, value: float, lanes: int = 1) -> Value:
        """Return a constant float32, or a vector of it."""
        return self.same(F32, value, lanes)

    def same(self, kind: ir.Type, value: float, lanes: int = LANES) -> Value:
        """Return a vector with one constant in every lane; with one lane, the constant."""
        return Value(self, constant(vector(kind, lanes) if lanes > 1 else kind, value))

    def listed(self, kind: ir.Type, values: Sequence[int]) -> Value:
        """Return a vector of these constants."""
        return Value(self, constant(vector(kind, len(values)), values))

    def variable(self, first: Value) -> Variable:
        """Return a value that changes."""
        return Variable(first)

    # --- calls ---------------------------------------------------------------------------------------------------

    def intrinsic(self, name: str, result: ir.Type, *arguments: Value | Place) -> Value:
        """Call a function outside of this module: an intrinsic of LLVM, or one of the C library."""
        kind = ir.FunctionType(result, [one.ir.type for one in arguments])
        found = self.module.globals.get(name) or ir.Function(self.module, kind, name)
        return Value(self, self.call(found, [one.ir for one in arguments]))

    def call_here(self, name: str, *arguments: Value | Place) -> None:
        """Call a function of this module that returns nothing."""
        self.call(self.module.globals[name], [one.ir for one in arguments])

    def call_at(self, address: Value, kind: ir.FunctionType, *arguments: Value | Place) -> None:
        """Call the function at an address, an int64."""
        self.call(self.inttoptr(address.ir, kind.as_pointer()), [one.ir for one in arguments])

    # --- memory --------------------------------------------------------------------------------------------------

    @contextmanager
    def at_entry(self) -> Iterator[None]:
        """Write into the function's entry block, which runs once."""
        with self.goto_block(self.entry):
            yield

    def room(self, kind: ir.Type, count: int = 1) -> Place:
        """Return memory on the stack, reserved at the function's entry; its content is undefined."""
        with self.at_entry():
            place = self.alloca(ir.ArrayType(kind, count) if count > 1 else kind)
            place.align = 64
            place.type = POINTER  # an opaque pointer; else llvmlite checks stores against the memory's type
            return Place(self, place)

    # --- control -------------------------------------------------------------------------------------------------

    @contextmanager
    def count(self, start: int | Value, stop: int | Value, step: int = 1) -> Iterator[Value]:
        """Count from ``start`` up to, not including, ``stop``."""
        first, last = (self.whole(one) if isinstance(one, int) else one for one in (start, stop))
        before = self.block
        head, body, after = (self.append_basic_block(name) for name in ("head", "body", "after"))
        self.branch(head)
        self.position_at_end(head)
        index = self.phi(I64)
        index.add_incoming(first.ir, before)
        number = Value(self, index)
        self.cbranch((number < last).ir, body, after)
        self.position_at_end(body)
        yield number
        index.add_incoming((number + step).ir, self.block)
        self.branch(head)
        self.position_at_end(after)

    @contextmanager
    def repeat(self) -> Iterator[tuple[Any, Any]]:
        """Repeat the body; yields the blocks to branch to for the next round and for the end."""
        body, after = self.append_basic_block("again"), self.append_basic_block("done")
        self.branch(body)
        self.position_at_end(body)
        yield body, after
        if not self.block.is_terminated:
            self.branch(body)
        self.position_at_end(after)

    def go_on(self, condition: Value, elsewhere: Any) -> None:
        """Go on here where the condition holds, else in the block ``elsewhere``."""
        here = self.append_basic_block("on")
        self.cbranch(condition.ir, here, elsewhere)
        self.position_at_end(here)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Do this only where the condition holds."""
        with self.if_then(condition.ir):
            yield

    def runs(self, count: Value, sizes: Sequence[int]) -> Iterator[tuple[int, Value]]:
        """For each size, write a loop that takes so many things while they fit; yields size and first thing."""
        done = self.variable(self.whole(0))
        for size in sizes:
            with self.repeat() as (_, end):
                first = done.now
                after = first + size
                self.go_on(after <= count, end)
                yield size, first
                done.now = after


def function(
    module: ir.Module, name: str, kind: ir.FunctionType, instructions: Instructions
) -> tuple[Code, list[Any]]:
    """Begin a function of a module; returns its code, and its arguments: pointers as places, others as values."""
    made = ir.Function(module, kind, name)
    made.attributes.add("nounwind")
    code = Code(made, instructions)
    return code, [(Place if one.type == POINTER else Value)(code, one) for one in made.args]
