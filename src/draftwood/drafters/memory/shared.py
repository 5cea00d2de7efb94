"""Memories opened by the name of their file: one per file and process, saved once a minute and at exit."""

from __future__ import annotations

import atexit
import logging
import time
from pathlib import Path
from threading import Lock

from draftwood.drafters.memory.memory import Memory
from draftwood.errors import DraftwoodError, UsageError
from draftwood.files.paths import named

log = logging.getLogger("draftwood")

SAVE_EVERY = 60.0  # least seconds between two saves while requests are served
_open: dict[Path, KeptMemory] = {}
_lock = Lock()


class KeptMemory:
    """A memory and when it was last saved; unless ``saved_here``, whoever opened it saves it."""

    def __init__(self, memory: Memory, *, saved_here: bool = False) -> None:
        self.memory = memory
        self._saved_here, self._saved = saved_here, time.monotonic()

    def save_if_due(self) -> None:
        """Save new answers, unless that was done less than `SAVE_EVERY` seconds ago."""
        if self._saved_here and time.monotonic() - self._saved >= SAVE_EVERY:
            self.save(wait=1.0)

    def save(self, wait: float) -> None:
        """Save new answers; a failure is logged, and the next call tries again."""
        self._saved = time.monotonic()
        if not self.memory.changed:
            return
        try:
            self.memory.save(wait=wait)
        except DraftwoodError as error:
            log.warning("new answers could not be saved to the memory: %s", error)


def shared_memory(file: str, tokens: int | None = None) -> KeptMemory:
    """Return the memory of a file, opened at the first call; raises as `Memory.open`, or for another size."""
    key = named(file)
    with _lock:
        found = _open.get(key)
        if found is None:
            if not _open:
                atexit.register(save_all)
            found = _open[key] = KeptMemory(Memory.open(key, tokens), saved_here=True)
        elif tokens not in (None, found.memory.size):
            size = found.memory.size
            raise UsageError(f"memory: {file} is open with tokens={size}, not {tokens}: give the same everywhere")
    return found


def save_all() -> None:
    """Save every memory that was opened by its name."""
    with _lock:
        for shared in _open.values():
            shared.save(wait=30.0)
