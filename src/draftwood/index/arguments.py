"""Checks the arguments of a kernel's machine code, which trusts them, by the signature that numba has compiled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np


class Kind(ABC):
    """What one argument must be; called with arguments, as in ``i8(f8, b1)``, it is the result of a signature."""

    def __call__(self, *arguments: Kind) -> tuple[Kind, ...]:
        return arguments

    @abstractmethod
    def fits(self, value: Any) -> bool:
        """Return whether a value is of this kind."""


class _Scalar(Kind):
    """A number; with an index, as in ``i4[:,::1]``, an array of such numbers that the kernel may write to."""

    def __init__(self, dtype: type, accepted: tuple[type, ...]) -> None:
        self.dtype, self._accepted = np.dtype(dtype), accepted

    def __getitem__(self, axes: Any) -> Kind:
        return _Array(self, len(axes) if isinstance(axes, tuple) else 1, "C")

    def fits(self, value: Any) -> bool:
        return isinstance(value, self._accepted)


class _Array(Kind):
    def __init__(self, scalar: _Scalar, ndim: int, layout: str, *, readonly: bool = False) -> None:
        assert layout == "C"
        self._dtype, self._ndim, self._readonly = scalar.dtype, ndim, readonly

    def fits(self, value: Any) -> bool:
        if type(value) is not np.ndarray or value.dtype != self._dtype or value.ndim != self._ndim:
            return False
        flags = value.flags
        return flags.carray or (self._readonly and flags.c_contiguous and flags.aligned)


class _Tuple(Kind):
    def __init__(self, kinds: Any, count: int | None = None) -> None:
        self._kinds: tuple[Kind, ...] = tuple(kinds) if count is None else (kinds,) * count

    def fits(self, value: Any) -> bool:
        return type(value) is tuple and len(value) == len(self._kinds) and all_fit(self._kinds, value)


def all_fit(kinds: tuple[Kind, ...], values: tuple[Any, ...]) -> bool:
    """Return whether so many values are of these kinds."""
    for kind, value in zip(kinds, values, strict=True):  # noqa: SIM110 - a generator takes twice as long
        if not kind.fits(value):
            return False
    return True


_INTEGER, _REAL, _TRUTH = (int, np.integer), (int, float, np.integer, np.floating), (bool, np.bool_)
_NUMBERS = {
    "int32": ("i4", np.int32, _INTEGER),
    "int64": ("i8", np.int64, _INTEGER),
    "uint8": ("u1", np.uint8, _INTEGER),
    "uint16": ("u2", np.uint16, _INTEGER),
    "uint64": ("u8", np.uint64, _INTEGER),
    "float32": ("f4", np.float32, _REAL),
    "float64": ("f8", np.float64, _REAL),
    "bool": ("b1", np.bool_, _TRUTH),
    "void": ("none", np.void, ()),
}
_WORDS: dict[str, Any] = {"Array": _Array, "Tuple": _Tuple, "UniTuple": _Tuple}
for _name, (_short, _dtype, _accepted) in _NUMBERS.items():
    _WORDS[_name] = _WORDS[_short] = _Scalar(_dtype, _accepted)


def kinds_of(signature: str) -> tuple[Kind, ...]:
    """Return the kinds of the arguments of a signature in numba's words, ``result(arguments)``."""
    # A constant of our own, never of the user.
    found: tuple[Kind, ...] = eval(signature, {"__builtins__": {}}, _WORDS)
    return found
