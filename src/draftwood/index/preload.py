"""Imports modules with kernels in a thread, while the engine, which lets other threads run, reads a prompt."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Event, Thread


@contextmanager
def importing(modules: Iterable[str]) -> Iterator[None]:
    """Import these modules meanwhile; at the end no further one is begun. What goes wrong in the thread goes wrong
    again where one of them is needed, and is reported there.
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
        Thread(target=run, name="draftwood-kernels", daemon=False).start()
    try:
        yield
    finally:
        ended.set()
