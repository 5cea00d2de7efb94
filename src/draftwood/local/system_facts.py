"""What macOS and Windows say of this machine, without a package: memory, processor, cores.

Written from the systems' documentation, and tried with faked systems alone.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from contextlib import suppress

_TOOLS = "/usr/sbin/sysctl", "/usr/bin/vm_stat"
_FREE = ("Pages free", "Pages inactive", "Pages speculative", "Pages purgeable")
"""What macOS gives to who asks, as `vm_stat` names it."""


def performance_cores() -> int | None:
    """Return how many fast cores an Apple processor has; None elsewhere. Slow ones would hold up every phase."""
    return _number(_sysctl("hw.perflevel0.physicalcpu"))


def processor_name() -> str:
    """Return what the system calls the processor; empty where it does not say."""
    if sys.platform == "win32":
        return os.environ.get("PROCESSOR_IDENTIFIER", "")
    return _sysctl("machdep.cpu.brand_string")


def system_memory() -> tuple[int, int] | None:
    """Return the bytes of memory of this machine, and those that are free; None where the system does not say."""
    if sys.platform == "win32":
        return _windows_memory()
    total, said = _number(_sysctl("hw.memsize")), _said(_TOOLS[1])
    size = re.search(r"page size of (\d+) bytes", said)
    if total is None or size is None:
        return None
    pages = dict(re.findall(r"^(.+?):\s+(\d+)\.", said, re.MULTILINE))
    return total, int(size[1]) * sum(int(pages.get(name, 0)) for name in _FREE)


class _MemoryStatus(ctypes.Structure):
    """``MEMORYSTATUSEX`` of Windows."""

    _fields_ = (
        ("length", ctypes.c_uint32), ("load", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("total", "free", "all", "all_free", "mine", "mine_free", "more")),
    )  # fmt: skip


def _windows_memory() -> tuple[int, int] | None:
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    library = getattr(ctypes, "windll").kernel32  # noqa: B009 - mypy knows it on Windows alone
    return (status.total, status.free) if library.GlobalMemoryStatusEx(ctypes.byref(status)) else None


def _sysctl(name: str) -> str:
    return _said(_TOOLS[0], "-n", name)


def _said(*command: str) -> str:
    """Return what a tool of macOS prints; empty elsewhere, and where it fails."""
    if sys.platform != "darwin":
        return ""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    return ""


def _number(said: str) -> int | None:
    return int(said) if said.isdecimal() else None
