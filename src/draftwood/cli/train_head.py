"""``draftwood train-head``: a small head that drafts from a model's hidden states, made from the model alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Option

from draftwood.cli import early, options, screen, training

Output = Annotated[Path, Option("--output", "-o", metavar="FILE.safetensors", help="Where the head goes.")]
Steps = Annotated[int, Option(min=1, max=16, help="Tokens in a row that it is trained to foretell.")]
States = Annotated[str | None, Option("--states", metavar="N,N,N", help="Layers whose input it reads.")]


@options.shared
def train_head(
    loading: options.Loading,
    output: Output,
    name: training.ModelArgument = None,
    minutes: training.Minutes = 60.0,
    texts: training.Texts = None,
    written: training.Written = None,
    vocabulary: training.Vocabulary = 8192,
    steps: Steps = 4,
    states: States = None,
    rate: training.Rate = 1e-3,
    seed: training.Seed = 0,
    keep: training.Keep = False,
    force: early.Force = False,
) -> None:
    """Train a head that drafts for a model, from text that the model writes itself.

    Ctrl-C stops at any point; the same command goes on from there. Nothing of the model changes.
    """
    from draftwood.training.head.job import HeadJob, write_head
    from draftwood.training.plan import Plan

    early.check_place(output, force)
    layers, half = training.numbers(states, "--states"), 30.0 * minutes
    plan = Plan(half, half, vocabulary, layers, steps, rate, seed, tuple(texts or ()), written)
    loading = loading if name is None else replace(loading, model=name)
    run = training.Run("train-head", loading, output, plan)
    model, _, (module, ids, progress) = run.do(HeadJob)
    write_head(output, module, ids, model.get_input_embeddings().weight, run.about(progress))
    run.clear(keep)
    said = training.shares(progress.agreement)
    screen.say(f"on held-out texts the head's tokens are the model's own in {said} (token 1, 2, ... of a draft)")
    screen.say(f"written: {output}; use it with --drafters ngram+head:file={output}")
