"""The command ``draftwood``: its verbs, and where errors and broken streams become messages and exit codes."""

from __future__ import annotations

import errno
import gc
import io
import json
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from time import gmtime, strftime
from typing import Annotated

import typer
from typer import Option

from draftwood import __version__
from draftwood.errors import DraftwoodError

VERBS = (
    "generate", "chat", "serve", "demo", "bench", "simulate", "profile", "drift", "explain", "report", "fetch",
    "list", "info",
)  # fmt: skip
"""Each is a function in a module of its name."""
GROUPS = ("corpus", "train")
"""Verbs with verbs below them; each is ``app`` in a module of its name."""
OLD = {
    "cache": "--drafters ngram-cache:dynamic=FILE:save=true, which keeps its counts itself",
    "corpus query": "draftwood.Corpus.open(FILE).match(ids) in Python, or draftwood corpus stats",
    "distil": "draftwood train head, which drafts better",
    "export-custom-generate": "model.generate(..., custom_generate=draftwood.decode_with())",
    "models": "draftwood list",
    "probe": "draftwood simulate --live",
    "train-exit": "draftwood train head, which drafts better",
    "train-head": "draftwood train head",
}
"""Verbs of earlier versions, and what does their work now."""


_EPILOG = "As elsewhere, too: pull NAME is fetch, run NAME chat, run NAME PROMPT generate; serve NAME."


def command_line(verb: str | None = None) -> typer.Typer:
    """Return the command with this verb alone, which spares importing the others; None: with all of them."""
    app = typer.Typer(
        name="draftwood",
        help="Makes language models answer faster; the text stays the model's own.",
        epilog=_EPILOG,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        invoke_without_command=True,
        rich_markup_mode=None,  # plain help, plain errors: nothing that a pipe would garble
        pretty_exceptions_enable=False,
    )
    app.callback()(_top)
    for name in VERBS:
        if verb in (None, name):
            app.command()(getattr(import_module(f"draftwood.cli.{name}"), name))
    for name in GROUPS:
        if verb in (None, name):
            app.add_typer(import_module(f"draftwood.cli.{name}").app)
    return app


def _top(
    context: typer.Context,
    version: Annotated[bool, Option("--version", help="Print the version and end.")] = False,
    debug: Annotated[  # noqa: ARG001 - taken out of the arguments before they are parsed; here for the help
        bool, Option("--debug", help="Show tracebacks and warnings; may stand after the verb, too.")
    ] = False,
) -> None:
    """Makes language models answer faster; the text stays the model's own."""
    if version:
        print(f"draftwood {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


class _Warnings(logging.Handler):
    """Prints what draftwood logs, for instance that a drafter failed, as one line on standard error.

    The server's own notes come without a word before them, and all that it logs as JSON if it is told so.
    """

    as_json = False

    def emit(self, record: logging.LogRecord) -> None:
        level, said = record.levelname.lower(), self.format(record)
        if self.as_json:
            found = {"time": strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(record.created)), "level": level}
            _say(json.dumps(found | getattr(record, "fields", {"message": said})))
        elif record.levelno == logging.INFO:
            _say(said if record.name == "draftwood.server" else f"note: {said}")
        else:
            _say(f"{level}: {said}")


_PROMPTED = {
    "": "generate",
    "generate": "generate",
    "chat": "generate",
    "explain": "explain --live",
    "drift": "drift",
}
"""Verbs that are likely to be given a prompt without quotes, and how it is given."""
WARNINGS = _Warnings()
_FULL = (errno.ENOSPC, errno.EBADF, errno.EIO)  # errors of output streams that cannot be written


def main() -> None:
    """Run the command line and leave with its exit code."""
    _open_closed()
    code = run(sys.argv[1:])
    _abandon()
    gc.freeze()  # else Python looks for garbage among all of torch before it exits, for a second
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code. Errors are one line, with a traceback only after ``--debug``."""
    debug, arguments = _take_debug(arguments)
    _prepare(debug)
    arguments = in_our_words(arguments)
    for words in (arguments[:1], arguments[:2]):
        if (old := " ".join(words)) in OLD:
            _say(f"error: draftwood {old} is gone: use {OLD[old]}")
            return 2
    verb = arguments[0] if arguments and arguments[0] in (*VERBS, *GROUPS) else None
    with warnings.catch_warnings():
        if not debug and not sys.warnoptions:
            warnings.simplefilter("ignore")  # warnings of other libraries tell the user nothing
        try:
            code = command_line(verb)(args=list(arguments), prog_name="draftwood", standalone_mode=False)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader of our output has gone (``| head``)
            _abandon()
            return 1
        except KeyboardInterrupt:
            return 130
        except SystemExit as leaving:  # how typer answers a closed pipe
            return leaving.code if isinstance(leaving.code, int) else 1
        except Exception as error:
            return _explain(error, debug, arguments)
    return code if isinstance(code, int) else 0


def _take_debug(arguments: Sequence[str]) -> tuple[bool, list[str]]:
    """Take ``--debug`` out of the arguments wherever it stands before ``--``, so that no verb need declare it."""
    found = list(arguments)
    end = found.index("--") if "--" in found else len(found)
    kept = [word for word in found[:end] if word != "--debug"]
    return len(kept) < end, kept + found[end:]


def in_our_words(arguments: list[str]) -> list[str]:
    """Return a command in the words of Ollama or vLLM as ours: ``pull NAME``, ``ls``, ``run NAME``,
    ``run NAME PROMPT``, ``serve NAME``."""
    verb, *others = arguments or [""]
    own = {"pull": "fetch", "run": "chat", "ls": "list"}.get(verb, verb)
    if own not in ("chat", "serve") or not others or others[0].startswith("-"):
        return [own, *others] if arguments else []
    name, *others = others
    if verb == "run" and others and (others[0] == "-" or not others[0].startswith("-")):
        return ["generate", others[0], "--model", name, *others[1:]]
    return [own, "--model", name, *others]


def _prepare(debug: bool) -> None:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "warning" if debug else "error")
    logger = logging.getLogger("draftwood")
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
    for name in ("engine", "server"):  # which one runs, where that may surprise; what it was asked
        logger.getChild(name).setLevel(logging.INFO)
    WARNINGS.as_json = False
    logger.addHandler(WARNINGS)  # once: a second time changes nothing
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # ? for characters that its encoding lacks


def _explain(error: Exception, debug: bool, arguments: Sequence[str]) -> int:
    """Say an error in a line; returns the exit code."""
    if debug:
        _say("".join(traceback.format_exception(error)).rstrip())
    if isinstance(error, typer.Abort):
        return 130
    if isinstance(error, DraftwoodError):
        line, code = f"error: {error}", error.exit_code
    elif hasattr(error, "format_message"):  # typer's own: a wrong flag, verb or value
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "draftwood"
        said = error.format_message().rstrip(".")
        first = next((word for word in arguments[1:] if not word.startswith("-")), "")
        a_prompt = "unexpected extra argument" in said or ("No such command" in said and "Did you" not in said)
        a_prompt = a_prompt and not os.path.isfile(first)  # noqa: PTH113 - False for words that no file can have
        verb = _PROMPTED.get(path.partition(" ")[2]) if a_prompt else None
        hint = f': put text of several words in quotes, as in draftwood {verb} "write a haiku"' if verb else ""
        line, code = f"error: {said}{hint}\nsee {path} --help", 2
    elif isinstance(error, OSError) and error.errno in _FULL and not error.filename:
        _abandon()
        line, code = f"error: the output cannot be written ({error.strerror}): choose another place for it", 1
    elif isinstance(error, MemoryError):
        line, code = "error: there is not enough memory: take a smaller model, or end other programs", 1
    else:
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        hint = "" if debug else "; run again with --debug for the traceback"
        line, code = f"draftwood failed: {type(error).__name__}: {said}{hint}", 1
    _say(line)
    return code


def _open_closed() -> None:
    """Open a stream that was closed before we began (``>&-``) on the null device: else a file gets its number."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is not None:
            continue
        with suppress(OSError):
            found = os.open(os.devnull, os.O_RDWR)  # the lowest free number: the stream's own, unless it is open
            if found == number:
                os.set_inheritable(number, True)
            else:
                os.close(found)
        setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - open as long as we are


def _say(line: str) -> None:
    """Print a line on standard error, if it can be written."""
    from draftwood.cli.screen import say

    with suppress(OSError, ValueError):
        say(line, file=sys.stderr)


def _abandon() -> None:
    """Send what is left in broken streams to the null device, so that Python exits quietly."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
