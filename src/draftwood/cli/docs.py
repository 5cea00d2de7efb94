"""Writes docs/cli.md from docs_head.md and the command line: ``python -m draftwood.cli.docs > docs/cli.md``.

A test fails where the file is stale.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import typer.main

from draftwood.cli.main import command_line

_HEAD = Path(__file__).with_name("docs_head.md")  # what stands above the verbs


def page() -> str:
    """Return docs/cli.md."""
    command: Any = typer.main.get_command(command_line())
    parts: list[str] = [_HEAD.read_text(encoding="utf-8"), _section("draftwood", command)]
    for name, verb in command.commands.items():
        parts.append(_section(f"draftwood {name}", verb))
        below = getattr(verb, "commands", {})
        parts += [_section(f"draftwood {name} {sub}", command) for sub, command in below.items()]
    return "\n".join(parts).rstrip() + "\n"


def _section(title: str, command: Any) -> str:
    arguments = [p for p in command.params if not p.opts[0].startswith("-")]
    options = [p for p in command.params if p.opts[0].startswith("-") and not p.hidden]
    words = [p.metavar or p.name.upper() for p in arguments]
    shown = [word if p.required else f"[{word}]" for word, p in zip(words, arguments, strict=True)]
    lines = [f"## `{' '.join([title, *shown])}`", "", inspect.cleandoc(command.help).partition("\n")[0], ""]
    lines += [f"- `{word}`: {p.help}" for word, p in zip(words, arguments, strict=True)] + [""] * bool(arguments)
    if options:
        lines += ["| flag | meaning | default |", "|---|---|---|", *map(_row, options), ""]
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
