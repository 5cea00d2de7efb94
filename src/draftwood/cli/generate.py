"""``draftwood generate``: one answer, coloured by where each token came from."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from draftwood.cli import early, options, screen
from draftwood.cli.answering import Answering, recorded
from draftwood.cli.given import Given, Loaded, refuse_plain
from draftwood.cli.prompt import as_asked, only, read_prompt, read_system
from draftwood.errors import UsageError
from draftwood.files.paths import is_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from draftwood.api.generation import Generation
    from draftwood.measure.compare import PlainAndDrafted
    from draftwood.measure.records.writer import RecordsWriter


@options.shared
def generate(
    call: typer.Context,
    given: Given,
    prompt: Annotated[
        str | None,
        Argument(
            metavar="PROMPT|@FILE|-",
            help="The prompt itself, @ and a file that holds it, or - for standard input. [default: that one]",
        ),
    ] = None,
    text: Annotated[str | None, Option("--prompt", "-p", metavar="PROMPT|@FILE|-", help="The same.")] = None,
    file: Annotated[
        str | None, Option("--file", "-f", metavar="FILE", help="A file that holds the prompt.")
    ] = None,
    chat: options.Chat = None,
    system: options.System = None,
    compare: Annotated[
        bool, Option("--compare", help="Answer with and without drafts by turns, and compare.")
    ] = False,
    rounds: Annotated[int | None, Option(min=2, help="How often --compare answers each way. [default: 2]")] = None,
    show_iterations: Annotated[
        bool,
        Option("--show-iterations", help="Show for each pass how the guesses of the drafter jacobi become text."),
    ] = False,
    output: Annotated[
        Path | None,
        Option(
            "--output", "-o", metavar="RECORDS.jsonl[.zst]", help="Append the answer and its steps to this file."
        ),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Answer a prompt; colours show which drafter proposed each token."""
    system = read_system(system, chat)
    if rounds is not None and not compare:
        raise UsageError("--rounds counts the runs of a comparison: give --compare as well")
    if output is not None and compare:
        raise UsageError("--output keeps one answer, and --compare writes several: draftwood bench keeps them all")
    if compare:
        refuse_plain(given.drafters, given.planner, "--compare times drafts against plain decoding")
    if show_iterations:
        from draftwood.cli.iterations import for_iterations

        given = for_iterations(call, given, unseen=compare or as_json)
    asked = read_prompt(only(prompt, text, file))
    early.check_rows(output, "generate")
    loaded = given.load()
    content = as_asked(asked, loaded.tokenizer, chat, system, quiet=as_json or quiet)
    if not compare:
        loaded = loaded.to_the_end(is_chat=not isinstance(content, str))
        if sys.stderr.isatty() and not (quiet or as_json):
            screen.say(loaded.opening, file=sys.stderr)
    answer = Answering(loaded, content, "nothing" if as_json else "text" if quiet else "all")
    writer = _writer(output, loaded) if output is not None else None
    if writer is not None and output is not None and not is_stream(output):
        writer().close()  # checked before anything is written
    trace = show_iterations or writer is not None
    interrupted = answer.compare(rounds or 2) if compare else answer.write(trace=trace)
    found = answer.generation
    if found is None:  # interrupted before there was any
        raise typer.Exit(130)
    shown = document(found, answer.comparison, given) | {"chat": not isinstance(content, str)} if as_json else None
    show = partial(answer.finish, iterations=show_iterations)
    try:
        screen.finish(shown, show, as_json=as_json, interrupted=interrupted)
    finally:
        if writer is not None and found.ids:
            _keep(writer(), loaded, content, found)  # opened again, since others may have appended meanwhile


_WAIT = 60.0  # seconds for other processes that append to the same file


def _writer(path: Path, loaded: Loaded) -> Callable[[], RecordsWriter]:
    """Return what opens the records file that answers are appended to."""
    from draftwood.api.user_texts import UserTexts
    from draftwood.measure.records.provenance import provenance
    from draftwood.measure.records.records import header
    from draftwood.measure.records.writer import RecordsWriter

    settings = {"model": loaded.given.model, "dtype": loaded.given.setting_of(loaded.model).dtype}
    # Not among the settings, which must stay the same in a file: a memory changes with each answer.
    said = UserTexts(**loaded.given.sources).said()
    here = provenance(**settings) | ({"sources": said} if said else {})
    return partial(RecordsWriter, path, header("generate", settings, here), wait=_WAIT)


def _keep(writer: RecordsWriter, loaded: Loaded, content: Any, generation: Generation) -> None:
    """Append an answer to its file."""
    from draftwood.api.prompts import as_ids
    from draftwood.measure.records.records import sampling_said, token_texts

    prompt_ids, number = as_ids(content, loaded.tokenizer), writer.next_id
    request = loaded.request(prompt_ids)
    writer.answer(recorded(
        loaded, generation, number, "generate", f"answer {number}", prompt_ids=prompt_ids,
        prompt_pieces=token_texts(prompt_ids, loaded.tokenizer), limit=request.limit,
        sampling=sampling_said(request.sampling), prefill_s=generation.prefill_s,
        decode_s=sum(step.seconds for step in generation.steps),
    ))  # fmt: skip
    writer.close()


_RATES = (
    "mean_acceptance_length", "drafted_step_acceptance_length", "acceptance_rate", "accepted_per_cycle",
    "draft_coverage", "tokens_per_second", "passes", "seconds",
)  # fmt: skip


def document(generation: Generation, comparison: PlainAndDrafted | None, given: Given) -> dict[str, Any]:
    """Return what ``--json`` prints; the words are those of docs/words.md."""
    rates = generation.stats
    timed = ("rounds", "busy", "plain_seconds", "drafted_seconds", "margin") if comparison is not None else ()
    own = ("text", "finish_reason", "seed", "rule", "lossy", "prompt_tokens", "prefill_s", "ids", "sources")
    return {
        **{name: getattr(given, name) for name in ("model", "weights", "planner")},
        "drafters": given.label,
        **{name: getattr(generation, name) for name in own},
        **{name: getattr(comparison, name, None) for name in ("identical", "speedup", *timed)},
        **{name: getattr(rates, name) for name in _RATES},
        "steps": [step.to_json() for step in generation.steps],
    }
