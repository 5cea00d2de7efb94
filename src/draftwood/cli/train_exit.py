"""``draftwood train-exit``: lets a model's first layers draft, by a small exit that is trained behind them."""

from __future__ import annotations

from dataclasses import asdict, replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from draftwood.cli import early, options, screen, training

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftwood.training.exit.choice import Choice

Output = Annotated[Path, Option("--output", "-o", metavar="FILE.safetensors", help="Where the exit goes.")]
Layers = Annotated[
    str | None, Option("--layers", metavar="N,N,N", help="Behind how many layers it may lie; one is kept.")
]


@options.shared
def train_exit(
    loading: options.Loading,
    output: Output,
    name: training.ModelArgument = None,
    minutes: training.Minutes = 40.0,
    texts: training.Texts = None,
    written: training.Written = None,
    vocabulary: training.Vocabulary = 8192,
    layers: Layers = None,
    rate: training.Rate = 1e-3,
    seed: training.Seed = 0,
    keep: training.Keep = False,
    force: early.Force = False,
) -> None:
    """Train an exit behind a model's first layers, so that these can draft for the whole (early-exit).

    Exits behind several numbers of layers are trained side by side and timed; the one that should pay best is
    kept. Ctrl-C stops at any point; the same command goes on from there.
    """
    from draftwood.training.exit.choice import PAYS
    from draftwood.training.exit.job import ExitJob, write_exit
    from draftwood.training.plan import Plan

    early.check_place(output, force)
    half = 30.0 * minutes
    chosen = training.numbers(layers, "--layers")
    plan = Plan(half, half, vocabulary, chosen, 1, rate, seed, tuple(texts or ()), written)
    loading = loading if name is None else replace(loading, model=name)
    run = training.Run("train-exit", loading, output, plan)
    model, _, made = run.do(ExitJob)
    about = {**run.about(made.progress), "choices": dumps([asdict(one) for one in made.choices])}
    write_exit(output, made, model.get_input_embeddings().weight, about)
    run.clear(keep)
    _show(made.choices)
    best = made.choices[0]
    screen.say(f"written: {output} (behind {best.layers} layers); use it with --drafters early-exit:file={output}")
    if best.speedup <= PAYS:
        screen.say("no exit is expected to pay on this model: a head drafts better (draftwood train-head)")


def _show(choices: Sequence[Choice]) -> None:
    table = screen.table("layers", "agreement", "draft pass", "expected speed-up")
    for one in choices:
        table.add_row(
            str(one.layers), screen.percent(one.agreement), screen.number(one.cost), screen.number(one.speedup)
        )
    screen.console().print(table, soft_wrap=False)
    screen.say("agreement: on held-out texts; draft pass: in plain passes of the model")
