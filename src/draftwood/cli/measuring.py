"""What the measuring verbs share: where prompts come from, where rows go, progress, cells of tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from draftwood.measure.prompt_files import Job

_MINUTE = 60.0

RecordsOut = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="ROWS.jsonl[.zst]",
        help="Keep every answer and step here; resumes what it holds.",
    ),
]
Prompts = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Your own prompts: JSONL, or text with blank lines between.")
]
Arms = Annotated[str, typer.Option(metavar="ARM,ARM", help="Arms to compare: suffix,suffix+lookup:length=8.")]
MaxNewTokens = Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Most prompts per task.")]


def jobs_of(tasks: str | None, prompts: Path | None, limit: int | None, chat: bool | None = None) -> list[Job]:
    """Return the prompts that the flags name; all tasks where they name none.

    Raises
    ------
    UsageError
        For flags that contradict each other, and settings of a prompt that no model could follow.
    """
    from draftwood.cli.early import check_sampling
    from draftwood.errors import UsageError
    from draftwood.measure.prompt_files import read_prompts, task_jobs
    from draftwood.tasks import KINDS

    if tasks is not None and prompts is not None:
        raise UsageError("--tasks names prompts of draftwood, --prompts your own: give one of them")
    if prompts is None:
        if chat is not None:
            raise UsageError("--chat and --raw are for prompts of your own (--prompts): tasks say it themselves")
        return task_jobs(",".join(KINDS) if tasks is None else tasks, limit)
    counts: dict[str, int] = {}
    kept = []
    for job in read_prompts(prompts):
        counts[job.task] = counts.get(job.task, 0) + 1
        try:
            check_sampling(job.sampling)
        except UsageError as error:
            raise UsageError(f"{prompts}, {job.name}: {error}") from error
        if limit is None or counts[job.task] <= limit:
            kept.append(job)
    return kept


def check_jobs(jobs: list[Job], model: str) -> None:
    """Refuse prompts of text that are too long for a model, before its weights are read."""
    from draftwood.cli.early import check_lengths

    check_lengths(model, {f"{job.task} {job.name}": job.prompt for job in jobs if isinstance(job.prompt, str)})


def as_asked(jobs: list[Job], own: bool, tokenizer: Any, chat: bool | None, *, quiet: bool) -> list[Job]:
    """Return the prompts; of a user's ``own``, texts go through the model's chat template where it has one.

    Prompts of tasks stay as they are, so that figures can be compared.
    """
    from draftwood.cli import prompt

    texts = own and any(isinstance(job.prompt, str) for job in jobs)
    if not texts or chat is False or (chat is None and not getattr(tokenizer, "chat_template", None)):
        return jobs
    if chat is None and not quiet:
        prompt.say_template()
    return [
        replace(job, prompt=prompt.as_asked(job.prompt, tokenizer, True)) if isinstance(job.prompt, str) else job
        for job in jobs
    ]


@contextmanager
def progress() -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar on standard error, elsewhere a line a minute; yields (done, all, what comes now) -> None."""
    if not sys.stderr.isatty():
        yield _line_a_minute()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from draftwood.cli.render import console

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        line = bar.add_task("")
        yield lambda done, total, what: bar.update(line, completed=done, total=total, description=what)


def _line_a_minute() -> Callable[[int, int, str], None]:
    said = monotonic()

    def say(done: int, total: int, what: str) -> None:
        nonlocal said
        if monotonic() - said > _MINUTE:
            said = monotonic()
            print(f"{done} of {total}, {what}", file=sys.stderr, flush=True)

    return say


def plain_table(first: str, *columns: str, last: str | None = None) -> Table:
    """Return a table without lines: names to the left, numbers to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    if last is not None:
        table.add_column(last)
    return table


def number(value: float | None, digits: int = 2, factor: float = 1.0) -> str:
    """Format a number for a cell; nothing for None."""
    return "" if value is None else f"{factor * value:.{digits}f}"


def percent(value: float | None) -> str:
    """Format a share for a cell."""
    return "" if value is None else f"{100 * value:.0f} %"


def planner_of(planner: str | None, draft: int | None, default: str) -> str:
    """Return the planner that ``--planner`` or ``--draft`` means."""
    from draftwood.errors import UsageError

    if planner is not None and draft is not None:
        raise UsageError(f"--draft {draft} means --planner fixed:{draft}: give one of them")
    return f"fixed:{draft}" if draft is not None else planner or default


def torch_threads(threads: int | None) -> int | None:
    """Return the threads in use once torch is loaded."""
    torch: Any = sys.modules.get("torch")
    return torch.get_num_threads() if torch else threads
