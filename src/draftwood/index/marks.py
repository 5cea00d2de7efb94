"""Marks the functions that only kernels call."""

from __future__ import annotations

from typing import Any


class Mark:
    """What only kernels call: a function of its own, or a part of a kernel, put into it before it is compiled, or,
    with ``part`` None, machine code."""

    def __init__(self, function: Any, *, part: bool | None) -> None:
        self.py_func, self.is_part = function, part
        self.dispatcher: Any = None  # numba's, once a kernel with this function is compiled


def inner(function: Any) -> Any:
    """Mark what only kernels call."""
    return Mark(function, part=False)


def part(function: Any) -> Any:
    """Mark a piece of one kernel that is put into it before that is compiled: it takes no time of its own."""
    return Mark(function, part=True)


def foreign(function: Any) -> Any:
    """Mark what stands for machine code at the address that is its first argument; four integers follow."""
    return Mark(function, part=None)
