"""``PROMPT|@FILE|-``: the text that the command line means."""

from __future__ import annotations

import sys
from pathlib import Path

from draftwood.errors import PromptError


def read_prompt(given: str) -> str:
    """Return the prompt: the word itself, the text of ``@FILE``, or standard input for ``-``.

    One line end at the end of a file or of standard input is left out, since editors and ``echo`` add it.

    Raises
    ------
    PromptError
        If it is empty, missing, unreadable or no text.
    """
    if given == "-":
        if sys.stdin.isatty():
            print("reading the prompt from the terminal; Ctrl-D on a line of its own ends it", file=sys.stderr)
        return _text(sys.stdin.buffer.read(), "standard input")
    if given.startswith("@"):
        return _text(_read(given[1:]), f"the prompt file {given[1:]}")
    if not given:
        raise PromptError("the prompt is empty: give some text, @FILE, or - for standard input")
    return given


def _read(name: str) -> bytes:
    try:
        return Path(name).expanduser().read_bytes()
    except (OSError, RuntimeError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise PromptError(
            f"the prompt file {name or '(no name)'} cannot be read ({said}): check its name "
            "(to send a text that starts with @, write - and give it on standard input)"
        ) from error


def _text(raw: bytes, where: str) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptError(f"{where} is no UTF-8 text: give a text file") from error
    if "\0" in text:
        raise PromptError(f"{where} is binary: give a text file")
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise PromptError(f"{where} is empty: give some text")
    return text
