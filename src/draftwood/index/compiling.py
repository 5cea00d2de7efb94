"""Compiles kernels when their module is imported, and keeps the result on disk. Imports numba.

numba's own cache looks only at a kernel's source file and would miss a change in a helper of another module. Here
the compiled file's name holds a digest of all code in it. A kernel holds Python's global lock (no ``nogil``), so
no other thread changes its arrays while it runs.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import config, njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.dispatcher import Dispatcher
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps
from numba.core.types import Integer, int64
from numba.core.types.misc import unliteral

from draftwood.files.unkept import say_unkept

INTS = "Array(int32, 1, 'C', readonly=True)"
TABLE = "Array(int32, 2, 'C', readonly=True)"
FLOATS = "Array(float32, 1, 'C', readonly=True)"
"""Types of arrays that a kernel only reads: these take read-only arrays and writable ones, without a copy."""

_LOG = logging.getLogger("draftwood.compiling")

_FORMAT = 2  # of the compiled files
_KEPT = 3  # compiled versions of one kernel that stay on disk, the newest: of branches that take turns, say
_OPTIONS = {"error_model": "numpy", "no_cfunc_wrapper": True}  # no checks for division by 0, no entry for C


class _Helper(CPUDispatcher):
    """A helper of kernels, compiled once for integers of all sizes: numba would do so for each, and for each
    constant. Python cannot enter what is compiled for kernels: calls from there, by tests, enter a twin.
    """

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return super().get_call_template(tuple(_widened(unliteral(kind)) for kind in args), kws)

    def __call__(self, *args: Any) -> Any:
        return self._twin(*args)

    @cached_property
    def _twin(self) -> Any:
        return njit(**_OPTIONS)(self.py_func)


def _widened(kind: Any) -> Any:
    narrow = isinstance(kind, Integer) and getattr(kind, "bitwidth", 64) < 64
    return int64 if narrow else kind


def inner(function: Any) -> Any:
    """Mark what only kernels call; without an entry for Python it takes a third less time to compile."""
    return _Helper(function, targetoptions={"nopython": True, "no_cpython_wrapper": True, **_OPTIONS})


part = njit(**_OPTIONS, inline="always")
"""Mark a piece of one kernel that is put into it before that is compiled: it takes no time of its own."""


def compiled(signature: str, *, reorder: bool = False) -> Callable[[Any], Any]:
    """Compile a kernel for one signature, or load it from disk; ``reorder`` lets sums use whole vectors."""

    def compile_now(function: Any) -> Any:
        kernel = njit(**_OPTIONS, fastmath={"reassoc", "contract"} if reorder else False)(function)
        try:
            kernel._cache = _Cache(function, reorder)
        except RuntimeError:  # numba finds no folder that it may write to
            _LOG.info("compiling %s", function.__qualname__)
            _not_kept("no folder can be written to")
        kernel.compile(signature)
        kernel.disable_compile()
        KERNELS.append(kernel)
        return kernel

    return compile_now


KERNELS: list[Any] = []  # every kernel that this process has imported


def stamp(function: Any, *options: object) -> str:
    """Digest of a kernel's code and constants as loaded, helpers in other modules included."""
    parts: list[object] = [_FORMAT, np.__version__, config.BOUNDSCHECK, config.OPT, _OPTIONS, options]
    waiting, seen = [function], set()
    while waiting:
        found = waiting.pop()
        found = found.py_func if isinstance(found, Dispatcher) else found
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


def _not_kept(reason: str) -> None:
    say_unkept("compiled drafters are", f"{reason} (NUMBA_CACHE_DIR names another folder for them)")


class _Files(CompileResultCacheImpl):
    """numba's files of one kernel: its stamp is in their names, a checksum in their content."""

    def reduce(self, data: Any) -> Any:
        """Return what is saved of a compiled kernel."""
        whole = dumps(super().reduce(data))
        return hashlib.sha256(whole).digest(), whole

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Return the compiled kernel; damaged machine code would end the process."""
        digest, whole = payload
        if hashlib.sha256(whole).digest() != digest:
            raise ValueError("damaged")
        return super().rebuild(target_context, pickle.loads(whole))

    def __init__(self, reorder: bool, function: Any) -> None:
        self._stamp = stamp(function, reorder)
        super().__init__(function)

    def get_filename_base(self, fullname: str, abiflags: str) -> Any:
        self.kernel = fullname
        return super().get_filename_base(f"{fullname}-{self._stamp}", abiflags)


class _Cache(FunctionCache):
    """The files of one kernel. Several processes may use them at once: a file is replaced whole or not at all."""

    def __init__(self, function: Any, reorder: bool) -> None:
        self._impl_class = partial(_Files, reorder)
        super().__init__(function)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load the compiled kernel; None where it is not there or damaged, so that it is compiled."""
        found = None
        try:
            found = super().load_overload(sig, target_context)
        except Exception:  # damaged files raise what their bytes happen to mean
            with suppress(OSError):
                self.flush()
        if found is None:
            _LOG.info("compiling %s", self._impl.kernel)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the compiled kernel and remove the oldest versions; on a full disk do without."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _not_kept(error.strerror or str(error))
            return
        with suppress(OSError):
            folder, own = Path(self.cache_path), f"{self._impl.filename_base}.nbi"
            others = [path for path in folder.glob(f"{self._impl.kernel}-*.nbi") if path.name != own]
            others.sort(
                key=lambda path: -path.stat().st_mtime
            )  # after a jump of the clock the new one may seem old
            for version in others[_KEPT - 1 :]:
                for file in folder.glob(f"{version.stem}.*"):
                    file.unlink()  # who is about to load it compiles it anew
