"""What the measuring verbs share: where prompts come from, where records go."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from typer import Option

from draftwood.cli import early, options, prompt, screen
from draftwood.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from draftwood.measure.prompt_files import Job

R = TypeVar("R")

RecordsOut = Annotated[
    Path | None,
    Option(
        "--output", "-o", metavar="RECORDS.jsonl[.zst]",
        help="Keep every answer and step here; resumes what it holds.",
    ),
]  # fmt: skip
Prompts = Annotated[
    Path | None, Option(metavar="FILE", help="Your own prompts: JSONL, or text with blank lines between.")
]
Arms = Annotated[str, Option(metavar="ARM,ARM", help="Arms to compare: suffix,suffix+lookup:length=8.")]
MaxNewTokens = Annotated[int, Option(min=1, help="Most tokens of an answer.")]
Wide = Annotated[bool, Option("--wide", help="Show every column of the table, however wide it gets.")]
Limit = Annotated[int | None, Option(min=1, help="Most prompts per task.")]


def jobs_of(tasks: str | None, prompts: Path | None, limit: int | None, chat: bool | None = None) -> list[Job]:
    """Return the prompts that the flags name; all tasks where they name none."""
    from draftwood.measure.prompt_files import read_prompts, task_jobs
    from draftwood.tasks import KINDS

    if tasks is not None and prompts is not None:
        raise UsageError("--tasks names prompts of draftwood, --prompts your own: give one of them")
    if prompts is None:
        if chat is not None:
            raise UsageError("--chat and --raw are for prompts of your own (--prompts): tasks say it themselves")
        return task_jobs(",".join(KINDS) if tasks is None else tasks, limit)
    counts: Counter[str] = Counter()
    kept = []
    for job in read_prompts(prompts):
        counts[job.task] += 1
        try:
            early.check_sampling(job.sampling)
        except UsageError as error:
            raise UsageError(f"{prompts}, {job.name}: {error}") from error
        if limit is None or counts[job.task] <= limit:
            kept.append(job)
    return kept


def load(
    loading: options.Loading, jobs: list[Job], chat: bool | None, *, own: bool, quiet: bool
) -> tuple[Any, Any, list[Job]]:
    """Load a model for these prompts, those too long refused first; returns model, tokenizer, prompts as asked."""
    texts = {f"{job.task} {job.name}": job.prompt for job in jobs if isinstance(job.prompt, str)}
    early.check_lengths(loading.model, texts, loading.engine)
    model, tokenizer = loading.load_model()
    return model, tokenizer, as_asked(jobs, own, tokenizer, chat, quiet=quiet)


def as_asked(jobs: list[Job], own: bool, tokenizer: Any, chat: bool | None, *, quiet: bool) -> list[Job]:
    """Return the prompts; of a user's ``own``, texts go through the model's chat template where it has one."""
    texts = own and any(isinstance(job.prompt, str) for job in jobs)
    if not texts or not prompt.in_template(tokenizer, chat, quiet=quiet):
        return jobs
    return [
        replace(job, prompt=prompt.as_asked(job.prompt, tokenizer, True)) if isinstance(job.prompt, str) else job
        for job in jobs
    ]


_WIDTH, _MOST = 80, 6  # characters and columns of a table without --wide
_UNLIMITED = 10_000


def show_table(
    to: Console, columns: Mapping[str, Callable[[R], str]], rows: Sequence[R], *, left: int = 1, wide: bool
) -> None:
    """Print a table: without ``wide`` the first six columns that are not empty, in 80 characters.

    The first ``left`` columns hold names: the last of them is folded where the line would be too long.
    """
    names = [name for name, cell in columns.items() if any(map(cell, rows))]
    shown = names if wide else names[:_MOST]
    heads = [name if i < left or wide else _in_two_lines(name) for i, name in enumerate(shown)]
    cells = [[columns[name](row) for name in shown] for row in rows]
    table = screen.table(*heads, rows=cells)
    excess = to.measure(table, options=to.options.update(max_width=_UNLIMITED)).maximum - _WIDTH
    if excess > 0 and not wide:
        longest = max(len(row[left - 1]) for row in cells)
        cells = [[*row[: left - 1], _folded(row[left - 1], longest - excess), *row[left:]] for row in cells]
        table = screen.table(*heads, rows=cells)
    for i, column in enumerate(table.columns):
        column.no_wrap = True
        column.justify = "left" if i < left else "right"
    to.print(table, soft_wrap=False)
    if len(names) > len(shown):
        to.print(f"--wide also shows: {', '.join(names[_MOST:])}")


def _in_two_lines(header: str) -> str:
    before, _, last = header.rpartition(" ")
    return f"{before}\n{last}"


def _folded(name: str, width: int) -> str:
    """Break a name after its signs + : / and blanks, so that the lines have ``width`` if that can be."""
    lines = [""]
    for part in re.findall(r"[^+:/ ]*[+:/ ]*", name):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)
