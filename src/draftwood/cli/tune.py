"""``draftwood tune``: learn on your own prompts, once, what every later call begins with."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftwood.cli import measuring, options, places

if TYPE_CHECKING:
    from draftwood.measure.prompt_files import Job
    from draftwood.measure.tune import Tuning

Tasks = Annotated[
    str | None,
    typer.Option(metavar="TASK,TASK", help="Kinds of prompts, as in `draftwood bench`, instead of your own."),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write here. [default: a file in the cache folder]"),
]
Temperature = Annotated[
    float | None, typer.Option(help="For every prompt. [default: what the task says, else greedy]")
]

_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)


def tune(
    model: options.Model = options.MODEL_DEFAULT,
    prompts: measuring.Prompts = None,
    tasks: Tasks = None,
    limit: measuring.Limit = None,
    drafters: options.Drafters = options.DRAFTERS_DEFAULT,
    planner: options.PlannerName = options.PLANNER_DEFAULT,
    max_new_tokens: measuring.MaxNewTokens = 128,
    temperature: Temperature = None,
    output: Output = None,
    force: places.Force = False,
    as_json: options.Json = False,
    dtype: options.Dtype = "float32",
    threads: options.Threads = None,
    pack: options.Pack = True,
) -> None:
    """Learn on your own prompts what every planner can begin with.

    An answer is written to each prompt; what a pass costs here and how often each source is right goes into a
    file that --planner goodput:tuned=FILE begins with. Ctrl-C writes what was learnt so far.
    """
    from draftwood.errors import UsageError
    from draftwood.planning.load import load as load_planner

    if prompts is None and tasks is None:
        raise UsageError("nothing to learn from: give --prompts FILE, or --tasks chat,code-edit")
    jobs = measuring.jobs_of(tasks, prompts, limit)
    options.check_sources(drafters, {})
    load_planner(planner)
    _check_temperature(temperature)
    force = force or f"tuned={output}" in planner  # it goes on with its own file
    if output is not None:
        _check_place(output, force)
    loaded, tokenizer = options.load_model(model, dtype, threads, pack)
    path = _usual_place(loaded) if output is None else output
    _check_place(path, force or output is None)
    found, interrupted = _learn(
        loaded, jobs, tokenizer=tokenizer, drafters=drafters, planner=planner, max_new_tokens=max_new_tokens,
        temperature=temperature,
    )  # fmt: skip
    if not found.prompts:
        print("interrupted before the first answer was finished: nothing was learnt", file=sys.stderr)
        raise typer.Exit(130)
    _write(path, tokenizer, found)
    if as_json:
        print(json.dumps(_document(found, model, path, interrupted=interrupted)))
    else:
        _show(found)
    print(f"written: {path}\nuse it: --planner goodput:tuned={path}", file=sys.stderr)
    if interrupted:
        raise typer.Exit(130)


def _learn(model: Any, jobs: list[Job], **settings: Any) -> tuple[Tuning, bool]:
    """Go through the prompts; returns what was learnt, and whether it was interrupted."""
    from draftwood.measure.tune import Tuning
    from draftwood.measure.tune import tune as learn

    found = Tuning()
    with measuring.progress() as bar:
        try:
            learn(
                model, jobs, into=found,
                on_prompt=lambda number, job: bar(number, len(jobs), f"{job.task} {job.name}"), **settings,
            )  # fmt: skip
        except KeyboardInterrupt:
            return found, True
    return found, False


def _usual_place(model: Any) -> Path:
    from draftwood.engines.transformers.shared import packs
    from draftwood.models.profile_place import tuned_path

    return tuned_path(model, packed=packs(model))


def _write(path: Path, tokenizer: Any, found: Tuning) -> None:
    from draftwood.models.fingerprint import tokenizer_fingerprint
    from draftwood.planning.learned_file import write_tuned

    write_tuned(path, found.learned, tokenizer_fingerprint(tokenizer))


def _curves(found: Tuning) -> list[tuple[int, float | None, float]]:
    """Tokens per pass, seconds as profiled and as learnt."""
    learnt = found.learned.corrected()
    if learnt is None:
        return []
    widest = max(n for _, n, _ in learnt.points())
    at, before = found.context, found.before
    return [
        (n, before.seconds(n, at) if before is not None else None, learnt.seconds(n, at))
        for n in _WIDTHS
        if n <= widest
    ]


def _document(found: Tuning, model: str, path: Path, *, interrupted: bool) -> dict[str, Any]:
    import dataclasses

    return {
        "model": model,
        "file": str(path),
        "setting": dict(found.learned.setting or {}),
        "prompts": found.prompts,
        "tokens": found.tokens,
        "tokens_per_second": found.tokens_per_second,
        "speedup": found.speedup,
        "speedup_prompts": found.both,
        "context": found.context,
        "passes": [{"n": n, "profiled_s": before, "learnt_s": learnt} for n, before, learnt in _curves(found)],
        "sources": [dataclasses.asdict(source) for source in found.sources()],
        "interrupted": interrupted,
    }


def _show(found: Tuning) -> None:
    """Print what was learnt."""
    from draftwood.cli.render import console

    to = console(sys.stdout)
    speed = measuring.number(found.tokens_per_second, 1)
    to.print(f"prompts: {found.prompts}, {found.tokens} tokens, {speed} tokens/s while learning")
    if found.speedup is not None:
        to.print(f"{found.speedup:.2f} times plain decoding (prompts written both ways: {found.both})")
    if curves := _curves(found):
        table = measuring.plain_table("tokens per pass", "profiled ms", "learnt ms", "/ t(1)")
        for n, before, learnt in curves:
            cells = (measuring.number(seconds, 1, 1000) for seconds in (before, learnt))
            table.add_row(str(n), *cells, measuring.number(learnt / curves[0][2]))
        to.print(table, soft_wrap=False)
    table = measuring.plain_table("source", "labels", "expected right", "right", last="likeliest evidence classes")
    for source in found.sources():
        best = ", ".join(
            f"{which}: {measuring.percent(share)} of {seen:.0f}" for which, share, seen in source.best
        )
        name = source.name if source.greedy else f"{source.name}, sampled"
        table.add_row(
            name, f"{source.labels:.0f}", measuring.percent(source.expected), measuring.percent(source.right), best
        )
    if table.row_count:
        to.print(table, soft_wrap=False)


def _check_temperature(temperature: float | None) -> None:
    from draftwood.contracts import Sampling
    from draftwood.verify.sampling import check_sampling

    if temperature is not None:
        check_sampling(Sampling(temperature=temperature))


def _check_place(path: Path, force: bool) -> None:
    from draftwood.errors import UsageError

    if any(sign in str(path) for sign in ":+"):
        raise UsageError(f"{path}: planners part their options by : and +, so choose a name without these with -o")
    places.check_place(path, force)
