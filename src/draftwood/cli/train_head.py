"""``draftwood train-head``: a small head that drafts from a model's hidden states, made from the model alone."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from draftwood.cli import early, options, screen
from draftwood.errors import UsageError
from draftwood.files.paths import whole_file
from draftwood.measure.records.provenance import provenance

if TYPE_CHECKING:
    from draftwood.training.job import Plan

ModelArgument = Annotated[str | None, Argument(metavar="[MODEL]", help="The same as --model.")]
Output = Annotated[Path, Option("--output", "-o", metavar="FILE.safetensors", help="Where the head goes.")]
Minutes = Annotated[float, Option(min=0.1, help="For writing text and for training, half for each.")]
Texts = Annotated[
    list[Path] | None, Option("--text", metavar="FILE", help="Train on this text, too; may be given again.")
]
Vocabulary = Annotated[int, Option(min=16, help="Most frequent tokens, which are those that the head can say.")]
Steps = Annotated[int, Option(min=1, max=16, help="Tokens in a row that it is trained to foretell.")]
States = Annotated[str | None, Option("--states", metavar="N,N,N", help="Layers whose input it reads.")]
Rate = Annotated[float, Option(min=1e-6, max=1.0, help="Highest learning rate.")]
Seed = Annotated[int, Option(min=0, help="Of the texts and of their order.")]
Keep = Annotated[bool, Option("--keep", help="Keep the folder of texts and states when the head is written.")]


@options.shared
def train_head(
    loading: options.Loading,
    output: Output,
    name: ModelArgument = None,
    minutes: Minutes = 60.0,
    texts: Texts = None,
    vocabulary: Vocabulary = 8192,
    steps: Steps = 4,
    states: States = None,
    rate: Rate = 1e-3,
    seed: Seed = 0,
    keep: Keep = False,
    force: early.Force = False,
) -> None:
    """Train a head that drafts for a model, from text that the model writes itself.

    Ctrl-C stops at any point; the same command goes on from there. Nothing of the model changes.
    """
    from draftwood.training.job import HeadJob, Plan, write_head

    early.check_place(output, force)
    plan = Plan(30.0 * minutes, 30.0 * minutes, vocabulary, _layers(states), steps, rate, seed, tuple(texts or ()))
    if name is not None:
        loading = replace(loading, model=name)
    folder = output.with_name(f"{output.name}.training")
    note, asked = folder / "plan.json", _made(loading.model, replace(plan, text_seconds=0.0, train_seconds=0.0))
    _refuse_other(note, asked)
    model, tokenizer = loading.load_model()
    job, found = HeadJob(model, tokenizer, folder, plan), None
    with whole_file(note, error=UsageError) as beside:  # only now: what was refused leaves nothing behind
        beside.write_text(asked, encoding="utf-8")
    with screen.progress("") as bar, screen.CtrlC() as stop:
        found = job.run(lambda what, share: bar(int(1000 * min(1.0, share)), 1000, what) is None)
    if found is None or stop.pressed:
        print(f"stopped; the same command goes on with what is in {folder}", file=sys.stderr)
        raise typer.Exit(130)
    module, ids, progress = found
    log = [[round(number, 3) for number in row] for row in progress.history]
    about = {"made": _made(loading.model, plan), "log": json.dumps(log), "provenance": json.dumps(provenance())}
    write_head(output, module, ids, model.get_input_embeddings().weight, about)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    shares = ", ".join(f"{100 * share:.1f} %" for share in progress.agreement)
    print(f"on held-out texts the head's tokens are the model's own in {shares} (token 1, 2, ... of a draft)")
    print(f"written: {output}; use it with --drafters ngram+head:file={output}")


def _layers(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"--states must be numbers with commas between, not {text!r:.80}") from error


def _made(model: str, plan: Plan) -> str:
    """Return what the head is made of, as JSON."""
    return json.dumps({"model": model, **asdict(plan)}, default=str, sort_keys=True)


def _refuse_other(note: Path, asked: str) -> None:
    """Refuse, by UsageError, a folder whose note says that it was begun for something else."""
    if note.exists() and note.read_text(encoding="utf-8") != asked:
        raise UsageError(
            f"{note.parent} was begun with other settings: give these again to go on, or remove it to start anew"
        )
