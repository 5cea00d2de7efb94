"""What the verbs share that train something for a model: flags, the folder that they go on with, what they say."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from draftwood.cli import screen
from draftwood.errors import UsageError
from draftwood.files.paths import whole_file
from draftwood.measure.records.provenance import provenance

if TYPE_CHECKING:
    from draftwood.cli.options import Loading
    from draftwood.training.plan import Plan
    from draftwood.training.train import Progress

ModelArgument = Annotated[str | None, Argument(metavar="[MODEL]", help="The same as --model.")]
Minutes = Annotated[float, Option(min=0.1, help="For writing text and for training, half for each.")]
Texts = Annotated[
    list[Path] | None, Option("--text", metavar="FILE", help="Train on this text, too; may be given again.")
]
Written = Annotated[
    Path | None,
    Option("--written", metavar="FILE", help="Write no text: take what an earlier run wrote (texts.jsonl)."),
]
Vocabulary = Annotated[int, Option(min=16, help="Most frequent tokens, which are those that it can say.")]
Rate = Annotated[float, Option(min=1e-6, max=1.0, help="Highest learning rate.")]
Seed = Annotated[int, Option(min=0, help="Of the texts and of their order.")]
Keep = Annotated[bool, Option("--keep", help="Keep the folder of texts and states when the result is written.")]


@dataclass(frozen=True, slots=True)
class Run:
    """One verb that trains.

    Attributes
    ----------
    verb
        Its name.
    loading
        Which model, and how.
    output
        Where the result goes; the folder of texts and states lies beside it.
    plan
        How it is trained.
    """

    verb: str
    loading: Loading
    output: Path
    plan: Plan

    @property
    def folder(self) -> Path:
        """Where text, states and checkpoints lie."""
        return self.output.with_name(f"{self.output.name}.training")

    def do(self, job: Callable[[Any, Any, Path, Plan], Any]) -> tuple[Any, Any, Any]:
        """Load the model, make the job and run it; returns the model, its tokenizer and what was made.

        After Ctrl-C, `typer.Exit` with code 130.
        """
        note, asked = (
            self.folder / "plan.json",
            self._made(replace(self.plan, text_seconds=0.0, train_seconds=0.0)),
        )
        _refuse_other(note, asked)
        model, tokenizer = self.loading.for_transformers().load_model()
        begun, found = job(model, tokenizer, self.folder, self.plan), None
        with whole_file(note, error=UsageError) as beside:  # only now: what was refused leaves nothing behind
            beside.write_text(asked, encoding="utf-8")
        with screen.progress("") as bar, screen.CtrlC() as stop:
            found = begun.run(lambda what, share: bar(int(1000 * min(1.0, share)), 1000, what) is None)
        if found is None or stop.pressed:
            screen.say(f"stopped; the same command goes on with what is in {self.folder}", file=sys.stderr)
            raise typer.Exit(130)
        return model, tokenizer, found

    def about(self, progress: Progress) -> dict[str, str]:
        """Return how it was made, each value as JSON."""
        log = [[round(number, 3) for number in row] for row in progress.history]
        return {"made": self._made(self.plan), "log": json.dumps(log), "provenance": json.dumps(provenance())}

    def clear(self, keep: bool) -> None:
        """Remove the folder, which nobody needs when the result is written."""
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _made(self, plan: Plan) -> str:
        made = {"verb": self.verb, "model": self.loading.model, **asdict(plan)}
        return json.dumps(made, default=str, sort_keys=True)


def numbers(text: str | None, flag: str) -> tuple[int, ...]:
    """Read numbers with commas between; raises `UsageError`."""
    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"{flag} must be numbers with commas between, not {text!r:.80}") from error


def shares(some: Sequence[float]) -> str:
    """Return shares as percentages."""
    return ", ".join(f"{100 * share:.1f} %" for share in some)


def _refuse_other(note: Path, asked: str) -> None:
    """Refuse, by UsageError, a folder whose note says that it was begun for something else."""
    if note.exists() and note.read_text(encoding="utf-8") != asked:
        raise UsageError(
            f"{note.parent} was begun with other settings: give these again to go on, or remove it to start anew"
        )
