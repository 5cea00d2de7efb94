"""Writes docs/cli.md from cli_head.txt and the command line: ``python docs/make_cli.py > docs/cli.md``.

A test fails where the file is stale.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import typer.main

from draftwood.cli.main import command_line

_HEAD = Path(__file__).with_name("cli_head.txt")  # what stands above the verbs
_TABLE = ("| flag | meaning | default |", "|---|---|---|")


def page() -> str:
    """Return docs/cli.md."""
    command: Any = typer.main.get_command(command_line())
    found = {"draftwood": command}
    for name, verb in command.commands.items():
        found[f"draftwood {name}"] = verb
        found |= {f"draftwood {name} {sub}": below for sub, below in getattr(verb, "commands", {}).items()}
    told = Counter(_row(option) for verb in found.values() for option in _options(verb))
    shared = [row for row, times in told.items() if times >= 3]
    several = "\n".join(["## Flags of several verbs", "", *_TABLE, *shared, ""])
    parts = [_HEAD.read_text(encoding="utf-8"), *(_section(*one, shared) for one in found.items()), several]
    return "\n".join(parts).rstrip() + "\n"


def _options(command: Any) -> list[Any]:
    return [p for p in command.params if p.opts[0].startswith("-") and not p.hidden]


def _section(title: str, command: Any, shared: list[str]) -> str:
    arguments = [p for p in command.params if not p.opts[0].startswith("-")]
    own = [row for row in map(_row, _options(command)) if row not in shared]
    others = ", ".join(row.split(" | ")[0][2:] for row in map(_row, _options(command)) if row in shared)
    words = [p.metavar or p.name.upper() for p in arguments]
    shown = [word if p.required else f"[{word}]" for word, p in zip(words, arguments, strict=True)]
    lines = [f"## `{' '.join([title, *shown])}`", "", inspect.cleandoc(command.help).partition("\n")[0], ""]
    lines += [f"- `{word}`: {p.help}" for word, p in zip(words, arguments, strict=True)] + [""] * bool(arguments)
    if own:
        lines += [*_TABLE, *own, ""]
    if others:
        lines += [f"And {others}: [flags of several verbs](#flags-of-several-verbs).", ""]
    return "\n".join(lines)


def _row(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*sorted(option.opts, key=len), *option.secondary_opts])
    meaning, _, default = (option.help or "").partition(" [default: ")
    default = default.rstrip("]")
    if not default and option.default is not None and option.default is not False:
        default = f"`{option.default}`"
    return f"| {names} | {meaning} | {default} |"


if __name__ == "__main__":
    sys.stdout.write(page())
