"""Says on a terminal, behind the first word of an answer, that drafters are compiled, which takes some seconds."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Self

from draftwood.cli import screen

_LOGGER = logging.getLogger("draftwood.compiling")
_WARNINGS = logging.getLogger("draftwood")
_NOTE = "  (compiling the drafters, once on this machine …)"
_REMEMBER, _DIM, _PLAIN, _WIPE = "\x1b7", "\x1b[2m", "\x1b[0m", "\x1b8\x1b[J"


class CompilingNote(logging.Handler):
    """A block in which the note appears once kernels begin to be compiled; `wipe` takes it off the screen."""

    def __init__(self) -> None:
        super().__init__()
        self._shown = False

    def __enter__(self) -> Self:
        _LOGGER.addHandler(self)
        _LOGGER.setLevel(logging.INFO)
        _LOGGER.propagate = False
        _WARNINGS.addFilter(self._make_room)
        return self

    def __exit__(self, *_: object) -> None:
        _WARNINGS.removeFilter(self._make_room)
        _LOGGER.removeHandler(self)
        _LOGGER.setLevel(logging.NOTSET)
        _LOGGER.propagate = True
        self.wipe()

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - whatever it says, the note is ours
        """Show the note, on a terminal that knows these codes."""
        if not self._shown and screen.console().color_system is not None:
            self._shown = True
            self._write(f"{_REMEMBER}{_DIM}{_NOTE}{_PLAIN}")

    def wipe(self) -> None:
        """Take the note off the screen, if it is there."""
        if self._shown:
            self._shown = False
            self._write(_WIPE)

    def _make_room(self, _: logging.LogRecord) -> bool:
        """Take the note away before a warning is printed, which would be wiped with it."""
        self.wipe()
        return True

    def _write(self, codes: str) -> None:
        with suppress(OSError, ValueError):
            print(codes, end="", flush=True)
