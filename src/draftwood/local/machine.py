"""This machine: a name for what decides how fast a pass is, its cores and memory, and the limits of a container.

Containers are Linux control groups (version 2), nested ones too.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Event, Thread

_ROOT = Path("/")


def allowed() -> list[int]:
    """Return the numbers of the cores that this thread may run on, fewer than all after ``taskset``."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]


def cores() -> int:
    """Return how many cores this process may use, whole ones of a container's share and at least one: no more than
    `threads_given`, since llama.cpp and torch end the process where a thread is missing. Of an Apple processor
    only the fast ones count."""
    here, share = len(allowed()), processor_limit()
    if sys.platform == "darwin":
        from draftwood.local.system_facts import performance_cores

        here = performance_cores() or here
    return threads_given(here if share is None else max(1, min(here, int(share))))


def threads_given(most: int) -> int:
    """Return how many threads the system lets this process have now, this one counted, at most so many."""
    ended, begun = Event(), list[Thread]()
    with suppress(RuntimeError):  # a limit of processes
        while len(begun) < most - 1:
            thread = Thread(target=ended.wait)
            thread.start()
            begun.append(thread)
    ended.set()
    for thread in begun:
        thread.join()
    return 1 + len(begun)


def total_memory() -> int | None:
    """Return the bytes of memory of this machine or container; None where the system does not say."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        from draftwood.local.system_facts import system_memory

        known = system_memory()
        return known[0] if known else memory_limit()
    return min(found, memory_limit() or found)


def free_memory(*, swap: bool = False) -> int | None:
    """Return how many bytes this process may still take, with ``swap`` slow ones, too; None where the system does
    not say."""
    left = memory_left()
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        known = {name: 1024 * int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        free, more = known["MemAvailable"], known.get("SwapFree", 0) if swap else 0
    except (OSError, ValueError, LookupError):
        try:
            import psutil
        except ImportError:
            from draftwood.local.system_facts import system_memory

            if (facts := system_memory()) is None:
                return left
            free, more = facts[1], 0  # what is in memory; no package tells of swap
        else:
            free, more = int(psutil.virtual_memory().available), int(psutil.swap_memory().free) if swap else 0
    return more + (free if left is None else min(free, left))


@cache
def processor() -> str:
    """Return the processor's name; Python's own answer is often empty on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    said = {line.partition("\t")[0].strip(): line.partition(":")[2].strip() for line in lines}
    for wanted in (("model name",), ("CPU implementer", "CPU part")):  # arm64 has numbers instead of names
        if names := [said[name] for name in wanted if name in said]:
            return " ".join(names)
    from draftwood.local.system_facts import processor_name

    return processor_name() or platform.processor() or platform.machine()


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


def processor_limit(root: Path = _ROOT) -> float | None:
    """Return how many processors' time this process may use; None without a limit."""
    quotas = [_words(group / "cpu.max") for group in _groups(root)]
    known = [q for q in quotas if len(q) == 2 and q[0].isdecimal() and q[1].isdecimal() and int(q[1])]  # not "max"
    return min((int(share) / int(period) for share, period in known), default=None)


def memory_limit(root: Path = _ROOT) -> int | None:
    """Return how many bytes this process may take in all; None without a limit."""
    return min((limit for limit, _ in _memory(root)), default=None)


def memory_left(root: Path = _ROOT) -> int | None:
    """Return how many of these bytes are still free; what caches hold of files counts as free."""
    return min((max(0, limit - used) for limit, used in _memory(root)), default=None)


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of the groups that hold this process, from the innermost to the outermost."""
    top = root / "sys/fs/cgroup"
    for line in _words(root / "proc/self/cgroup"):
        if line.startswith("0::"):
            inner = top / line[3:].strip("/")
            # Within a container the path may be the host's, which is not seen there: its top is the group then.
            yield from (place for place in (inner, *inner.parents) if place.is_relative_to(top) and place.is_dir())


def _memory(root: Path) -> Iterator[tuple[int, int]]:
    """Yield limit and use of each group that has a limit."""
    for group in _groups(root):
        most, taken = _words(group / "memory.max"), _words(group / "memory.current")
        if most and most[0].isdecimal() and taken and taken[0].isdecimal():
            stat = _words(group / "memory.stat")
            facts = dict(zip(stat[::2], stat[1::2], strict=False))
            cached = sum(int(facts.get(f"{kind}active_file", 0)) for kind in ("", "in"))
            yield int(most[0]), int(taken[0]) - cached


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return []
