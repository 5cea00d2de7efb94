"""Handles standard input, output and error that are closed, full or no longer read."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


def open_closed() -> None:
    """Open a stream that was closed before we began (``>&-``) on the null device, lest a file take its place."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is not None:
            continue
        with suppress(OSError):
            if not _is_open(number):
                found = os.open(os.devnull, os.O_RDWR)
                if found != number:
                    os.dup2(found, number)
                    os.close(found)
                os.set_inheritable(number, True)
        setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - open as long as we are


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def show_any_character() -> None:
    """Show ? for characters that the encoding of a stream lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def complain(line: str) -> None:
    """Print a line on standard error, if it can be written."""
    with suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def abandon() -> None:
    """Send what is left in broken streams to the null device, so that Python exits quietly."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
