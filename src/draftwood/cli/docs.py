"""Writes docs/cli.md from the command line itself: ``python -m draftwood.cli.docs > docs/cli.md``.

A test fails where the file is stale.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

import typer.main

from draftwood.cli.main import app

_HEAD = """# Command line

Made by `python -m draftwood.cli.docs > docs/cli.md`; do not edit.

Text for people goes to a terminal; a pipe gets the answer alone, and legend and summary go to standard error. With `--json`, standard output is one JSON document and nothing else. `NO_COLOR` turns colours off. Ctrl-C keeps what was produced.

A prompt goes through the model's chat template where it has one, which is said on standard error; `--raw` continues the text as it stands instead. Prompts of your own that `bench`, `probe` and `drift` read with `--prompts` go the same way; those of tasks are what they are.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed; one line on standard error says why |
| 2 | the call itself is wrong: an unknown name or flag, an empty or unreadable prompt |
| 130 | stopped by Ctrl-C |

Drafters are named the same everywhere: `+` combines them into one tree, `,` lists arms where several are compared, options follow the name after colons: `suffix+lookup:max_ngram=3:length=10`. `none` is plain decoding through the same loop; `default` is the standard set.

`generate --json` has the fields `model, drafters, planner, text, finish_reason, seed, identical, speedup, mean_acceptance_length, drafted_step_acceptance_length, acceptance_rate, accepted_per_cycle, draft_coverage, tokens_per_second, passes, prompt_tokens, prefill_s, seconds, ids, sources, steps, chat`; `chat` is true where the prompt went through the model's chat template, which is then not said on standard error; `identical` and `speedup` are null without `--compare`, which adds `rounds, plain_seconds, drafted_seconds, margin`. `finish_reason` is null after Ctrl-C. The words are those of [words.md](words.md). In `chat`, `/help` lists the commands, pasted lines are one question, a line that ends in a backslash goes on in the next, and what was asked on a terminal is kept in `chat-history` in the cache folder (the last 1,000 lines, readable by you alone, never an answer).

The measuring verbs (`probe`, `simulate`, `profile`, `bench`, `drift`, `report`) are explained in [measuring.md](measuring.md), `explain` in [explain.md](explain.md). `probe --json`: `targets, proposals, accepted, proposal_rate, acceptance_rate, accepted_per_target, per_n`, and the same for each of `prompts`. `simulate --json`: `rows`, one per task, drafter and draft, with `task, drafter, draft, planner, generated, verifier_passes, ideal_speedup, mean_acceptance_length, mean_acceptance_length_unlooped, acceptance_rate, draft_coverage, drafting_us_per_step, predicted_speedup` and more, and `totals`. `bench --json`: `rows`, one per task and arm, with the same rates and `identical, speedup, speedup_interval, tokens_per_second, ttft, tpot, p95_itl, seconds`; `difference`, `sustained`, `header`. `interrupted` is true after Ctrl-C.
"""  # noqa: E501 - a line per paragraph, as in all of docs/


def page() -> str:
    """Return docs/cli.md."""
    command: Any = typer.main.get_command(app)
    parts: list[str] = [_HEAD, _section("draftwood", command)]
    for name, verb in command.commands.items():
        parts.append(_section(f"draftwood {name}", verb))
        below = getattr(verb, "commands", {})
        parts += [_section(f"draftwood {name} {sub}", command) for sub, command in below.items()]
    return "\n".join(parts).rstrip() + "\n"


def _section(title: str, command: Any) -> str:
    arguments = [p for p in command.params if not p.opts[0].startswith("-")]
    options = [p for p in command.params if p.opts[0].startswith("-")]
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
