"""``draftwood generate``: one answer, coloured by where each token came from."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from draftwood.cli import early, options, screen
from draftwood.cli.answering import Answering, recorded
from draftwood.cli.given import Given, Loaded
from draftwood.cli.prompt import as_asked, check_chat, read_prompt
from draftwood.errors import UsageError

if TYPE_CHECKING:
    from draftwood.api.generation import Generation
    from draftwood.measure.compare import Comparison

PromptText = Annotated[
    str, Argument(metavar="PROMPT|@FILE|-", help="The prompt, a file with it, or - for standard input.")
]
Compare = Annotated[bool, Option("--compare", help="Time plain against drafted, in turns.")]
Output = Annotated[
    Path | None,
    Option("--output", "-o", metavar="RECORDS.jsonl[.zst]", help="Append the answer and its steps to this file."),
]
Rounds = Annotated[int | None, Option(min=2, help="Runs of each arm with --compare. [default: 2]")]
ShowIterations = Annotated[
    bool, Option("--show-iterations", help="Show pass by pass how the guesses of jacobi become the text.")
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
    check_chat(chat, system)
    _check_compare(given, compare, rounds, output)
    if show_iterations:
        from draftwood.cli.iterations import for_iterations

        given = for_iterations(call, given, unseen=compare or as_json)
    text = read_prompt(prompt)
    early.check_rows(output, "generate")
    loaded = given.load(text)
    content = as_asked(text, loaded.tokenizer, chat, system, quiet=as_json)
    answer = Answering(loaded, content, quiet=as_json)
    kept = _Kept(output, loaded) if output is not None else None
    trace = show_iterations or kept is not None
    interrupted = answer.compare(rounds or 2) if compare else answer.write(trace=trace)
    found = answer.generation
    if found is None:  # interrupted before there was any
        raise typer.Exit(130)
    if kept is not None and found.ids:
        kept.add(content, found)
    shown = document(found, answer.comparison, given) | {"chat": not isinstance(content, str)} if as_json else None
    show = partial(answer.finish, iterations=show_iterations)
    screen.finish(shown, show, as_json=as_json, interrupted=interrupted)


def _check_compare(given: Given, compare: bool, rounds: int | None, output: Path | None) -> None:
    if rounds is not None and not compare:
        raise UsageError("--rounds counts the runs of a comparison: give --compare as well")
    if output is not None and compare:
        raise UsageError("--output keeps one answer, and --compare writes several: draftwood bench keeps them all")
    if compare:
        options.refuse_plain(given.drafters, given.planner, "--compare times drafts against plain decoding")


_WAIT = 60.0  # seconds for other processes that append to the same file


class _Kept:
    """The records file that answers are appended to; checked before any is written."""

    def __init__(self, path: Path, loaded: Loaded) -> None:
        from draftwood.api.user_texts import UserTexts
        from draftwood.measure.records.provenance import provenance
        from draftwood.measure.records.records import header
        from draftwood.measure.records.writer import RecordsWriter

        settings = {"model": loaded.given.model, "dtype": loaded.given.setting_of(loaded.model).dtype}
        # Not among the settings, which must stay the same in a file: a memory is another one after each answer.
        said = UserTexts(**loaded.given.sources).said()
        here = provenance(**settings) | ({"sources": said} if said else {})
        self._open = partial(RecordsWriter, path, header("generate", settings, here), wait=_WAIT)
        self._open().close()
        self._loaded = loaded

    def add(self, content: Any, generation: Generation) -> None:
        from draftwood.api.prompts import as_ids
        from draftwood.measure.records.records import sampling_said, token_texts

        writer = self._open()  # again, since others may have appended answers while this one was written
        tokenizer, number = self._loaded.tokenizer, writer.next_id
        prompt_ids = as_ids(content, tokenizer)
        request = self._loaded.request(prompt_ids)
        writer.answer(recorded(
            self._loaded, generation, number, "generate", f"answer {number}", prompt_ids=prompt_ids,
            prompt_pieces=token_texts(prompt_ids, tokenizer), limit=request.limit,
            sampling=sampling_said(request.sampling), prefill_s=generation.prefill_s,
            decode_s=sum(step.seconds for step in generation.steps),
        ))  # fmt: skip
        writer.close()


_RATES = (
    "mean_acceptance_length", "drafted_step_acceptance_length", "acceptance_rate", "accepted_per_cycle",
    "draft_coverage", "tokens_per_second", "passes",
)  # fmt: skip


def document(generation: Generation, comparison: Comparison | None, given: Given) -> dict[str, Any]:
    """Return what ``--json`` prints; the words are those of docs/words.md."""
    rates = generation.stats
    found: dict[str, Any] = {
        "model": given.model,
        "weights": given.weights,
        "drafters": given.label,
        "planner": given.planner,
        "rule": generation.rule,
        "lossy": generation.lossy,
        **{name: getattr(generation, name) for name in ("text", "finish_reason", "seed")},
        **{name: getattr(comparison, name, None) for name in ("identical", "speedup")},
        **{name: getattr(rates, name) for name in _RATES},
        "prompt_tokens": generation.prompt_tokens,
        "prefill_s": generation.prefill_s,
        "seconds": rates.seconds,
    }
    if comparison is not None:
        timed = ("rounds", "plain_seconds", "drafted_seconds", "margin")
        found |= {name: getattr(comparison, name) for name in timed}
    return found | {
        "ids": generation.ids,
        "sources": generation.sources,
        "steps": [step.to_json() for step in generation.steps],
    }
