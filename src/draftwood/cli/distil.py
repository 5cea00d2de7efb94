"""``draftwood distil``: a sibling of a few of a model's own layers, which drafts for it in any engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Option

from draftwood.cli import early, options, screen, training
from draftwood.errors import ModelNotFoundError, UsageError

Output = Annotated[
    Path, Option("--output", "-o", metavar="PLACE", help="A new folder, or a file whose name ends in .gguf.")
]
Layers = Annotated[
    str | None, Option("--layers", metavar="N,N,N", help="Layers of the model that it is made of, from 0.")
]
Template = Annotated[
    Path | None,
    Option("--template", metavar="FILE.gguf", help="For a GGUF file: one of the model, for its tokenizer."),
]


@options.shared
def distil(
    loading: options.Loading,
    output: Output,
    name: training.ModelArgument = None,
    minutes: training.Minutes = 60.0,
    texts: training.Texts = None,
    written: training.Written = None,
    layers: Layers = None,
    template: Template = None,
    rate: training.Rate = 1e-3,
    seed: training.Seed = 0,
    keep: training.Keep = False,
    force: early.Force = False,
) -> None:
    """Train a sibling: a model of a few of another one's layers, which drafts for it.

    Ctrl-C stops at any point; the same command goes on from there. Nothing of the model changes.
    """
    from draftwood.training.plan import Plan
    from draftwood.training.sibling.folder import write_folder
    from draftwood.training.sibling.job import SiblingJob

    loading = loading if name is None else replace(loading, model=name)
    is_gguf = output.suffix == ".gguf"
    if is_gguf:
        early.check_place(output, force)
        template = _template(template, loading.model)
    else:
        _check_folder(output, template, force)
    half = 30.0 * minutes
    chosen = training.numbers(layers, "--layers")
    plan = Plan(
        half, half, layers=chosen, steps=1, rate=rate, seed=seed, files=tuple(texts or ()), written=written
    )
    run = training.Run("distil", loading, output, plan)
    model, tokenizer, made = run.do(SiblingJob)
    if template is not None:
        from draftwood.training.sibling.gguf_file import write_gguf

        write_gguf(output, made.model, made.layers, model, template)
    else:
        write_folder(output, made.model, tokenizer, model.dtype, run.about(made.progress))
    run.clear(keep)
    said = training.shares(made.progress.agreement)
    screen.say(f"on held-out texts the sibling's next token is the model's own in {said}")
    screen.say(f"written: {output}; use it with --drafters draft-model:model={output}")


def _check_folder(output: Path, template: Path | None, force: bool) -> None:
    """Refuse, by UsageError, a place where no folder can be made."""
    if template is not None:
        raise UsageError("--template is for a GGUF file: name one with -o, or leave --template out")
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file: name a new folder with -o, or a file that ends in .gguf")
    if output.is_dir() and any(output.iterdir()) and not force:
        raise UsageError(f"{output} is there already: choose another -o, or replace it with --force")
    early.check_writable(output / "config.json" if output.is_dir() else output)


def _template(given: Path | None, model: str) -> Path:
    """Return a GGUF file of the model; raises `UsageError` where none is known."""
    from draftwood.models.find import gguf_file

    if given is not None:
        if not given.is_file():
            raise UsageError(f"{given} is not there: name a GGUF file of the model with --template")
        return given
    try:
        return gguf_file(model)
    except (UsageError, ModelNotFoundError) as error:
        raise UsageError(
            f"a GGUF file takes its tokenizer from one of {model}, and none is known: name it with --template"
        ) from error
