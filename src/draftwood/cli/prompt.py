"""``PROMPT|@FILE|-`` and ``TEXT|@FILE``: the text that the command line means."""

from __future__ import annotations

import sys
from pathlib import Path

from draftwood.errors import PromptError, UsageError


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
        where, text = "standard input", _text(sys.stdin.buffer.read(), "standard input", PromptError)
    elif given.startswith("@"):
        where = f"the prompt file {given[1:]}"
        hint = " (to send a text that starts with @, write - and give it on standard input)"
        text = _text(_read(given[1:], "prompt", PromptError, hint), where, PromptError)
    else:
        where, text = "the prompt", given
    if not text:
        also = "" if given else ", @FILE, or - for standard input"
        raise PromptError(f"{where} is empty: give some text{also}")
    return text


def read_given(given: str, what: str) -> str:
    """Return a text that goes with the prompt: the word itself, or the text of ``@FILE``. It may be empty.

    One line end at the end of a file is left out.

    Parameters
    ----------
    given
        As typed.
    what
        What errors call it, for example ``"prediction"``.

    Raises
    ------
    UsageError
        If the file is missing, unreadable or no text.
    """
    if not given.startswith("@"):
        return given
    hint = " (a text that starts with @ must come from a file)"
    return _text(_read(given[1:], what, UsageError, hint), f"the {what} file {given[1:]}", UsageError)


def _read(name: str, what: str, kind: type[UsageError], hint: str) -> bytes:
    try:
        return Path(name).expanduser().read_bytes()
    except (OSError, RuntimeError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise kind(
            f"the {what} file {name or '(no name)'} cannot be read ({said}): check its name{hint}"
        ) from error


def _text(raw: bytes, where: str, kind: type[UsageError]) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise kind(f"{where} is no UTF-8 text: give a text file") from error
    if "\0" in text:
        raise kind(f"{where} is binary: give a text file")
    return text.removesuffix("\n").removesuffix("\r")
