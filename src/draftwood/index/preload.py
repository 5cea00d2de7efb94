"""Imports modules with kernels in a thread, while the engine, which lets other threads run, reads a prompt."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Event, Thread


@contextmanager
def importing(modules: Iterable[str]) -> Iterator[None]:
    """Import these modules while the block runs; after it no further import is begun. An error in the thread is
    dropped: it comes again, and is reported, where the module is needed.
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
