"""``PROMPT|@FILE|-`` and ``TEXT|@FILE``: the text that the command line means, and whether as chat or raw."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from draftwood.cli import screen
from draftwood.errors import PromptError, UsageError
from draftwood.files.foreign import text_of, whole


def read_prompt(given: str) -> str:
    """Return the prompt: the word itself, the text of ``@FILE``, or standard input for ``-``.

    One line end at the end of a file or of standard input is left out, since editors and ``echo`` add it.
    """
    if given == "-":
        if sys.stdin.isatty():
            screen.say(
                "reading the prompt from the terminal; Ctrl-D on a line of its own ends it", file=sys.stderr
            )
        where, text = "standard input", decoded(sys.stdin.buffer.read(), "standard input", PromptError)
    else:
        hint = "to send a text that starts with @, write - and give it on standard input"
        where, text = _read(given, "prompt", PromptError, hint)
    if not text.strip():
        kind = "has nothing but blanks" if text else "is empty"
        also = "" if given else ", @FILE, or - for standard input"
        raise PromptError(f"{where} {kind}: give some text{also}")
    return text


def read_given(given: str, what: str) -> str:
    """Return a text that goes with the prompt, or that of ``@FILE`` less its last line end; ``what`` names it."""
    where, text = _read(given, what, UsageError, "a text that starts with @ must come from a file")
    if not text:
        raise UsageError(f"{where} is empty, so nothing can be drafted from it: give some text, or leave it out")
    return text


def _read(given: str, what: str, kind: type[UsageError], hint: str) -> tuple[str, str]:
    """Return how errors name what was given, and its text."""
    if not given.startswith("@"):
        return f"the {what}", whole(given, f"the {what}", kind)
    where, name = f"the {what} file {given[1:]}", given[1:]
    try:
        raw = Path(name).expanduser().read_bytes()
    except (OSError, RuntimeError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise kind(
            f"the {what} file {name or '(no name)'} cannot be read ({said}): check its name ({hint})"
        ) from error
    return where, decoded(raw, where, kind)


def decoded(raw: bytes, where: str, kind: type[UsageError]) -> str:
    """Return bytes as text, without one line end at their end; ``where`` names them in errors of ``kind``."""
    return text_of(raw, where, kind).removesuffix("\n").removesuffix("\r")


def check_chat(chat: bool | None, system: str | None) -> None:
    """Refuse a system message for a prompt that is continued as it stands, or of half characters."""
    if system is not None:
        whole(system, "the system message", UsageError)
    if chat is False and system is not None:
        raise UsageError("--system is part of the chat template, which --raw leaves out: give one of them")


def as_asked(
    text: str, tokenizer: Any, chat: bool | None = None, system: str | None = None, *, quiet: bool = False
) -> str | list[dict[str, str]]:
    """Return a prompt as `draftwood.stream` takes it: text to continue, or the messages of a chat.

    Where ``chat`` is None, whether the tokenizer has a chat template decides, which is said unless ``quiet``.
    """
    if system is None and not in_template(tokenizer, chat, quiet=quiet):
        return text
    turns = [("system", system)] if system is not None else []
    return [{"role": role, "content": said} for role, said in [*turns, ("user", text)]]


def in_template(tokenizer: Any, chat: bool | None, *, quiet: bool) -> bool:
    """Return whether prompts go through the chat template; for None the tokenizer decides, see `as_asked`."""
    if chat is None:
        chat = bool(getattr(tokenizer, "chat_template", None))
        if chat and not quiet:
            screen.say("using the model's chat template; --raw continues the text instead", file=sys.stderr)
    return chat
