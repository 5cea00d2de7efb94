"""What the measuring verbs share: where prompts come from, where records go."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from draftwood.cli import early, options, prompt
from draftwood.errors import UsageError

if TYPE_CHECKING:
    from draftwood.measure.prompt_files import PromptJob

RecordsOut = Annotated[
    Path | None,
    Option(
        "--output",
        "-o",
        metavar="RECORDS.jsonl[.zst]",
        help="Keep every answer and step in this file; if it has some already, go on from there.",
    ),
]
Prompts = Annotated[
    Path | None,
    Option(
        metavar="FILE", help="Your own prompts: a JSONL file, or a text file with blank lines between prompts."
    ),
]
Arms = Annotated[str, Option(metavar="ARM,ARM", help="Sets to compare: ngram,ngram+lookup:length=8.")]
MaxNewTokens = Annotated[int, Option("--max-new-tokens", "-n", min=1, help="Most tokens of an answer.")]
Limit = Annotated[int | None, Option(min=1, help="Most prompts per task.")]


def jobs_of(
    tasks: str | None, prompts: Path | None, limit: int | None, chat: bool | None = None
) -> list[PromptJob]:
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
    loading: options.Loading, jobs: list[PromptJob], chat: bool | None, *, own: bool, quiet: bool
) -> tuple[Any, Any, list[PromptJob]]:
    """Load a model for these prompts; returns model, tokenizer, prompts as asked.

    Prompts of a user's ``own`` that are text go through the model's chat template, if it has one.
    """
    model, tokenizer = loading.load_model()
    texts = own and any(isinstance(job.prompt, str) for job in jobs)
    if texts and prompt.in_template(tokenizer, chat, quiet=quiet):
        jobs = [
            replace(job, prompt=prompt.as_asked(job.prompt, tokenizer, True))
            if isinstance(job.prompt, str)
            else job
            for job in jobs
        ]
    return model, tokenizer, jobs
