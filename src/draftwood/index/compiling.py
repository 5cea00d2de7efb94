"""Marks kernels. They are compiled when their module is imported, by numba, and the result is kept on disk.

A kernel that is on disk is loaded without numba (`draftwood.index.machine_code`), which takes milliseconds;
numba's import alone takes half a second. The file's name holds a digest of all code in the kernel, helpers in
other modules included. Most hold Python's global lock, so no other thread changes their arrays meanwhile.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Event, Thread
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from draftwood.index import machine_code
from draftwood.index.marks import Mark
from draftwood.index.marks import foreign as foreign
from draftwood.index.marks import inner as inner
from draftwood.index.marks import part as part

INTS = "Array(int32, 1, 'C', readonly=True)"
TABLE = "Array(int32, 2, 'C', readonly=True)"
LONGS = "Array(int64, 1, 'C', readonly=True)"
FLOATS = "Array(float32, 1, 'C', readonly=True)"
"""Types of arrays that a kernel only reads: these take read-only arrays and writable ones, without a copy."""

KERNELS: list[Any] = []
"""Every kernel that this process has imported."""

_FORMAT = 6  # of what is compiled and how, `foreign` functions included


def compiled(signature: str, *, reorder: bool = False, nogil: bool = False) -> Callable[[Any], Any]:
    """Load or compile a kernel for one signature. ``reorder`` may reorder sums, ``nogil`` frees Python's lock."""

    def load(function: Any) -> Any:
        digest = stamp(function, reorder, *["nogil"] * nogil)
        kernel = machine_code.load(function, signature, digest)
        if kernel is None:
            from draftwood.index.numba_compiling import compile_kernel

            kernel = compile_kernel(function, signature, digest, reorder=reorder, nogil=nogil)
        KERNELS.append(kernel)
        return kernel

    return load


def stamp(function: Any, *options: object) -> str:
    """Digest of a kernel's code and constants as loaded, helpers in other modules included."""
    parts: list[object] = [_FORMAT, np.__version__, machine_code.numba_settings(), options]
    waiting, seen = [function], set()
    while waiting:
        found = waiting.pop()
        if isinstance(found, Mark):
            parts.append(found.is_part)
            found = found.py_func
        if isinstance(found, FunctionType):
            if found not in seen:
                seen.add(found)
                code = found.__code__
                waiting += [code, *(found.__globals__.get(name) for name in code.co_names)]
        elif isinstance(found, CodeType):
            parts += [found.co_code, found.co_names, found.co_varnames]
            waiting += found.co_consts
        elif isinstance(found, np.ndarray):
            parts += [found.dtype, found.shape, found.tobytes()]
        else:
            parts.append(found.__name__ if isinstance(found, ModuleType) else found)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@contextmanager
def importing(modules: Iterable[str]) -> Iterator[None]:
    """Import modules with kernels in a thread while the block runs, in which an engine reads a prompt, say.

    After it no further import is begun. An error in the thread is dropped: it comes again, and is reported, where
    the module is needed.
    """
    missing = [name for name in dict.fromkeys(modules) if name not in sys.modules]
    ended = Event()

    def run() -> None:
        for name in missing:
            if not ended.is_set():
                with suppress(Exception):
                    import_module(name)

    if missing:
        # Not a daemon: at exit, the interpreter would stop it within LLVM, which is then torn down around it.
        with suppress(RuntimeError):  # no thread is to be had: each is imported where it is needed
            Thread(target=run, name="draftwood-kernels", daemon=False).start()
    try:
        yield
    finally:
        ended.set()
