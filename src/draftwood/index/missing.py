"""Says in a sentence which compiler is missing, where one is needed first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from draftwood.errors import DraftwoodError


@contextmanager
def compilers() -> Iterator[None]:
    """Import llvmlite or numba in a block; `DraftwoodError` where they are not installed, as on Intel Macs."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = error.name
        raise DraftwoodError(
            f"{name}, which compiles for your processor, is not installed: run pip install {name}; for Intel Macs "
            "it has no wheel, so build it, or take conda's"
        ) from error
