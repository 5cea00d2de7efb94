"""The compiled functions of a pass for one instruction set: from disk, or compiled at the first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import Lock

from llvmlite import ir

from draftwood.engines.cpu import attention, cells, ends, experts, pieces, products, rows, running
from draftwood.engines.cpu.compiling import Linked, compiled
from draftwood.engines.cpu.formats import FORMATS
from draftwood.engines.cpu.instructions import Instructions, chosen
from draftwood.engines.cpu.pool import Pool

_FLOATS = ("F32", "F16", "BF16")
_PARTS: dict[str, tuple[Callable[[ir.Module, frozenset[str]], None], ...]] = {
    "running": (running.write_running,),
    "rows": (rows.write_norms, rows.write_rounding, rows.write_copying, rows.write_positions, rows.write_joined),
    "pieces": (pieces.write_products,),
    "ends": (ends.write_embedding, ends.write_last_norm),
    "experts": (experts.write_choosing, experts.write_experts),
    "attention": (attention.write_attention, cells.write_moving),
}


class Kernels:
    """Addresses of compiled functions by name; see the modules that write them for what they do."""

    def __init__(self, instructions: Instructions) -> None:
        self.instructions = instructions
        self._linked: dict[str, Linked] = {}
        self._found: dict[str, int] = {}
        self._lock = Lock()

    def __getitem__(self, name: str) -> int:
        """Return the address of a function of a pass, such as ``norm_rounded``."""
        if name not in self._found:
            every = (self._part(part).find(name) for part in _PARTS)
            found = next((address for address in every if address is not None), None)
            if found is None:
                raise KeyError(name)
            self._found[name] = found
        return self._found[name]

    def product(self, kind: str) -> int:
        """Return the address of the product for weights of a type of GGUF."""
        return self._of_type(kind, "product")

    def reader(self, kind: str) -> int:
        """Return the address of the function that reads one output's weights of a type of GGUF."""
        return self._of_type(kind, "reader")

    def _of_type(self, kind: str, name: str) -> int:
        def write(module: ir.Module, given: frozenset[str]) -> None:
            if kind in _FLOATS:
                products.write_float_product(module, "product", kind, self.instructions.dots.outputs, given)
                ends.write_float_row_reader(module, "reader", kind, given)
            else:
                products.write_product(module, "product", FORMATS[kind], self.instructions.dots, given)
                ends.write_row_reader(module, "reader", FORMATS[kind], given)

        key = f"{kind} {name}"
        if key not in self._found:
            self._found[key] = self._get(kind, (write,))[name]
        return self._found[key]

    def _part(self, name: str) -> Linked:
        return self._get(name, _PARTS[name])

    def _get(self, name: str, writers: tuple[Callable[[ir.Module, frozenset[str]], None], ...]) -> Linked:
        with self._lock:
            if name not in self._linked:
                self._linked[name] = Linked(compiled(name, writers, self.instructions))
            return self._linked[name]


def kernels(instructions: Instructions | None = None) -> Kernels:
    """Return the functions for an instruction set; None: the fastest of this processor. Made once per process."""
    return _kernels(instructions or chosen())


_kernels = cache(Kernels)


@cache
def pool() -> Pool:
    """Return the threads of this process, which all models share."""
    every = kernels()
    return Pool(every["start"], every["serve"])
