"""Kernels from disk without numba, whose import and start take half a second: LLVM's loader takes 40 ms.

The machine code that numba makes of a kernel calls Python, libc, and a few functions of three extension modules
of numba, which are loaded by themselves here. numba promises none of it, so this is done on systems and versions
where our tests have seen it work; elsewhere, and if the environment says ``DRAFTWOOD_KERNELS=numba``, numba does
the work.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from draftwood.errors import FileFormatError
from draftwood.files.paths import whole_file, without_home
from draftwood.index.arguments import all_pass, checks_of

_LOG = logging.getLogger("draftwood.compiling")
_DIGEST = hashlib.sha256().digest_size
_TRIED = ("0.65.", "0.66.", "0.67.", "0.68.")  # versions of numba: all kernels gave the same
_TRIED_ON = (("linux", "x86_64"), ("linux", "aarch64"))
_EXTENSIONS = ("_helperlib", "core/runtime/_nrt_python", "_dynfunc")
_KEPT = 3  # newest versions of one kernel that stay on disk, for checkouts that are used by turns


class MachineCode(NamedTuple):
    """What numba has made of one kernel."""

    code: bytes  # an object file
    entry: str  # name of the function that Python calls
    # Of each compiled function: the name of its pointer to numba's environment, and the dtypes that this holds.
    environments: Sequence[tuple[str, Sequence[str]]]


class Kernel:
    """A kernel that is called as numba would call it, arguments checked; ``unchecked`` is for callers that made
    all arguments themselves, since the check takes as long as some kernels.
    """

    def __init__(self, function: Any, signature: str, entry: Any) -> None:
        self.py_func, self.__name__, self.signatures = function, function.__name__, [signature]
        self._checks, self.unchecked = checks_of(signature), entry

    def __call__(self, *arguments: Any) -> Any:
        if not all_pass(self._checks, arguments):
            raise TypeError(f"the kernel {self.__name__} does not take these arguments: {self.signatures[0]}")
        return self.unchecked(*arguments)


def load(function: Any, signature: str, stamp: str) -> Kernel | None:
    """Return a kernel whose machine code for this processor is on disk; else None."""
    if not is_usable():
        return None
    try:
        kept = read_code(_folders(function), name_of(function), f"{stamp}-{_machine()}")
        if kept is None:
            return None
        header, _, code = kept.partition(b"\n")
        return Kernel(function, signature, _linked(function, MachineCode(code, *json.loads(header))))
    except Exception as error:  # whatever another version of LLVM, or of numba's modules, does differently
        _LOG.info("the machine code of %s cannot be used: %s", function.__qualname__, error)
        _unusable.append(error)
        return None


def save(function: Any, stamp: str, found: MachineCode) -> None:
    """Keep a kernel's machine code for the next process; raises `OSError` where that is impossible."""
    content = json.dumps([found.entry, list(found.environments)]).encode() + b"\n" + found.code
    keep_code(_folders(function), name_of(function), f"{stamp}-{_machine()}", content)


def read_code(folders: Iterable[Path], name: str, key: str) -> bytes | None:
    """Return what `keep_code` has kept under this name and ``key``; None where no folder has it whole."""
    for folder in folders:
        with suppress(OSError):
            return read_checked(folder / f"{name}-{key}.kernel")
    return None


def keep_code(folders: Iterable[Path], name: str, key: str, code: bytes) -> None:
    """Keep machine code in the first of these folders that can be written to, with the newest other versions.

    ``key`` is a digest of all that the code depends on. Raises `OSError` where no folder can be written to.
    """
    failure: BaseException = OSError()
    for folder in folders:
        path = folder / f"{name}-{key}.kernel"
        try:
            write_checked(path, code)
            return prune(path, name)
        except FileFormatError as error:
            failure = error.__cause__ or error
    raise failure


def read_checked(path: Path) -> bytes:
    """Return what `write_checked` wrote; `OSError` where it is not whole: it would end the process."""
    whole = path.read_bytes()
    if hashlib.sha256(whole[_DIGEST:]).digest() != whole[:_DIGEST]:
        raise OSError
    return whole[_DIGEST:]


def write_checked(path: Path, content: bytes) -> None:
    """Write machine code after its checksum; raises `FileFormatError`."""
    with whole_file(path) as beside:
        beside.write_bytes(hashlib.sha256(content).digest() + content)


def prune(new: Path, name: str) -> None:
    """Remove the oldest versions; after a jump of the clock the ``new`` one may seem old."""
    with suppress(OSError):
        others = [path for path in new.parent.glob(f"{name}-*{new.suffix}") if path != new]
        others.sort(key=lambda path: -path.stat().st_mtime)
        for version in others[_KEPT - 1 :]:
            for file in new.parent.glob(f"{version.stem}.*"):  # numba has two of each
                file.unlink()  # a process that wanted to load it compiles it anew


def name_of(function: Any) -> str:
    """Return the name of a kernel's files."""
    return f"{Path(function.__code__.co_filename).stem}.{function.__qualname__}"


def _folders(function: Any) -> list[Path]:
    """Where machine code is looked for, and kept if possible, in this order."""
    room = Path(function.__code__.co_filename).parent  # whose name tells apart kernels that are named alike
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        return [Path(chosen) / room.name]
    chosen = os.environ.get("DRAFTWOOD_CACHE")
    named = chosen or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "draftwood")  # noqa: PTH118
    own = Path(os.path.expanduser(named))  # noqa: PTH111 - pathlib's fails without a home
    own = own if chosen or own.is_absolute() else without_home()
    return [room / "__pycache__", own / "kernels" / room.name]


_unusable: list[Exception] = []  # why a kernel could not be linked


def is_usable() -> bool:
    """Whether machine code can be run without numba here."""
    return not _unusable and _is_tried()


def numba_settings() -> list[tuple[str, str]]:
    """Return what the environment says of how numba compiles, sorted."""
    names = sorted(name for name in os.environ if name.startswith("NUMBA_") and name != "NUMBA_CACHE_DIR")
    return [(name, os.environ[name]) for name in names]


@cache
def _is_tried() -> bool:
    if (
        (sys.platform, platform.machine()) not in _TRIED_ON
        or sys.implementation.name != "cpython"
        or numba_settings()
    ):
        return False
    if os.environ.get("DRAFTWOOD_KERNELS") == "numba":
        return False
    return _numba_version().startswith(_TRIED) and all(_extension_file(name) for name in _EXTENSIONS)


@cache
def _numba_folder() -> Path:
    spec = find_spec("numba")
    if spec is None:
        raise FileNotFoundError
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


@cache
def _numba_version() -> str:
    """Read numba's version from its file: package metadata take 60 ms."""
    with suppress(OSError, IndexError):
        return (_numba_folder() / "_version.py").read_text(encoding="utf-8").split('"version": "')[1].split('"')[0]
    return ""


def _extension_file(name: str) -> Path | None:
    paths = [_numba_folder() / f"{name}{suffix}" for suffix in EXTENSION_SUFFIXES]
    return next((path for path in paths if path.exists()), None)


@cache
def _machine() -> str:
    """Digest of what machine code depends on, without the kernel: processor, Python, numba."""
    import llvmlite
    import llvmlite.binding as llvm

    processor = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    parts = *processor, sys.version, _numba_version(), llvmlite.__version__
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]


def _extension(name: str) -> Any:
    full = f"numba.{name.replace('/', '.')}"
    if full in sys.modules:
        return sys.modules[full]
    loader = ExtensionFileLoader(full, str(_extension_file(name)))
    spec = spec_from_file_location(full, str(_extension_file(name)), loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def engine_of(assembly: str = "") -> Any:
    """Return LLVM's engine that links machine code into this process, with that of this assembly."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(assembly)
    module.triple = llvm.get_process_triple()
    machine = llvm.Target.from_triple(module.triple).create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(module, machine)


@cache
def _linker() -> tuple[Any, Any]:
    """Return the engine that links machine code, and numba's module that makes functions of it."""
    import llvmlite.binding as llvm

    helpers, runtime, functions = (_extension(name) for name in _EXTENSIONS)
    for name, address in helpers.c_helpers.items():
        llvm.add_symbol(f"numba_{name}", address)
    for name, address in runtime.c_helpers.items():
        llvm.add_symbol(name.removeprefix("_") if name.startswith("_") else f"NRT_{name}", address)
    return engine_of(), functions


def _linked(function: Any, found: MachineCode) -> Any:
    """Return what Python calls."""
    import llvmlite.binding as llvm

    engine, functions = _linker()
    engine.add_object_file(llvm.ObjectFileRef.from_data(found.code))
    engine.finalize_object()
    environments = [functions.Environment({"__name__": function.__module__}) for _ in found.environments]
    for (name, types), environment in zip(found.environments, environments, strict=True):
        environment.consts.extend(map(np.dtype, types))
        if address := engine.get_global_value_address(name):
            ctypes.c_void_p.from_address(address).value = id(environment)
    module, entry = ModuleType(function.__module__), engine.get_function_address(found.entry)
    name, doc, owned = function.__name__, function.__doc__ or "", (engine, *environments)
    return functions.make_function(module, name, doc, entry, environments[0], owned)
