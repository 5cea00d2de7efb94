"""``draftwood probe``: counts how often a drafter would have been right, decoding unchanged."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from draftwood.cli import early, measuring, options, screen
from draftwood.errors import UsageError
from draftwood.measure.records.provenance import provenance

if TYPE_CHECKING:
    from draftwood.api.setup import Setup
    from draftwood.drafters.lookup.drafter import LookupDrafter
    from draftwood.measure.prompt_files import Job
    from draftwood.measure.records.records import Answer

PromptIds = Annotated[
    Path | None, Option(metavar="FILE", help="Prompts as token ids, one per line, commas or spaces between.")
]
Suite = Annotated[
    str | None, Option(metavar="NAME", help="code (five prompts of code), or a task as chat. [default: code]")
]
NgramMin = Annotated[int, Option(min=1, help="Fewest tokens that must match.")]
NgramMax = Annotated[int, Option(min=1, help="Most tokens that are looked for.")]
Trace = Annotated[
    Path | None, Option(metavar="OUT.jsonl[.zst]", help="Write prompts and answers here, to be replayed.")
]
Text = Annotated[bool, Option("--text", help="Keep text in the trace, not only token ids.")]


@options.shared
def probe(
    loading: options.Loading,
    prompts: measuring.Prompts = None,
    chat: options.Chat = None,
    prompt_ids_file: PromptIds = None,
    suite: Suite = None,
    limit: measuring.Limit = None,
    ngram_min: NgramMin = 2,
    ngram_max: NgramMax = 8,
    max_new_tokens: measuring.MaxNewTokens = 64,
    trace: Trace = None,
    text: Text = False,
    force: early.Force = False,
    output: measuring.RecordsOut = None,
    as_json: options.Json = False,
) -> None:
    """Count how often a proposal would have been right, decoding unchanged."""
    from draftwood.api.setup import Setup
    from draftwood.drafters.lookup.drafter import LookupDrafter

    if ngram_min > ngram_max:
        raise UsageError(f"--ngram-min {ngram_min} is above --ngram-max {ngram_max}: give a smaller one")
    if trace is not None:
        early.check_place(trace, force, "--trace")
    early.check_rows(output, "probe")
    drafter = LookupDrafter(max_ngram=ngram_max, min_ngram=ngram_min, length=1)
    jobs = _jobs(prompts, prompt_ids_file, suite, limit, chat)
    own = prompts is not None
    loaded, tokenizer, jobs = measuring.load(loading, jobs, chat, own=own, quiet=as_json)
    run = _Run(loading, Setup(loaded, tokenizer, "none", options.PLANNER_DEFAULT), drafter, max_new_tokens)
    with screen.progress() as bar, screen.CtrlC() as stop:
        run.answer(jobs, output, bar)
    if trace is not None and run.answers:
        run.write_trace(trace, text)
    document = run.document() | {"interrupted": stop.pressed}
    screen.finish(document, lambda: _show(document), as_json=as_json, interrupted=stop.pressed)


def _jobs(
    prompts: Path | None, ids: Path | None, suite: str | None, limit: int | None, chat: bool | None
) -> list[Job]:
    from draftwood.measure.prompt_files import read_prompt_ids

    if sum(given is not None for given in (prompts, ids, suite)) > 1:
        raise UsageError("--prompts, --prompt-ids-file and --suite each name the prompts: give one of them")
    if ids is not None:
        if chat is not None:
            raise UsageError("--chat and --raw are for prompts of text (--prompts): token ids stay as they are")
        return read_prompt_ids(ids)[:limit]
    if prompts is not None:
        return measuring.jobs_of(None, prompts, limit, chat)
    names = {None: "code-suite", "code": "code-suite"}.get(suite, suite)
    return measuring.jobs_of(names, None, limit, chat)


class _Run:
    """The answers so far."""

    def __init__(
        self, loading: options.Loading, setup: Setup, drafter: LookupDrafter, max_new_tokens: int
    ) -> None:
        self._setup, self._drafter, self._limit = setup, drafter, max_new_tokens
        setting = loading.setting_of(setup.model)
        self._here = provenance(model=loading.model, dtype=setting.dtype, threads=setting.threads)
        self._settings: dict[str, Any] = {
            "model": loading.model, "dtype": setting.dtype, "threads": setting.threads,
            "max_new_tokens": max_new_tokens,
            "ngram_min": drafter.min_ngram, "ngram_max": drafter.max_ngram,
        }  # fmt: skip
        self.answers: list[Answer] = []

    def answer(self, jobs: list[Job], output: Path | None, bar: Any) -> None:
        """Probe every prompt; an interrupted answer is counted and shown, but a file holds whole ones only."""
        from draftwood.measure.probe import probe
        from draftwood.measure.records.records import Answer, header, token_texts
        from draftwood.measure.records.writer import RecordsWriter

        settings = {"max_new_tokens": self._limit, "temperature": 0.0, "seed": 0}
        # Prompts that cannot be answered are refused before any is answered.
        requests = [job.request(self._setup, **settings) for job in jobs]
        writer = RecordsWriter(output, header("probe", self._settings, self._here))
        self.answers = writer.records.answers
        done = {answer.key for answer in self.answers}
        arm = f"lookup:min_ngram={self._drafter.min_ngram}:max_ngram={self._drafter.max_ngram}"
        with closing(writer):
            for number, (job, request) in enumerate(zip(jobs, requests, strict=True)):
                writer.refuse_another_prompt(job.task, job.name, request.prompt)
                if (job.task, job.name, arm, 0) in done:
                    continue
                bar(number, len(jobs), f"{job.task} {job.name}")
                answer = Answer(writer.next_id, job.task, job.name, arm, planner="silent", limit=request.limit)
                try:
                    probe(self._setup.target, self._drafter, request, answer)
                except KeyboardInterrupt:
                    self.answers.append(answer)
                    raise
                answer.pieces = token_texts(answer.output_ids, self._setup.tokenizer)
                answer.prompt_pieces = token_texts(answer.prompt_ids, self._setup.tokenizer)
                writer.answer(answer)

    def write_trace(self, path: Path, text: bool) -> None:
        from draftwood.api.prompts import decoder
        from draftwood.measure.records.traces import Trace, write_traces

        decode = decoder(self._setup.tokenizer)
        traces = []
        for answer in self.answers:
            ids = (answer.prompt_ids, answer.output_ids)
            words = map(decode, ids) if text else ()
            if answer.output_ids:
                traces.append(Trace(answer.task, answer.name, *ids, answer.limit, answer.finish_reason, *words))
        write_traces(path, traces, self._here, self._setup.tokenizer)

    def document(self) -> dict[str, Any]:
        """Return the counts of every prompt, and of all together."""
        from draftwood.measure.probe import ProbeCounts

        each = [{"task": a.task, "name": a.name, **ProbeCounts.of([a]).to_json()} for a in self.answers]
        return {**self._settings, "prompts": each, **ProbeCounts.of(self.answers).to_json()}


def _show(document: dict[str, Any]) -> None:
    to = screen.console()
    words = ("targets", "proposals", "accepted", "proposal_rate", "acceptance_rate", "accepted_per_target")
    table = screen.table("prompt", *words)
    for row in document["prompts"]:
        table.add_row(f"{row['task']} {row['name']}", *_cells(row))
    table.add_row("total", *_cells(document))
    for row in document["per_n"]:
        table.add_row(f"of these n = {row['n']}", *_cells(row))
    to.print(table, soft_wrap=False)
    to.print(
        "targets: tokens that decoding wrote; proposals: those for which the text had a continuation to offer; "
        "accepted: it was the token. Passes that a verifier needs: draftwood probe --trace, draftwood simulate."
    )


def _cells(row: dict[str, Any]) -> list[str]:
    counts = [str(row[name]) for name in ("targets", "proposals", "accepted")]
    rates = ("proposal_rate", "acceptance_rate", "accepted_per_target")
    return counts + [screen.number(row[name], 3) for name in rates]
