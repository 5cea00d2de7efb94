"""Compiles kernels by numba, and keeps the result on disk: for numba, and as machine code for a start without it.

numba's own cache looks only at a kernel's source file and would miss a change in a helper of another module. Here
the compiled file's name holds a digest of all code in it.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
from contextlib import suppress
from dis import get_instructions
from functools import cached_property, partial, update_wrapper
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from numba import carray, njit, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps
from numba.core.types import Integer, int64
from numba.core.types.misc import unliteral
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype

from draftwood.files.unkept import say_unkept
from draftwood.index.machine_code import MachineCode, save
from draftwood.index.marks import Mark

_LOG = logging.getLogger("draftwood.compiling")

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


def helper(mark: Mark) -> Any:
    """Return what numba compiles into kernels; without an entry for Python it takes a third less time."""
    if mark.dispatcher is None and mark.array_of:
        mark.dispatcher = _array_at(mark.array_of)
    if mark.dispatcher is None:
        function = _with_dispatchers(mark.py_func)
        if mark.is_part:
            mark.dispatcher = njit(**_OPTIONS, inline="always")(function)
        else:
            options = {"nopython": True, "no_cpython_wrapper": True, **_OPTIONS}
            mark.dispatcher = _Helper(function, targetoptions=options)
    return mark.dispatcher


def _array_at(dtype: str) -> Any:
    """Return what makes an array of an address and a shape; see `draftwood.index.addresses`."""
    pointer_type = types.CPointer(from_dtype(np.dtype(dtype)))

    @intrinsic
    def pointer(typing: Any, address: Any) -> Any:  # noqa: ARG001 - numba hands it over
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return pointer_type(int64), generate

    @njit(**_OPTIONS, inline="always")
    def array(address: Any, shape: Any) -> Any:
        return carray(pointer(address), shape)

    return array


def _with_dispatchers(function: Any) -> Any:
    """Return the function with numba's dispatchers in place of our marks."""
    scope, waiting = dict(function.__globals__), [function.__code__]
    while waiting:
        code = waiting.pop()
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for instruction in get_instructions(code):  # not all its names: attributes are among them
            if instruction.opname == "LOAD_GLOBAL" and isinstance(value := scope.get(instruction.argval), Mark):
                scope[instruction.argval] = helper(value)
    twin = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    return update_wrapper(twin, function)


def compile_kernel(function: Any, signature: str, stamp: str, *, reorder: bool) -> Any:
    """Return numba's dispatcher of a kernel, compiled or loaded from disk."""
    fast: Any = {"reassoc", "contract"} if reorder else False
    kernel = njit(**_OPTIONS, fastmath=fast)(_with_dispatchers(function))
    try:
        kernel._cache = _Cache(function, stamp)
    except RuntimeError:  # numba finds no folder that it may write to
        _LOG.info("compiling %s", function.__qualname__)
        _not_kept("no folder can be written to")
    kernel.compile(signature)
    kernel.disable_compile()
    kernel.unchecked = kernel  # it checks by itself
    return kernel


def _not_kept(reason: str) -> None:
    say_unkept("compiled drafters are", f"{reason} (NUMBA_CACHE_DIR names another folder for them)")


class _Files(CompileResultCacheImpl):
    """numba's files of one kernel: its stamp is in their names, a checksum in their content."""

    def reduce(self, data: Any) -> Any:
        """Return what is saved of a compiled kernel."""
        parts = super().reduce(data)
        self._keep(parts)
        whole = dumps(parts)
        return hashlib.sha256(whole).digest(), whole

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Return the compiled kernel; damaged machine code would end the process."""
        digest, whole = payload
        if hashlib.sha256(whole).digest() != digest:
            raise ValueError("damaged")
        parts = pickle.loads(whole)
        self._keep(parts)
        return super().rebuild(target_context, parts)

    def _keep(self, parts: Any) -> None:
        """Keep the machine code too, where nothing but the code is needed to run it."""
        (_, kind, data), described, environment, *_, others = parts
        held = {described.env_name: environment.consts} | {one.env_name: one.consts for one in others}
        if kind == "object" and all(isinstance(one, np.dtype) for consts in held.values() for one in consts):
            environments = [(name, [one.str for one in consts]) for name, consts in held.items()]
            save(
                self._function,
                self._stamp,
                MachineCode(data[0], described.llvm_cpython_wrapper_name, environments),
            )

    def __init__(self, stamp: str, function: Any) -> None:
        self._stamp, self._function = stamp, function
        super().__init__(function)

    def get_filename_base(self, fullname: str, abiflags: str) -> Any:
        self.kernel = fullname
        return super().get_filename_base(f"{fullname}-{self._stamp}", abiflags)


class _Cache(FunctionCache):
    """The files of one kernel. Several processes may use them at once: a file is replaced whole or not at all."""

    def __init__(self, function: Any, stamp: str) -> None:
        self._impl_class = partial(_Files, stamp)
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
            # The new one apart: after a jump of the clock it may seem old.
            others.sort(key=lambda path: -path.stat().st_mtime)
            for version in others[_KEPT - 1 :]:
                for file in folder.glob(f"{version.stem}.*"):
                    file.unlink()  # who is about to load it compiles it anew
