"""Compiles kernels by numba. The result is kept as machine code for a start without numba; where that cannot be
run, in numba's own cache.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
from dis import get_instructions
from functools import update_wrapper
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from draftwood.files.paths import say_unkept
from draftwood.index import machine_code
from draftwood.index.marks import Mark
from draftwood.index.missing import compilers

with compilers():
    from llvmlite import ir
    from numba import njit
    from numba.core.caching import CompileResultCacheImpl, FunctionCache
    from numba.core.registry import CPUDispatcher
    from numba.core.serialize import dumps
    from numba.core.types import Integer, int64
    from numba.core.types.misc import unliteral
    from numba.extending import intrinsic

_LOG = logging.getLogger("draftwood.compiling")

_OPTIONS = {"error_model": "numpy", "no_cfunc_wrapper": True}  # no checks for division by 0, no entry for C


class _Helper(CPUDispatcher):
    """A helper of kernels, compiled once for integers of all sizes: numba would do so for each, and for each
    constant. Python cannot enter it.
    """

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return super().get_call_template(tuple(_widened(unliteral(kind)) for kind in args), kws)


def _widened(kind: Any) -> Any:
    narrow = isinstance(kind, Integer) and getattr(kind, "bitwidth", 64) < 64
    return int64 if narrow else kind


def _dispatcher(mark: Mark) -> Any:
    """Return what numba compiles into kernels; without an entry for Python it takes a third less time."""
    if mark.dispatcher is None:
        function = with_dispatchers(mark.py_func)
        if mark.is_part is None:
            mark.dispatcher = _at_address
        elif mark.is_part:
            mark.dispatcher = njit(**_OPTIONS, inline="always")(function)
        else:
            options = {"nopython": True, "no_cpython_wrapper": True, **_OPTIONS}
            mark.dispatcher = _Helper(function, targetoptions=options)
    return mark.dispatcher


@intrinsic
def _at_address(_: Any, address: Any, a: Any, b: Any, c: Any, d: Any) -> Any:  # noqa: ARG001
    """Call the function at an address."""

    def code(_: Any, builder: Any, __: Any, given: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [one.type for one in given[1:]])
        return builder.call(builder.inttoptr(given[0], kind.as_pointer()), given[1:])

    return int64(*[int64] * 5), code


def with_dispatchers(function: Any) -> Any:
    """Return the function with numba's dispatchers in place of our marks."""
    scope, waiting = dict(function.__globals__), [function.__code__]
    while waiting:
        code = waiting.pop()
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for instruction in get_instructions(code):  # not all its names: attributes are among them
            if instruction.opname == "LOAD_GLOBAL" and isinstance(value := scope.get(instruction.argval), Mark):
                scope[instruction.argval] = _dispatcher(value)
    twin = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    return update_wrapper(twin, function)


def compile_kernel(function: Any, signature: str, stamp: str, *, reorder: bool, nogil: bool) -> Any:
    """Return numba's dispatcher of a kernel."""
    _LOG.info("compiling %s.%s", function.__module__.rpartition(".")[2], function.__qualname__)
    fast: Any = {"reassoc", "contract"} if reorder else False
    ours = machine_code.is_usable()
    twin = with_dispatchers(function)
    twin.__qualname__ += f"-{stamp}"  # in the names of numba's files, which tell no change of helpers apart
    kernel = None
    try:
        kernel = _compiled(twin, signature, fastmath=fast, nogil=nogil, cache=not ours)
        if ours:
            _keep(function, stamp, kernel)
    except (OSError, RuntimeError) as error:  # the latter: numba finds no folder that it may write to
        reason = getattr(error, "strerror", None) or "no folder can be written to"
        say_unkept("compiled drafters are", f"{reason} (NUMBA_CACHE_DIR names another folder for them)")
        kernel = kernel or _compiled(twin, signature, fastmath=fast, nogil=nogil, cache=False)
    kernel.disable_compile()
    kernel.unchecked = kernel  # it checks by itself
    return kernel


def _compiled(function: Any, signature: str, *, cache: bool, **options: Any) -> Any:
    kernel = njit(**_OPTIONS, **options)(function)
    if cache:
        kernel._cache = _Cache(function)
    kernel.compile(signature)
    return kernel


class _Checked(CompileResultCacheImpl):
    """What numba keeps of a kernel, with a checksum: damaged machine code would end the process."""

    def reduce(self, cres: Any) -> Any:
        whole = dumps(super().reduce(cres))
        return hashlib.sha256(whole).digest(), whole

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        digest, whole = payload
        if hashlib.sha256(whole).digest() != digest:
            raise ValueError("damaged")
        return super().rebuild(target_context, pickle.loads(whole))


class _Cache(FunctionCache):
    """numba's files of a kernel: damaged ones are made anew, and the oldest versions removed."""

    _impl_class = _Checked

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever damaged bytes happen to mean
            self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        super().save_overload(sig, data)
        name = machine_code.name_of(self._py_func.__wrapped__)
        machine_code.prune(Path(self.cache_path, f"{self._impl.filename_base}.nbi"), name)


def _keep(function: Any, stamp: str, kernel: Any) -> None:
    """Keep the machine code of a kernel; those that need more of numba than that to run are not kept."""
    (result,) = kernel.overloads.values()
    (_, kind, data), described, environment, *_, others = result._reduce()
    held = {described.env_name: environment.consts} | {one.env_name: one.consts for one in others}
    if kind == "object" and all(isinstance(one, np.dtype) for consts in held.values() for one in consts):
        environments = [(name, [one.str for one in consts]) for name, consts in held.items()]
        found = machine_code.MachineCode(data[0], described.llvm_cpython_wrapper_name, environments)
        machine_code.save(function, stamp, found)
