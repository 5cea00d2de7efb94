"""``draftwood simulate --live``: a model answers plainly, and a probe counts what copying had offered."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from draftwood.cli import early, measuring, options, screen
from draftwood.errors import UsageError
from draftwood.measure.records.provenance import provenance
from draftwood.measure.wording import number

if TYPE_CHECKING:
    from rich.console import Console

    from draftwood.api.setup import Setup
    from draftwood.drafters.lookup.drafter import LookupDrafter
    from draftwood.measure.prompt_files import Job
    from draftwood.measure.records.records import Answer
    from draftwood.measure.records.traces import Trace

_SUITE = "code-suite"  # five prompts of unfinished code


@dataclass(frozen=True)
class LiveFlags:
    """What is answered, and what is kept."""

    tasks: Annotated[
        str | None, Option(metavar="TASK,TASK", help="With --live: kinds of prompts. [default: code-suite]")
    ] = None
    prompts: measuring.Prompts = None
    chat: options.Chat = None
    prompt_ids_file: Annotated[
        Path | None,
        Option(metavar="FILE", help="With --live: prompts as token ids, one per line."),
    ] = None
    limit: measuring.Limit = None
    ngram_min: Annotated[int, Option(min=1, help="With --live: fewest tokens that must match.")] = 2
    ngram_max: Annotated[int, Option(min=1, help="With --live: most tokens that are looked for.")] = 8
    max_new_tokens: measuring.MaxNewTokens = 64
    trace: Annotated[
        Path | None, Option(metavar="OUT.jsonl[.zst]", help="With --live: keep the answers here, to be replayed.")
    ] = None
    text: Annotated[bool, Option("--text", help="Keep text in the trace, not only token ids.")] = False
    force: early.Force = False

    def jobs(self) -> list[Job]:
        """Return the prompts that the flags name."""
        from draftwood.measure.prompt_files import read_prompt_ids

        if sum(given is not None for given in (self.prompts, self.prompt_ids_file, self.tasks)) > 1:
            raise UsageError("--tasks, --prompts and --prompt-ids-file each name the prompts: give one of them")
        if self.prompt_ids_file is None:
            tasks = self.tasks or (None if self.prompts else _SUITE)
            return measuring.jobs_of(tasks, self.prompts, self.limit, self.chat)
        if self.chat is not None:
            raise UsageError("--chat and --raw are for prompts of text (--prompts): token ids stay as they are")
        return read_prompt_ids(self.prompt_ids_file)[: self.limit]

    def drafter(self) -> LookupDrafter:
        """Return the drafter that the probe asks: it copies what followed the longest match in the text."""
        from draftwood.drafters.lookup.drafter import LookupDrafter

        least, most = self.ngram_min, self.ngram_max
        if least > most:
            raise UsageError(f"--ngram-min {least} is above --ngram-max {most}: give a smaller one")
        return LookupDrafter(max_ngram=most, min_ngram=least, length=1)


def write(loading: options.Loading, asked: LiveFlags, *, quiet: bool) -> Live:
    """Let the model answer, and keep the trace; Ctrl-C before the first token leaves with exit code 130."""
    from draftwood.api.setup import Setup

    drafter, jobs = asked.drafter(), asked.jobs()
    if asked.trace is not None:
        early.check_place(asked.trace, asked.force, "--trace")
    own = asked.prompts is not None
    model, tokenizer, jobs = measuring.load(loading, jobs, asked.chat, own=own, quiet=quiet)
    found = Live(loading, Setup(model, tokenizer, "none", "off"), drafter, asked.max_new_tokens)
    with screen.progress() as bar, screen.CtrlC() as stop:
        found.write(jobs, bar)
    found.interrupted = stop.pressed
    if not found.traces:
        raise typer.Exit(130)
    if asked.trace is not None:
        found.save(asked.trace, text=asked.text)
    return found


@dataclass(slots=True)
class Live:
    """The answers so far."""

    loading: options.Loading
    setup: Setup
    drafter: LookupDrafter
    limit: int  # most tokens of an answer
    answers: list[Answer] = field(default_factory=list)
    interrupted: bool = False

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self.setup.tokenizer

    def write(self, jobs: list[Job], bar: Any) -> None:
        """Write and probe every answer; an interrupted one is counted, too."""
        from draftwood.measure.records.records import Answer
        from draftwood.measure.simulate import probe

        settings = {"max_new_tokens": self.limit, "temperature": 0.0, "seed": 0}
        # Prompts that cannot be answered are refused before any is answered.
        requests = [job.request(self.setup, **settings) for job in jobs]
        for done, (job, request) in enumerate(zip(jobs, requests, strict=True)):
            bar(done, len(jobs), f"{job.task} {job.name}")
            self.answers.append(Answer(done, job.task, job.name, "lookup", limit=request.limit))
            probe(self.setup.target, self.drafter, request, self.answers[-1])

    @property
    def traces(self) -> list[Trace]:
        """The answers, to be replayed."""
        from draftwood.measure.records.traces import Trace

        return [
            Trace(a.task, a.name, a.prompt_ids, a.output_ids, a.limit, a.finish_reason)
            for a in self.answers
            if a.output_ids
        ]

    def save(self, path: Path, *, text: bool) -> None:
        """Write the answers as a trace; with ``text`` not only their token ids."""
        from dataclasses import replace

        from draftwood.api.prompts import decoder
        from draftwood.measure.records.traces import write_traces

        decode, traces = decoder(self.setup.tokenizer), self.traces
        if text:
            traces = [replace(t, prompt=decode(t.prompt_ids), output=decode(t.output_ids)) for t in traces]
        setting = self.loading.setting_of(self.setup.model)
        here = provenance(model=self.loading.model, dtype=setting.dtype, threads=setting.threads)
        write_traces(path, traces, here, self.setup.tokenizer)

    def document(self) -> dict[str, Any]:
        """Return the counts of every prompt, and of all together."""
        from draftwood.measure.simulate import ProbeCounts

        setting = self.loading.setting_of(self.setup.model)
        each = [{"task": a.task, "name": a.name, **ProbeCounts.of([a]).to_json()} for a in self.answers]
        return {
            "model": self.loading.model, "dtype": setting.dtype, "threads": setting.threads,
            "max_new_tokens": self.limit, "ngram_min": self.drafter.min_ngram, "ngram_max": self.drafter.max_ngram,
            "prompts": each, **ProbeCounts.of(self.answers).to_json(),
        }  # fmt: skip


def show(to: Console, found: dict[str, Any], *, wide: bool) -> None:
    """Print what the probe counted."""
    rows = [{"prompt": f"{row['task']} {row['name']}", **row} for row in found["prompts"]]
    rows += [{"prompt": "all", **found}]
    rows += [{"prompt": f"of these n = {row['n']}", **row} for row in found["per_n"]]
    columns = {
        "prompt": lambda r: r["prompt"],
        "targets": lambda r: str(r["targets"]),
        "proposals": lambda r: str(r["proposals"]),
        "accepted": lambda r: str(r["accepted"]),
        "acceptance rate": lambda r: number(r["acceptance_rate"], 3),
        "accepted per target": lambda r: number(r["accepted_per_target"], 3),
        "proposal rate": lambda r: number(r["proposal_rate"], 3),
    }
    measuring.show_table(to, columns, rows, wide=wide)
    to.print(
        "Decoding was unchanged. Targets: tokens that decoding wrote; proposals: those for which the text had a "
        "continuation to offer; accepted: it was the token. Below, the same answers replayed with drafts."
    )
    to.print()
