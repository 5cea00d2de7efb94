"""Flags that several verbs share, and what becomes of them. Imports nothing heavy: ``--help`` must be instant."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from draftwood.decoding.request import Request

# Written here once more, since their homes import numpy; a test holds both together.
MODEL_DEFAULT = "smollm2"
DRAFTERS_DEFAULT = "default"
PLANNER_DEFAULT = "goodput"

Model = Annotated[
    str, typer.Option("--model", "-m", help="A name of `draftwood models`, a folder, or a hub name.")
]
Drafters = Annotated[
    str,
    typer.Option(help="Drafters joined by +, options after colons: suffix+lookup:max_ngram=3; none is plain."),
]
PlannerName = Annotated[
    str,
    typer.Option(
        "--planner",
        help="How much is drafted: goodput as much as pays, fixed:16 is 16 draft nodes, off is none; "
        "policies follow, joined by +.",
    ),
]
MaxNewTokens = Annotated[
    int | None,
    typer.Option(min=1, help="Most tokens to write. [default: the model's own setting, else 256]"),
]
Temperature = Annotated[float, typer.Option(help="0 is greedy.")]
TopK = Annotated[int | None, typer.Option(help="Sample from the K best tokens.")]
TopP = Annotated[float | None, typer.Option(help="Sample from the best tokens that hold this probability.")]
MinP = Annotated[
    float | None, typer.Option(help="Leave out tokens below this share of the best one's probability.")
]
RepetitionPenalty = Annotated[
    float | None, typer.Option(help="Above 1 makes tokens that are in the text already less likely.")
]
Seed = Annotated[int | None, typer.Option(help="The same seed gives the same text. [default: a new one]")]
Stop = Annotated[
    list[str] | None, typer.Option(metavar="TEXT", help="End the answer before this text; may be given again.")
]
System = Annotated[str | None, typer.Option(help="System message of the chat template.")]
Prediction = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT|@FILE", help="Text expected in the answer, to draft from; may be given again."),
]
Memory = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Draft from the answers kept here, and keep these; made if it is not there."
    ),
]
Corpus = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Draft from what `draftwood corpus build` wrote; may be given again."),
]
Context = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT|@FILE", help="Further text to draft from, not in the prompt; may be given again."),
]
Dtype = Annotated[str, typer.Option(help="Number format: float32, bfloat16, float16 or auto.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads. [default: torch's choice]")]
Pack = Annotated[
    bool, typer.Option("--pack/--no-pack", help="On a CPU, copy the weights into a layout that is read faster.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


@dataclass(frozen=True, slots=True)
class Given:
    """The shared flags as given."""

    model: str
    drafters: str
    planner: str
    dtype: str
    threads: int | None
    pack: bool
    max_new_tokens: int | None
    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    seed: int | None
    stop: list[str] | None
    sources: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """What `draftwood.stream` and `draftwood.Conversation` call settings."""
        names = (
            "max_new_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "stop",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names} | {"stop": self.stop or None}

    @property
    def label(self) -> str:
        """The drafters with those that the sources add: ``suffix+prediction``."""
        from draftwood.api.user_texts import UserTexts

        return UserTexts(**self.sources).label(self.drafters)

    def load(self) -> Loaded:
        """Check everything that can be checked at once, then load the model."""
        from draftwood.contracts import Sampling
        from draftwood.decoding.stopping import StopStrings
        from draftwood.planning.load import load as load_planner
        from draftwood.verify.sampling import check_sampling

        names = check_sources(self.drafters, self.sources)
        load_planner(self.planner)
        known = {name: self.settings[name] for name in Sampling.__dataclass_fields__}
        check_sampling(Sampling(**{name: value for name, value in known.items() if value is not None}))
        StopStrings(self.stop or (), lambda _: "") if self.stop else None
        model, tokenizer = load_model(self.model, self.dtype, self.threads, self.pack, release=True)
        return Loaded(model, tokenizer, self.drafters, self.planner, names, self.sources)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the doors take, and the names of the drafters, those that the sources add among them."""

    model: Any
    tokenizer: Any
    drafters: str
    planner: str
    names: list[str]
    sources: dict[str, Any]

    def request(self, given: Given, ids: list[int]) -> Request:
        """Return what these flags ask for, the model's own settings filled in."""
        from draftwood.api.setup import Setup

        setup = Setup(self.model, self.tokenizer, self.drafters, self.planner)
        return setup.request(ids, **given.settings)


def read_sources(
    prediction: list[str] | None, memory: Path | None, corpus: list[Path] | None, context: list[str] | None
) -> dict[str, Any]:
    """Return what the doors take of sources; files of text are read, others only named."""
    from draftwood.cli.prompt import read_given

    return {
        "prediction": [read_given(text, "prediction") for text in prediction] if prediction else None,
        "memory": memory,
        "corpus": corpus or None,
        "context": [read_given(text, "context") for text in context] if context else None,
    }


def check_sources(drafters: str, sources: dict[str, Any]) -> list[str]:
    """Open every file once, before a model is loaded; return the names of the drafters."""
    from draftwood.api.user_texts import UserTexts
    from draftwood.drafters.load import load as load_drafters

    given = UserTexts(**sources)
    complete = given.complete(load_drafters(drafters))
    given.opened(complete)
    return [d.name for d in complete]


def dtype_of(model: Any) -> str:
    """Return the number format of a loaded model: what ``auto`` has become."""
    return str(model.dtype).rpartition(".")[2]


def load_model(
    name: str, dtype: str, threads: int | None, pack: bool = True, *, release: bool = False
) -> tuple[Any, Any]:
    """Load a model and make it ready, showing on a terminal that this takes a moment.

    ``release`` lets go of weights of which packed copies are enough: nobody else uses the model.
    """
    from draftwood.api.prepare import prepare
    from draftwood.cli.render import busy
    from draftwood.errors import UsageError
    from draftwood.models import load

    with busy(f"loading {name}"):
        model, tokenizer = load(name, dtype=dtype, threads=threads)
        if not pack:
            prepare(model, pack=False)
        elif release:
            with suppress(UsageError):  # its passes need them
                prepare(model, release=True)
        return model, tokenizer
