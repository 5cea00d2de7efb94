"""``draftwood train``: makes something small that drafts for a model, from text that the model writes itself."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from draftwood.cli import early, options, screen
from draftwood.errors import ModelError, UsageError
from draftwood.files.paths import alone, whole_file
from draftwood.measure.records.provenance import provenance
from draftwood.models.engine import has_card
from draftwood.models.importing import importing_torch

if TYPE_CHECKING:
    from draftwood.training.job import Trained, TrainingJob, TrainingPlan

ModelArgument = Annotated[str | None, Argument(metavar="[MODEL]", help="The same as --model.")]
HeadFile = Annotated[Path, Option("--output", "-o", metavar="FILE.safetensors", help="Write the head here.")]
Folder = Annotated[Path, Option("--output", "-o", metavar="FOLDER", help="Write the sibling into this folder.")]
Vocabulary = Annotated[int, Option(min=16, help="How many of the most frequent tokens it can propose.")]
Steps = Annotated[int, Option(min=1, max=16, help="How many tokens in a row it is trained to foretell.")]
States = Annotated[str | None, Option("--states", metavar="N,N,N", help="Layers whose input it reads.")]
Start = Annotated[Path | None, Option("--from", metavar="HEAD", help="Go on training this head.")]
_LAYERS = "Layers of the model that it consists of; the first is 0. [default: three]"
Layers = Annotated[str | None, Option("--layers", metavar="N,N,N", help=_LAYERS)]
_TEXT = "Train on this text, too. May be given again."
_MINUTES = "Half for writing and reading text, half for training. --text and --written are read beyond that."
_WRITTEN = "Write no text, but take that of an earlier run (its texts.jsonl)."
_KEEP = "Keep the folder of texts and hidden states at the end."


@dataclass(frozen=True)
class TrainingSettings:
    """Flags of every training."""

    minutes: Annotated[float, Option(min=0.1, help=_MINUTES)] = 60.0
    texts: Annotated[list[Path] | None, Option("--text", metavar="FILE", help=_TEXT)] = None
    written: Annotated[Path | None, Option("--written", metavar="FILE", help=_WRITTEN)] = None
    seed: Annotated[int, Option(min=0, help="Seed of the texts and of their order.")] = 0
    keep: Annotated[bool, Option("--keep", help=_KEEP)] = False
    force: early.Force = False

    def plan(self, threads: int | None, **more: Any) -> TrainingPlan:
        """Return what the training library is asked for, which is imported; raises `ModelError` without torch."""
        try:
            with importing_torch(threads):
                from draftwood.training.job import TrainingPlan
        except ModuleNotFoundError as error:
            raise ModelError(
                f'training needs the package {error.name}: run pip install "draftwood[transformers]"'
            ) from error
        half = 30.0 * self.minutes
        files = tuple(self.texts or ())
        return TrainingPlan(half, half, seed=self.seed, files=files, written=self.written, **more)


app = options.group("train", "Train a head or a small model that drafts for a model.")


@app.command()
@options.shared
def head(
    loading: options.Loading, output: HeadFile, settings: TrainingSettings, name: ModelArgument = None,
    vocabulary: Vocabulary = 8192, steps: Steps = 4, states: States = None, start: Start = None,
) -> None:  # fmt: skip
    """Train a head, which drafts from the model's hidden states.

    It learns from text that the model writes itself; the model does not change. Ctrl-C stops at any point, and the
    same command goes on from there.
    """
    early.check_place(output, settings.force)
    layers = tuple(options.numbers(states, "--states") or ())
    plan = settings.plan(loading.threads, vocabulary=vocabulary, layers=layers, steps=steps, start=start)
    from draftwood.training.head import HeadJob, write_head

    with _trained(HeadJob, loading, name, output, plan, settings.keep) as (_, _, made, about):
        write_head(output, made, about)
    said = _shares(made.progress.agreement)
    screen.say(f"on held-out texts the head's tokens are the model's own in {said} (token 1, 2, ... of a draft)")
    screen.say(f"written: {output}; use it with --drafters ngram+head:file={output}")


@app.command()
@options.shared
def sibling(
    loading: options.Loading, output: Folder, settings: TrainingSettings, name: ModelArgument = None,
    layers: Layers = None,
) -> None:  # fmt: skip
    """Train a sibling, a small model made of a few layers.

    It learns from text that the model writes itself; the model does not change. Ctrl-C stops at any point, and the
    same command goes on from there.
    """
    _check_folder(output, settings.force)
    own = tuple(options.numbers(layers, "--layers") or ())
    plan = settings.plan(loading.threads, layers=own, steps=1)
    from draftwood.training.sibling import SiblingJob, write_folder

    with _trained(SiblingJob, loading, name, output, plan, settings.keep) as (model, tokenizer, made, about):
        write_folder(output, made.module.model, tokenizer, model.dtype, about)
    said = _shares(made.progress.agreement)
    screen.say(f"on held-out texts the sibling's next token is the model's own in {said}")
    screen.say(f"written: {output}; use it with --drafters draft-model:model={output}")


@contextmanager
def _trained(
    kind: type[TrainingJob], loading: options.Loading, name: str | None, output: Path, plan: TrainingPlan,
    keep: bool,
) -> Iterator[tuple[Any, Any, Trained, dict[str, str]]]:  # fmt: skip
    """Load the model and do the job; yields model, tokenizer, what was made, and how, each value as JSON.

    A folder of texts, states and checkpoints lies next to the output, for one run at a time; it goes when the
    block has written the output. After Ctrl-C, `typer.Exit` with code 130.
    """
    if name is not None:
        loading = replace(loading, model=name)
    if kind.of_transformers or has_card():  # which our own engine does not compute on
        loading = loading.for_transformers()
    folder = output.with_name(f"{output.name}.training")
    with alone(folder, 0, error=UsageError):
        model, tokenizer = loading.load_model()
        job, made = kind(model, tokenizer, folder, plan), None
        about = {"model": loading.model, "weights": loading.weights, "dtype": loading.dtype}
        about |= {"engine": job.target.target.engine, "target": job.target.fingerprint}
        note, asked = folder / "plan.json", _asked(about, replace(plan, text_seconds=0.0, train_seconds=0.0))
        if note.exists() and note.read_text(encoding="utf-8") != asked:
            raise UsageError(
                f"{folder} was begun with other settings: give these again to go on, or remove it to start anew"
            )
        with whole_file(note, error=UsageError) as beside:  # only now: what was refused leaves nothing
            beside.write_text(asked, encoding="utf-8")
        with screen.progress() as bar, screen.CtrlC() as stop:
            made = job.run(lambda what, share: bar(int(1000 * min(1.0, share)), 1000, what) is None)
        if made is None or stop.pressed:
            screen.say(f"stopped; the same command goes on with what is in {folder}", file=sys.stderr)
            raise typer.Exit(130)
        log = json.dumps([[round(number, 3) for number in row] for row in made.progress.history])
        how = {"made": _asked(about, plan), "log": log, "provenance": json.dumps(provenance())}
        yield model, tokenizer, made, how
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _asked(about: dict[str, str | None], plan: TrainingPlan) -> str:
    return json.dumps({**about, **asdict(plan)}, default=str, sort_keys=True)


def _shares(some: Sequence[float]) -> str:
    return ", ".join(f"{100 * share:.1f} %" for share in some)


def _check_folder(output: Path, force: bool) -> None:
    """Refuse, by UsageError, a place where no folder can be made."""
    if output.suffix == ".gguf":
        raise UsageError("a sibling is written as a folder, not as a GGUF file: name a folder with -o")
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file: name a new folder with -o")
    if output.is_dir() and any(output.iterdir()) and not force:
        raise UsageError(f"{output} is there already: choose another -o, or replace it with --force")
    early.check_writable(output / "config.json" if output.is_dir() else output)
