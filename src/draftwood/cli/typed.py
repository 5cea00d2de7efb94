"""Reads questions: typed on a terminal, with a history and pasted lines, or piped in line by line."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from draftwood.cli.prompt import decoded
from draftwood.errors import PromptError

HISTORY = 1000  # questions that are kept
_PASTED = 0.03  # seconds in which the next line of a pasted text comes


def piped() -> Iterator[str]:
    """Yield the questions on standard input, a line each; one that ends in a backslash goes on in the next."""
    begun = ""
    for number, raw in enumerate(sys.stdin.buffer, 1):
        line = decoded(raw, f"line {number} of standard input", PromptError)
        if line.endswith("\\"):
            begun += line[:-1] + "\n"
            continue
        yield (begun + line).strip()
        begun = ""
    if begun:
        yield begun.strip()


def ask(prompt: str) -> str:
    """Read a question from the terminal, with lines that were pasted with it; EOFError if the input ends."""
    try:
        text = input(prompt)
        while text.endswith("\\") or (_more_waits() and not text.startswith("/")):
            text = text.removesuffix("\\") + "\n" + input("… ")
        text.encode()  # fails for bytes that are no UTF-8, which Python hides behind characters no text has
    except UnicodeError as error:
        raise PromptError("what was typed is no UTF-8 text: type it again") from error
    return text.strip()


def _more_waits() -> bool:
    """Return whether another line is there already, as of a pasted text."""
    try:
        return bool(select.select([sys.stdin], [], [], _PASTED)[0])
    except (OSError, ValueError, TypeError):  # an input that cannot be waited for
        return False


@contextmanager
def history(path: Path) -> Iterator[None]:
    """Give `ask` line editing and the questions of earlier sessions, to which this one's are added at its end.

    Does without a readline, and without a file that cannot be read or written.
    """
    try:
        import readline
    except ImportError:
        yield
        return
    with suppress(Exception):  # a readline without bracketed paste
        readline.parse_and_bind("set enable-bracketed-paste on")
    readline.clear_history()
    with suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            path.chmod(0o600)
            readline.set_history_length(HISTORY)
            readline.write_history_file(path)
