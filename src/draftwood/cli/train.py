"""``draftwood train``: makes a head that drafts for a model, from text that the model writes itself."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from draftwood.cli import early, options, screen
from draftwood.errors import ModelError, UsageError
from draftwood.files.paths import alone, is_stream, whole_file
from draftwood.measure.records.provenance import provenance
from draftwood.models.engine import has_card
from draftwood.models.importing import importing_torch

if TYPE_CHECKING:
    from draftwood.training.job import TrainingPlan


_TOLD = ("date", "draftwood", "commit", "packages")  # of the provenance: what is of the machine stays there


@dataclass(frozen=True)
class TrainingSettings:
    """Flags of a training."""

    minutes: Annotated[
        float,
        Option(
            min=0.1,
            help="For everything: half for loading, writing and reading text, half for training and judging.",
        ),
    ] = 60.0
    texts: Annotated[
        list[Path] | None, Option("--text", metavar="FILE", help="Train on this text, too. May be given again.")
    ] = None
    written: Annotated[
        Path | None,
        Option(
            "--written", metavar="FILE", help="Write no text, but take that of an earlier run (its texts.jsonl)."
        ),
    ] = None
    seed: Annotated[int, Option(min=0, help="Seed of the texts and of their order.")] = 0
    keep: Annotated[bool, Option("--keep", help="Keep the folder of texts and hidden states at the end.")] = False
    force: early.Force = False
    vocabulary: Annotated[int, Option(min=16, help="How many of the most frequent tokens it can propose.")] = 8192
    steps: Annotated[int, Option(min=1, max=16, help="How many tokens in a row it is trained to predict.")] = 4
    states: Annotated[str | None, Option("--states", metavar="N,N,N", help="Layers whose input it reads.")] = None
    start: Annotated[Path | None, Option("--from", metavar="HEAD", help="Go on training this head.")] = None

    def plan(self, threads: int | None) -> TrainingPlan:
        """Return the plan of the training, whose library is imported here; raises `ModelError` without torch."""
        half, files = 30.0 * self.minutes, tuple(self.texts or ())
        layers = tuple(options.numbers(self.states, "--states") or ())
        try:
            with screen.busy("starting torch"), importing_torch(threads):
                from draftwood.training.job import TrainingPlan
        except ModuleNotFoundError as error:
            raise ModelError(
                f'training needs the package {error.name}: run pip install "draftwood[transformers]"'
            ) from error
        return TrainingPlan(
            half, half, self.vocabulary, layers, self.steps, seed=self.seed, files=files, written=self.written,
            start=self.start,
        )  # fmt: skip


app = options.group("train", "Train a head that drafts for a model.")


@app.command()
@options.shared
def head(
    loading: options.Loading,
    output: Annotated[Path, Option("--output", "-o", metavar="FILE.safetensors", help="Write the head here.")],
    settings: TrainingSettings,
    name: Annotated[str | None, Argument(metavar="[MODEL]", help="The same as --model.")] = None,
) -> None:
    """Train a head, which drafts from the model's hidden states.

    It learns from text that the model writes itself; the model does not change. Ctrl-C stops at any point, and the
    same command goes on from there.
    """
    started = monotonic()
    early.check_place(output, settings.force)
    if is_stream(output):
        raise UsageError(
            f"{output} is a pipe or a device, and a head is made in a folder beside its file: name a file"
        )
    plan = settings.plan(loading.threads)
    if name is not None:
        loading = replace(loading, model=name)
    if has_card():  # which our own engine does not compute on
        loading = loading.for_transformers()
    # Holds texts, states and checkpoints, for one run at a time; removed when the head is written.
    folder = output.with_name(f"{output.name}.training")
    with alone(folder, 0, error=UsageError):
        agreement = _train(loading, output, plan, folder, started)
        if not settings.keep:
            shutil.rmtree(folder, ignore_errors=True)
    said = ", ".join(f"{100 * share:.1f} %" for share in agreement)
    screen.say(f"on held-out texts the head's tokens are the model's own in {said} (token 1, 2, ... of a draft)")
    screen.say(_verdict(agreement, settings.minutes))
    screen.say(f"written: {output}; use it with --drafters ngram+head:file={output}")


_PAYS, _PAYS_ALWAYS = 0.2, 0.35
"""Agreement of a draft's first token. A token of a draft takes a wider pass and a pass of the head: together
18 % of a plain pass with 1.1 billion parameters, and 33 % with smollm2, on two cores (LOG.md, 2026-11-26).
One that is right less often costs more than it saves."""


def _verdict(agreement: Sequence[float], minutes: float) -> str:
    first = agreement[0] if agreement else 0.0
    more = "train for about an hour (--minutes 60)" if minutes < 60 else "give it more time, or more text (--text)"
    if first < _PAYS:
        return f"too little: no draft would pay for itself, so {more}"
    if first < _PAYS_ALWAYS:
        return f"little: drafts pay with models of a billion parameters and more, if at all; {more}"
    return "enough for drafts to pay" + (f"; for more of them, {more}" if first < _HOUR else "")


_HOUR = 0.55  # what an hour brought on two cores (docs/drafters/models.md)


def _train(
    loading: options.Loading, output: Path, plan: TrainingPlan, folder: Path, started: float
) -> Sequence[float]:
    """Train a head in a folder and write it; returns its agreement. After Ctrl-C, `typer.Exit` with code 130."""
    from draftwood.training.head import write_head
    from draftwood.training.job import HeadJob, resumable

    model, tokenizer = loading.load_model()
    job, made = HeadJob(model, tokenizer, folder, plan), None
    about = {
        "model": loading.model,
        "weights": loading.weights,
        "dtype": loading.dtype,
        "engine": job.target.target.engine,
        "target": job.target.target.fingerprint,
    }
    note, asked = folder / "plan.json", _asked(about, replace(plan, text_seconds=0.0, train_seconds=0.0))
    if note.exists() and note.read_text(encoding="utf-8") != asked:
        raise UsageError(f"{folder} was begun with other settings: give them again, or remove it to start anew")
    with whole_file(note, error=UsageError) as beside:  # only now: what was refused leaves nothing
        beside.write_text(asked, encoding="utf-8")
    seconds = int(plan.text_seconds + plan.train_seconds)

    def show(what: str, _share: float) -> bool:
        bar(min(seconds, int(monotonic() - started)), seconds, what)
        return True

    with screen.progress("seconds") as bar, screen.CtrlC() as stop:
        made = job.run(show, monotonic() - started)
    if made is None or stop.pressed:
        screen.say(f"stopped; the same command goes on with what is in {folder}", file=sys.stderr)
        raise typer.Exit(130)
    log = json.dumps([[round(number, 3) for number in row] for row in made.progress.history])
    # Heads are passed on, so they hold no paths, which may tell who made them and from what.
    paths = {"files": len(plan.files), "written": bool(plan.written), "start": bool(plan.start)}
    asked, here = _asked(about | paths | {"model": Path(loading.model).name}, plan), provenance()
    told = json.dumps({name: here.get(name) for name in _TOLD})
    with resumable(output):
        write_head(output, made, {"made": asked, "log": log, "provenance": told})
    return made.progress.agreement


def _asked(about: dict[str, Any], plan: TrainingPlan) -> str:
    return json.dumps({**asdict(plan), **about}, default=str, sort_keys=True)
