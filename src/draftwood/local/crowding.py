"""Whether other programs keep the processor busy, so that threads would wait for a core."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from draftwood.local.machine import allowed

_SAMPLE_S, _LEAST_S = 0.1, 0.05
_ALLOWED = allowed()  # before a library binds this thread to one of them
_KINDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")  # of /proc/stat, in its order


class Others:
    """How many of the cores that we may use other programs take, from when this is made. Those of a lower priority
    count, too: a thread that loses its core to one for a moment lets all the others wait (see LOG.md).
    """

    def __init__(self) -> None:
        self._begun = _spent()

    @property
    def cores(self) -> float | None:
        """How many they took on average; None where the system does not say, or after too short a time: it counts
        in hundredths of a second."""
        every, left = (now - before for now, before in zip(_spent(), self._begun, strict=True))
        return len(_ALLOWED) * max(0.0, 1 - left / every) if every > _LEAST_S * len(_ALLOWED) else None

    def busy(self, threads: int) -> str:
        """Say what they took, where they `crowds` so many threads; else nothing."""
        taken = self.cores
        return told(taken) if crowds(taken or 0.0, len(_ALLOWED), threads) else ""


def crowds(taken: float, every: int, threads: int) -> bool:
    """Return whether other programs that take so many cores of all leave fewer than these threads can use."""
    return taken > max(0, every - threads) + 0.5


def told(taken: float | None) -> str:
    """Say how many cores other programs took; nothing for None."""
    return "" if taken is None else f"other programs took {taken:.1f} of {len(_ALLOWED)} cores meanwhile"


def _spent() -> tuple[float, float]:
    """Return the seconds of our cores, and of them those that were idle or ours.

    Ours are those of child processes, too: of running ones where psutil is installed, as with every extra that
    starts any.
    """
    spent = _processor_times()
    idle = spent.get("idle", 0.0) + spent.get("iowait", 0.0)
    return sum(spent.values()), idle + sum(os.times()[:4]) + _running()


def _running() -> float:
    """Return the seconds of our child processes that still run."""
    with suppress(OSError):  # a thread has ended meanwhile, or the system lists no children
        listed = [path.read_text(encoding="ascii") for path in Path("/proc/self/task").glob("*/children")]
        if listed and not any(listed):
            return 0.0  # the usual case, without importing anything
    try:
        import psutil
    except ImportError:
        return 0.0
    spent = 0.0
    with suppress(OSError, psutil.Error):
        for child in psutil.Process().children():
            with suppress(psutil.Error):  # it has ended meanwhile
                spent += sum(child.cpu_times()[:4])
    return spent


def _processor_times() -> dict[str, float]:
    """Return the seconds that our cores spent on each kind of work; empty where the system does not say.

    That is all cores in a container that numbers them anew, and where there are no lines per core.
    """
    try:
        lines = [line.split() for line in Path("/proc/stat").read_text(encoding="ascii").splitlines()]
        found = {words[0]: [int(ticks) for ticks in words[1:9]] for words in lines if words[0].startswith("cpu")}
        ours = [found.get(f"cpu{core}", []) for core in _ALLOWED]
        spent = map(sum, zip(*ours if all(ours) else [found["cpu"]], strict=True))
        return dict(zip(_KINDS, (ticks / os.sysconf("SC_CLK_TCK") for ticks in spent), strict=True))
    except (OSError, ValueError, LookupError):
        try:
            import psutil

            return dict(psutil.cpu_times()._asdict())
        except (ImportError, OSError):  # Android lets nobody read it
            return {}


def is_crowded(threads: int) -> bool:
    """Return whether other programs leave fewer than ``threads`` cores idle; takes 0.1 s."""
    others = Others()
    time.sleep(_SAMPLE_S)
    return bool(others.busy(threads))
