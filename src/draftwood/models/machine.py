"""Identify this machine by what decides how fast a pass is."""

from __future__ import annotations

import hashlib
import os
import platform
from functools import cache
from pathlib import Path

from draftwood.models import container


def cores() -> int:
    """Return how many cores this process may use, whole ones of a container's share and at least one."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = container.processors()
    return here if share is None else max(1, min(here, int(share)))


def total_memory() -> int | None:
    """Return the bytes of memory of this machine or container; None where the system does not say."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return container.memory()
    return min(found, container.memory() or found)


def free_memory() -> int | None:
    """Return how many bytes this process may still take; None where the system does not say."""
    left = container.memory_left()
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        try:
            import psutil
        except ImportError:
            return left
        free = int(psutil.virtual_memory().available)
    return free if left is None else min(free, left)


@cache
def processor() -> str:
    """Return the processor's name; Python's own answer is often empty on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine(device: str = "cpu") -> str:
    """Return 8 hexadecimal digits for system, processor, number of cores, and for CUDA the graphics card."""
    facts = [platform.system(), platform.machine(), processor(), str(os.cpu_count())]
    if device == "cuda":
        facts.append(_card())
    return hashlib.sha256("|".join(facts).encode()).hexdigest()[:8]


@cache
def _card() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
