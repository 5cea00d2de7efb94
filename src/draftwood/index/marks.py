"""Marks the functions that only kernels call."""

from __future__ import annotations

from typing import Any


class Mark:
    """What only kernels call: a function (``part`` False), a function that is inlined into them before they are
    compiled (True), or machine code at an address (None)."""

    def __init__(self, function: Any, *, part: bool | None) -> None:
        self.py_func, self.is_part = function, part
        self.dispatcher: Any = None  # numba's, once a kernel with this function is compiled


def inner(function: Any) -> Any:
    """Mark a function that only kernels call."""
    return Mark(function, part=False)


def part(function: Any) -> Any:
    """Mark a function that is inlined into a kernel before that is compiled, so that calls cost nothing."""
    return Mark(function, part=True)


def foreign(function: Any) -> Any:
    """Mark what stands for machine code at the address that is its first argument; four integers follow."""
    return Mark(function, part=None)
