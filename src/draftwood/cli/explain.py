"""``draftwood explain``: why each step drafted as much as it did, of rows or of an answer written now."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftwood.cli import options
from draftwood.cli.options import Given, Loaded

if TYPE_CHECKING:
    from draftwood.api.generation import Generation
    from draftwood.measure.records.records import Answer

Records = Annotated[
    Path | None, typer.Argument(metavar="ROWS", help="A file that generate, bench or simulate wrote with -o.")
]
Live = Annotated[
    str | None,
    typer.Option(metavar="PROMPT|@FILE|-", help="Instead of ROWS: answer this prompt and explain that."),
]
AnswerNumber = Annotated[
    int | None, typer.Option("--answer", min=0, metavar="N", help="Explain this answer of ROWS, step by step.")
]
StepNumber = Annotated[
    int | None, typer.Option("--step", min=1, metavar="K", help="Show all that is known of one step, from 1.")
]
Chat = Annotated[bool, typer.Option("--chat", help="Put the prompt into the model's chat template.")]

_OF_ROWS = frozenset(("rows", "live", "answer", "step", "as_json"))


def explain(
    call: typer.Context,
    rows: Records = None,
    live: Live = None,
    answer: AnswerNumber = None,
    step: StepNumber = None,
    model: options.Model = options.MODEL_DEFAULT,
    drafters: options.Drafters = options.DRAFTERS_DEFAULT,
    planner: options.PlannerName = options.PLANNER_DEFAULT,
    prediction: options.Prediction = None,
    memory: options.Memory = None,
    corpus: options.Corpus = None,
    context: options.Context = None,
    max_new_tokens: options.MaxNewTokens = None,
    temperature: options.Temperature = 0.0,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    repetition_penalty: options.RepetitionPenalty = None,
    seed: options.Seed = None,
    stop: options.Stop = None,
    chat: Chat = False,
    system: options.System = None,
    as_json: options.Json = False,
    dtype: options.Dtype = "float32",
    threads: options.Threads = None,
    pack: options.Pack = True,
) -> None:
    """Say why each step drafted as much as it did."""
    from draftwood.errors import UsageError

    if (rows is None) == (live is None):
        raise UsageError("explain takes a file of rows, or a prompt with --live: give one of them")
    if live is None:
        _refuse_flags_of_live(call)
        if rows is not None:
            _explain_records(rows, answer, step, as_json)
        return
    if answer is not None:
        raise UsageError("--answer names an answer of a file: leave it out with --live")
    if system is not None and not chat:
        raise UsageError("--system is part of the chat template: give --chat as well")
    from draftwood.cli.prompt import read_prompt

    text = read_prompt(live)
    given = Given(
        model, drafters, planner, dtype, threads, pack, max_new_tokens,
        temperature, top_k, top_p, min_p, repetition_penalty, seed, stop,
        options.read_sources(prediction, memory, corpus, context),
    )  # fmt: skip
    turns = [("system", system)] if system is not None else []
    messages = [{"role": role, "content": said} for role, said in [*turns, ("user", text)]]
    _explain_live(given, messages if chat else text, step, as_json)


def _refuse_flags_of_live(call: typer.Context) -> None:
    """A flag of generation that a file would silently ignore is a mistake."""
    from draftwood.errors import UsageError

    for parameter in call.command.params:
        name = parameter.name or ""
        source = call.get_parameter_source(name)
        if name not in _OF_ROWS and source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"{parameter.opts[0]} is for an answer written now: give it with --live")


def _explain_records(path: Path, number: int | None, step: int | None, as_json: bool) -> None:
    from draftwood.errors import UsageError
    from draftwood.measure.explain.files import chosen, explainable
    from draftwood.measure.report.steps import Pieces

    answers = explainable(path)
    answer = chosen(path, answers, number)
    if step is not None and answer is None:
        raise UsageError(f"{path} holds {len(answers)} answers: say with --answer which one's step {step}")
    _show(answers if answer is None else [answer], answer, step, as_json, Pieces(answers).text)


def _explain_live(given: Given, content: Any, step: int | None, as_json: bool) -> None:
    loaded = given.load()
    generation, interrupted = _write(given, loaded, content, quiet=as_json)
    if generation is not None and generation.steps:
        from draftwood.api.prompts import decoder

        answer, decode = _recorded(given, loaded, generation), decoder(loaded.tokenizer)
        _show([answer], answer, step, as_json, lambda token: decode([token]) or f"#{token}")
    elif as_json:
        print(json.dumps({"arms": [], "answer": None, "steps": []}))
    else:
        print("nothing to explain: no pass was made beyond reading the prompt")
    if interrupted:
        raise typer.Exit(130)


def _write(given: Given, loaded: Loaded, content: Any, *, quiet: bool) -> tuple[Generation | None, bool]:
    """Write the answer, shown unless quiet; returns it as far as it came, and whether it was interrupted."""
    from draftwood.api.stream import stream
    from draftwood.cli.render import Writer

    writer = None if quiet else Writer(loaded.names)
    known = {"tokenizer": loaded.tokenizer, "drafters": loaded.drafters, "planner": loaded.planner}
    settings = loaded.sources | given.settings | {"trace": True}
    interrupted = False
    with stream(loaded.model, content, **known, **settings) as pieces:
        try:
            for piece in pieces:
                if writer is not None:
                    writer.piece(piece)
        except KeyboardInterrupt:
            interrupted = True
    if writer is not None:
        writer.end(pieces.generation.text)
        print()
    return pieces.generation, interrupted


def _recorded(given: Given, loaded: Loaded, generation: Generation) -> Answer:
    from draftwood.measure.records.records import Answer
    from draftwood.measure.records.texts import token_texts

    return Answer(
        0, "live", "answer", given.label, drafters=loaded.names, planner=given.planner,
        output_ids=generation.ids, pieces=token_texts(generation.ids, loaded.tokenizer), steps=generation.steps,
        finish_reason=generation.finish_reason, seed=generation.seed,
    )  # fmt: skip


def _show(
    answers: Sequence[Answer], answer: Answer | None, step: int | None, as_json: bool, text: Callable[[int], str]
) -> None:
    """Show one step, one answer, or what the answers of each arm amount to."""
    from draftwood.cli import explain_tables
    from draftwood.measure.explain.document import arm, by_arm, detail, steps_of

    if answer is not None and step is not None:
        account = _account(answer, step)
        found = detail(answer, account)
        if as_json:
            print(json.dumps(found))
        else:
            explain_tables.show_step(found, answer, text)
        return
    arms = [arm(members) for members in by_arm(answers).values()]
    steps = list(steps_of(answer)) if answer is not None else None
    if as_json:
        print(json.dumps({"arms": arms, "answer": answer.id if answer else None, "steps": steps}))
        return
    explain_tables.show_arms(arms)
    if answer is not None and steps is not None:
        explain_tables.show_steps(steps, answer)
    else:
        explain_tables.show_answers(answers)


def _account(answer: Answer, step: int) -> Any:
    from draftwood.errors import UsageError
    from draftwood.measure.explain.account import Account

    if step > len(answer.steps):
        raise UsageError(f"there is no step {step}: the answer's steps have numbers 1 to {len(answer.steps)}")
    return Account(step, answer.steps[step - 1])
