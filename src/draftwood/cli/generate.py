"""``draftwood generate``: one answer, coloured by where each token came from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftwood.cli import options, places
from draftwood.cli.options import Given, Loaded

if TYPE_CHECKING:
    from draftwood.api.generation import Generation
    from draftwood.measure.compare import Comparison

PromptText = Annotated[
    str, typer.Argument(metavar="PROMPT|@FILE|-", help="The prompt, a file with it, or - for standard input.")
]
Compare = Annotated[bool, typer.Option("--compare", help="Time plain against drafted, in turns.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="ROWS.jsonl[.zst]", help="Append the answer and its steps to a rows file."
    ),
]
Rounds = Annotated[int | None, typer.Option(min=2, help="Runs of each arm with --compare. [default: 2]")]
ShowIterations = Annotated[
    bool, typer.Option("--show-iterations", help="Show pass by pass how the guesses of jacobi become the text.")
]


@options.shared
def generate(
    call: typer.Context,
    prompt: PromptText,
    given: Given,
    chat: options.Chat = None,
    system: options.System = None,
    compare: Compare = False,
    rounds: Rounds = None,
    show_iterations: ShowIterations = False,
    output: Output = None,
    as_json: options.Json = False,
) -> None:
    """Answer a prompt, coloured by where each token came from."""
    from draftwood.cli.prompt import as_asked, check_chat, read_prompt

    check_chat(chat, system)
    _check_compare(given, compare, rounds, output)
    if show_iterations:
        given = _for_iterations(call, given, compare or as_json)
    text = read_prompt(prompt)
    places.check_rows(output, "generate")
    loaded = given.load(text)
    content = as_asked(text, loaded.tokenizer, chat, system, quiet=as_json)
    answer = _Answer(given, loaded, content, quiet=as_json)
    kept = _Kept(output, given, loaded) if output is not None else None
    trace = show_iterations or kept is not None
    interrupted = answer.compare(rounds or 2) if compare else answer.write(trace=trace)
    if kept is not None and answer.generation is not None and answer.generation.ids:
        kept.add(content, answer.generation)
    if as_json:
        if answer.generation is not None:
            found = {"chat": not isinstance(content, str)}
            print(json.dumps(document(answer.generation, answer.comparison, given) | found))
    else:
        answer.finish(iterations=show_iterations)
    if interrupted:
        raise typer.Exit(130)


def _check_compare(given: Given, compare: bool, rounds: int | None, output: Path | None) -> None:
    from draftwood.errors import UsageError

    if rounds is not None and not compare:
        raise UsageError("--rounds counts the runs of a comparison: give --compare as well")
    if output is not None and compare:
        raise UsageError("--output keeps one answer, and --compare writes several: draftwood bench keeps them all")
    if compare:
        options.refuse_plain(given.drafters, given.planner, "--compare times drafts against plain decoding")


def _for_iterations(call: typer.Context, given: Given, unseen: bool) -> Given:
    """Return the flags with the planner that shows the guesses best."""
    from draftwood.cli.iterations import planner_for
    from draftwood.errors import UsageError

    if unseen:
        raise UsageError(
            "--show-iterations shows one answer to people: leave out --compare and --json "
            "(--output keeps the tree of each step in a file)"
        )
    return replace(given, planner=planner_for(call, given.drafters, given.planner))


class _Answer:
    """The answer under way; what was produced survives an interrupt."""

    def __init__(self, given: Given, loaded: Loaded, content: Any, *, quiet: bool) -> None:
        from draftwood.cli.render import Writer

        self.generation: Generation | None = None
        self.comparison: Comparison | None = None
        self._given, self._loaded, self._content = given, loaded, content
        self._writer = None if quiet else Writer(loaded.names)

    def write(self, *, trace: bool) -> bool:
        """Write the answer; returns whether it was interrupted."""
        from draftwood.cli.answering import write

        settings = self._given.settings | {"trace": trace}
        self.generation, interrupted = write(self._loaded, self._content, settings, self._writer)
        return interrupted

    def compare(self, rounds: int) -> bool:
        """Write the answer several times, plainly and drafted; returns whether it was interrupted."""
        from draftwood.cli.render import Rounds
        from draftwood.measure.compare import Comparison, compare

        self.comparison = Comparison()
        interrupted = False
        with Rounds(rounds, self._writer) as progress:
            try:
                compare(
                    self._loaded.model, self._content, rounds=rounds, into=self.comparison,
                    on_round=progress.begin, on_piece=progress.piece,
                    **self._loaded.objects, **self._given.settings,
                )  # fmt: skip
            except KeyboardInterrupt:
                interrupted = True
        self.generation = next(iter(self.comparison.drafted), None)
        return interrupted

    def finish(self, *, iterations: bool) -> None:
        """Write the rest of the text, the iterations if they are asked for, legend and summary."""
        from draftwood.cli.iterations import print_iterations
        from draftwood.cli.render import people, print_flow, print_summary, verdict

        if self.generation is None or self._writer is None:
            return
        self._writer.end(self.generation.text)
        if not self.generation.ids:  # interrupted while the prompt was read
            return
        to = people()
        if iterations:
            print_iterations(to, self.generation, self._loaded.names, self._loaded.tokenizer)
        print_summary(to, self.generation, self._loaded.names)
        if self.comparison is not None and self.comparison.rounds:
            print_flow(to, verdict(self.comparison).split(", "), ", ")


_WAIT = 60.0  # seconds for other processes that append to the same file


class _Kept:
    """The rows file that answers are appended to; looked at before any is written: a bad one costs nothing."""

    def __init__(self, path: Path, given: Given, loaded: Loaded) -> None:
        from draftwood.api.user_texts import UserTexts
        from draftwood.measure.records.provenance import provenance
        from draftwood.measure.records.records import header
        from draftwood.measure.records.writer import RecordsWriter

        settings = {"model": given.model, "dtype": given.dtype}
        self._given, self._loaded = given, loaded
        # Not among the settings, which must stay the same in a file: a memory is another one after each answer.
        said = UserTexts(**loaded.sources).said()
        here = provenance(**settings) | ({"sources": said} if said else {})
        self._path, self._header = path, header("generate", settings, here)
        RecordsWriter(path, self._header, wait=_WAIT).close()

    def add(self, content: Any, generation: Generation) -> None:
        """Append one answer."""
        from draftwood.api.prompts import as_ids
        from draftwood.measure.records.records import Answer, sampling_said
        from draftwood.measure.records.texts import token_texts
        from draftwood.measure.records.writer import RecordsWriter

        # Opened again, since others may have appended answers while this one was written.
        writer = RecordsWriter(self._path, self._header, wait=_WAIT)
        tokenizer, number, steps = self._loaded.tokenizer, writer.next_id, generation.steps
        prompt_ids = as_ids(content, tokenizer)
        request = self._loaded.request(self._given, prompt_ids)
        writer.answer(Answer(
            number, "generate", f"answer {number}", self._given.label, drafters=self._loaded.names,
            planner=self._given.planner, prompt_ids=prompt_ids, output_ids=generation.ids, steps=steps,
            pieces=token_texts(generation.ids, tokenizer), prompt_pieces=token_texts(prompt_ids, tokenizer),
            finish_reason=generation.finish_reason, seed=generation.seed, limit=request.limit,
            sampling=sampling_said(request.sampling),
            prefill_s=generation.prefill_s, decode_s=sum(step.seconds for step in steps),
        ))  # fmt: skip
        writer.close()


def document(generation: Generation, comparison: Comparison | None, given: Given) -> dict[str, Any]:
    """Return what ``--json`` prints; the words are those of docs/words.md."""
    rates = generation.stats
    found: dict[str, Any] = {
        "model": given.model,
        "drafters": given.label,
        "planner": given.planner,
        "text": generation.text,
        "finish_reason": generation.finish_reason,
        "seed": generation.seed,
        "identical": comparison.identical if comparison else None,
        "speedup": comparison.speedup if comparison else None,
        "mean_acceptance_length": rates.mean_acceptance_length,
        "drafted_step_acceptance_length": rates.drafted_step_acceptance_length,
        "acceptance_rate": rates.acceptance_rate,
        "accepted_per_cycle": rates.accepted_per_cycle,
        "draft_coverage": rates.draft_coverage,
        "tokens_per_second": rates.tokens_per_second,
        "passes": rates.passes,
        "prompt_tokens": generation.prompt_tokens,
        "prefill_s": generation.prefill_s,
        "seconds": rates.seconds,
    }
    if comparison is not None:
        found |= {
            "rounds": comparison.rounds,
            "plain_seconds": comparison.plain_seconds,
            "drafted_seconds": comparison.drafted_seconds,
            "margin": comparison.margin,
        }
    return found | {
        "ids": generation.ids,
        "sources": generation.sources,
        "steps": [step.to_json() for step in generation.steps],
    }
