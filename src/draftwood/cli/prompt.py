"""What users type: ``PROMPT|@FILE|-`` and ``TEXT|@FILE`` on the command line, and the questions of a chat.

Questions are typed on a terminal, with a history and pasted lines, or piped in line by line.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from draftwood.cli import screen
from draftwood.errors import PromptError, UsageError
from draftwood.files.foreign import given_text, whole
from draftwood.files.paths import content

END = "Ctrl-Z and Enter" if sys.platform == "win32" else "Ctrl-D"
"""What ends a text that is typed."""
HISTORY = 1000  # questions that are kept
_FROM_A_FILE = "a text that starts with @ must come from a file"
_PASTED = 0.03  # seconds in which the next line of a pasted text comes


def only(prompt: str | None, text: str | None, file: str | None) -> str:
    """Return the one prompt that was given, as `read_prompt` takes it: as an argument, by ``-p``, or in the file
    of ``-f``; else standard input's. `UsageError` where there are several, `PromptError` where there is none."""
    given = [prompt, text, None if file is None else f"@{file}"]
    found = [one for one in given if one is not None]
    if len(found) > 1:
        raise UsageError("several prompts were given: give one, as PROMPT, by -p or by -f")
    if not found and sys.stdin.isatty():
        raise PromptError('there is no prompt: give one, as in draftwood generate "Write a haiku", or @FILE')
    return found[0] if found else "-"


def read_prompt(given: str) -> str:
    """Return the prompt: the word itself, the text of ``@FILE``, or standard input for ``-``, by `given_text`."""
    if given == "-":
        if sys.stdin.isatty():
            screen.say(f"reading the prompt from the terminal; {END} on its own line ends it", file=sys.stderr)
        where, text = "standard input", given_text(sys.stdin.buffer.read(), "standard input", PromptError)
    else:
        hint = "to send a text that starts with @, write - and give it on standard input"
        where, text = _read(given, "prompt", PromptError, hint)
    if not text.strip():
        kind = "has nothing but blanks" if text else "is empty"
        also = "" if given else ", @FILE, or - for standard input"
        raise PromptError(f"{where} {kind}: give some text{also}")
    return text


def read_given(given: str, what: str) -> str:
    """Return a text that goes with the prompt, or that of ``@FILE``; ``what`` names it."""
    where, text = _read(given, what, UsageError, _FROM_A_FILE)
    if not text:
        raise UsageError(f"{where} is empty: give some text, or leave it out")
    return text


def read_system(given: str | None, chat: bool | None = None) -> str | None:
    """Return the system message, or that of ``@FILE``; `UsageError` with a prompt that is continued as it is."""
    if given is None:
        return None
    if chat is False:
        raise UsageError("--system is part of the chat template, which --raw leaves out: give one of them")
    return _read(given, "system message", UsageError, _FROM_A_FILE)[1]


def _read(given: str, what: str, kind: type[UsageError], hint: str) -> tuple[str, str]:
    """Return how errors name what was given, and its text."""
    if not given.startswith("@"):
        return f"the {what}", whole(given, f"the {what}", kind)
    where, name = f"the {what} file {given[1:]}", given[1:]
    try:
        raw = content(Path(name).expanduser(), streams=True)
    except (OSError, RuntimeError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise kind(
            f"the {what} file {name or '(no name)'} cannot be read ({said}): check its name ({hint})"
        ) from error
    return where, given_text(raw, where, kind)


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


def piped() -> Iterator[str]:
    """Yield the questions on standard input, a line each; one that ends in a backslash goes on in the next."""
    begun = ""
    for number, raw in enumerate(sys.stdin.buffer, 1):
        line = given_text(raw, f"line {number} of standard input", PromptError)
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
        text.encode()  # fails for bytes that are not UTF-8, which Python reads as lone surrogates
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

    Works without the module readline, too, and where the file cannot be read or written.
    """
    try:
        import readline
    except ImportError:
        yield
        return
    readline.clear_history()
    with suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(0o600)
            path.chmod(0o600)
            readline.set_history_length(HISTORY)
            readline.write_history_file(path)
