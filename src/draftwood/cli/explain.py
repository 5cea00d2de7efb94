"""``draftwood explain``: why each step drafted as much as it did, in recorded answers or in one written now."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from draftwood.cli import options, screen
from draftwood.cli.answering import Answering, lossy_note, recorded
from draftwood.cli.given import Given, Loaded, refuse_plain
from draftwood.cli.prompt import as_asked, only, read_prompt, read_system
from draftwood.errors import UsageError

if TYPE_CHECKING:
    from draftwood.measure.records.records import Answer, Row


_OF_ROWS = ("rows", "live", "answer", "step", "as_json")


@options.shared
def explain(
    call: typer.Context,
    given: Given,
    rows: Annotated[
        str | None,
        Argument(
            metavar="RECORDS|PROMPT",
            help="A file that generate or bench wrote with -o; with --live a prompt, as generate takes it.",
        ),
    ] = None,
    live: Annotated[bool, Option("--live", help="Answer the prompt now, and explain the answer.")] = False,
    answer: Annotated[
        int | None,
        Option(
            "--answer", min=0, metavar="N", help="Explain this answer of RECORDS step by step; the first is 0."
        ),
    ] = None,
    step: Annotated[
        int | None,
        Option("--step", min=1, metavar="K", help="Show all that is known of one step; the first is 1."),
    ] = None,
    chat: options.Chat = None,
    system: options.System = None,
    as_json: options.Json = False,
) -> None:
    """Say why each step drafted as much as it did."""
    if not live:
        if rows is None:
            raise UsageError(
                "explain takes a file of records, or with --live a prompt (in quotes): give one of them"
            )
        for name, flag in options.given_flags(call):
            if name not in _OF_ROWS:
                raise UsageError(f"{flag} is for an answer written now: give it with --live")
        _explain_records(Path(rows), answer, step, as_json)
        return
    if answer is not None:
        raise UsageError("--answer names an answer of a file: leave it out with --live")
    system = read_system(system, chat)
    refuse_plain(given.drafters, given.planner, "explain says why so much was drafted")
    text = read_prompt(only(rows, None, None))
    loaded = given.load()
    _explain_live(loaded, as_asked(text, loaded.tokenizer, chat, system, quiet=as_json), step, as_json)


def _explain_records(path: Path, number: int | None, step: int | None, as_json: bool) -> None:
    from draftwood.measure.report.reading import explainable
    from draftwood.measure.report.steps import TokenTexts

    answers = explainable(path)
    shown = [a for a in answers if number in (None, a.id)]
    if not shown:
        known = f"its answers have numbers {answers[0].id} to {answers[-1].id}"
        raise UsageError(f"{path} has no drafted answer {number}: {known}")
    if step is not None and len(shown) > 1:
        raise UsageError(f"{path} holds {len(answers)} answers: say with --answer which one's step {step}")
    rules = {one.rule or options.RULE_DEFAULT for one in shown}
    ruled = {"rule": rules.pop() if len(rules) == 1 else None, "lossy": any(one.rule for one in shown)}
    _show(shown, step, as_json, TokenTexts(answers).text, ruled)


def _explain_live(loaded: Loaded, content: Any, step: int | None, as_json: bool) -> None:
    from draftwood.verify.load import label, load

    rule = load(loaded.given.rule)
    ruled = {"rule": label(rule), "lossy": rule.lossy}
    answering = Answering(loaded, content, "nothing" if as_json else "all")
    interrupted = answering.write(trace=True)
    answering.end()
    if not as_json:
        screen.say()
        if answering.generation is not None and ruled["lossy"]:
            screen.say(lossy_note(answering.generation.rule), file=sys.stderr)
    if answering.generation is not None and answering.generation.steps:
        _show([recorded(loaded, answering.generation)], step, as_json, screen.shower(loaded.tokenizer), ruled)
    else:
        nothing = "nothing to explain: no pass was made beyond reading the prompt"
        document = {**ruled, "arms": [], "answer": None, "steps": []}
        screen.finish(document, lambda: screen.say(nothing), as_json=as_json)
    if interrupted:
        raise typer.Exit(130)


def _show(
    answers: Sequence[Answer], step: int | None, as_json: bool, text: Callable[[int], str], ruled: Row
) -> None:
    """Show one step, one answer, or what the answers of each arm amount to; ``ruled`` is said in JSON only."""
    from draftwood.cli import explain_tables
    from draftwood.measure.report.sentences import arms
    from draftwood.measure.report.steps import steps_of

    answer = answers[0] if len(answers) == 1 else None
    steps = steps_of(answer) if answer is not None else None
    if answer is not None and steps is not None and step is not None:
        if step > len(steps):
            raise UsageError(f"there is no step {step}: the answer's steps have numbers 1 to {len(steps)}")
        found = steps[step - 1]
        screen.finish(ruled | found, lambda: explain_tables.show_step(found, answer, text), as_json=as_json)
        return
    told = arms(answers)

    def show() -> None:
        explain_tables.show_arms(told)
        if answer is not None and steps is not None:
            explain_tables.show_steps(steps, answer)
        else:
            explain_tables.show_answers(answers)

    document = {**ruled, "arms": told, "answer": answer.id if answer else None, "steps": steps}
    screen.finish(document, show, as_json=as_json)
