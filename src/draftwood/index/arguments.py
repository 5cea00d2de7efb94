"""Checks arguments of kernels against the signature that numba has compiled: machine code does not check them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import IntegrityError

Floats = NDArray[np.float32]
Check = Callable[[Any], bool]

_INTEGER = (int, np.integer)
_PASSED: dict[str, tuple[type, ...]] = {
    "i": _INTEGER, "u": _INTEGER, "f": (*_INTEGER, float, np.floating), "b": (bool, np.bool_),
}  # fmt: skip
"""What Python passes for a number, by the kind of its dtype. numba's words for numbers are numpy's."""


def checks_of(signature: str) -> list[Check]:
    """Return a check per argument of a signature in numba's words, ``result(arguments)``."""
    whole = ast.parse(signature, mode="eval").body
    assert isinstance(whole, ast.Call)
    return [_check(argument) for argument in whole.args]


def _check(node: Any) -> Check:
    if isinstance(node, ast.Name):  # i8
        accepted = _PASSED[np.dtype(node.id).kind]
        return lambda value: isinstance(value, accepted)
    if isinstance(node, ast.Subscript):  # i4[:,::1]
        return _array(node.value, len(node.slice.elts) if isinstance(node.slice, ast.Tuple) else 1, False)
    kind, (first, *more) = node.func.id, node.args
    if kind == "Array":  # Array(int32, 1, 'C', readonly=True)
        return _array(first, more[0].value, bool(node.keywords))
    checks = [_check(member) for member in first.elts] if kind == "Tuple" else [_check(first)] * more[0].value
    return lambda value: type(value) is tuple and all_pass(checks, value)


def _array(number: Any, ndim: int, readonly: bool) -> Check:
    dtype = np.dtype(number.id)

    def check(value: Any) -> bool:
        if type(value) is not np.ndarray or value.dtype != dtype or value.ndim != ndim:
            return False
        flags = value.flags
        return flags.carray or (readonly and flags.c_contiguous and flags.aligned)

    return check


def all_pass(checks: list[Check], values: tuple[Any, ...]) -> bool:
    """Return whether these are as many values as checks, and pass them."""
    if len(checks) != len(values):
        return False
    for check, value in zip(checks, values, strict=True):  # noqa: SIM110 - a generator takes twice as long
        if not check(value):
            return False
    return True


def for_kernel(accept_rates: Floats, classes: int) -> Floats:
    """Return one rate per evidence class as contiguous float32: kernels look them up unchecked. Perhaps a copy."""
    shape = np.shape(accept_rates)
    if shape != (classes,):
        raise IntegrityError(f"{classes} accept rates are needed, one per evidence class, not {shape}")
    if type(accept_rates) is np.ndarray and accept_rates.dtype == np.float32:
        flags = accept_rates.flags
        if flags.c_contiguous and flags.aligned:
            return accept_rates
    return np.array(accept_rates, dtype=np.float32)
