"""Flags that several verbs share. Imports nothing heavy: ``--help`` must be instant."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer import Option

from draftwood.cli import early, screen
from draftwood.cli.prompt import read_given
from draftwood.errors import UsageError
from draftwood.models.engine import implied_engine
from draftwood.models.load import load
from draftwood.models.load import load_tokenizer as tokenizer_of

if TYPE_CHECKING:
    from draftwood.models.findings import Setting

# Repeated here, since the modules that define them import numpy; a test compares both.
MODEL_DEFAULT = "smollm2"
DRAFTERS_DEFAULT = "default"
PLANNER_DEFAULT = "goodput"
RULE_DEFAULT = "exact"

Drafters = Annotated[
    str, Option(help="Drafters joined by +, options after colons: suffix+lookup:max_ngram=3; none is plain.")
]
PlannerName = Annotated[
    str,
    Option(
        "--planner",
        help="How much is drafted: goodput as much as pays, fixed:16 is 16 draft nodes, off is none; "
        "policies follow, joined by +.",
    ),
]
RuleName = Annotated[
    str,
    Option(
        "--rule",
        metavar="RULE",
        help="Which draft tokens are accepted: exact leaves the text as it is. Lossy, which may change it: "
        "threshold:tau=0.15, top-k:k=2.",
    ),
]
Seed = Annotated[int | None, Option(help="The same seed gives the same text. [default: a new one]")]
Chat = Annotated[
    bool | None,
    Option(
        "--chat/--raw",
        help="Put the prompt into the model's chat template, or continue it as it stands. "
        "[default: the template, where the model has one]",
    ),
]
System = Annotated[str | None, Option(help="System message of the chat template.")]
Context = Annotated[
    list[str] | None,
    Option(metavar="TEXT|@FILE", help="Further text to draft from, not in the prompt; may be given again."),
]
Json = Annotated[bool, Option("--json", help="Print one JSON document and nothing else.")]


@dataclass(frozen=True)
class ModelFlag:
    """Which model."""

    model: Annotated[
        str,
        Option(
            "--model", "-m", help="A model of `draftwood info`, a folder, a GGUF file, a hub name, or ollama:NAME."
        ),
    ] = MODEL_DEFAULT


@dataclass(frozen=True)
class Engines:
    """What computes a model, whichever it is."""

    engine: Annotated[
        str | None,
        Option(
            help="cpu (our own, for folders too) or llama.cpp for GGUF files, or transformers. [default: cpu for "
            "GGUF files, fetched models and --weights, else transformers]"
        ),
    ] = None
    device: Annotated[
        str | None, Option(help="cpu, cuda, cuda:1 or mps. [default: the first of cuda, mps and cpu there is]")
    ] = None
    gpu_layers: Annotated[
        int, Option(min=-1, help="Layers of a GGUF model for a graphics card to compute; -1 is as many as fit.")
    ] = -1
    threads: Annotated[int | None, Option(min=1, help="CPU threads. [default: the engine's choice]")] = None


@dataclass(frozen=True)
class _MachineFlags(Engines):
    dtype: Annotated[str, Option(help="Number format: float32, bfloat16, float16 or auto.")] = "float32"
    pack: Annotated[
        bool, Option("--pack/--no-pack", help="On a CPU, copy the weights into a layout that is read faster.")
    ] = True
    exact: Annotated[
        bool | None,
        Option(
            "--exact/--fast",
            help="Compute a GGUF model so that drafts change no bit of the text, or as llama.cpp does by itself.",
        ),
    ] = None
    weights: Annotated[
        str | None,
        Option(
            metavar="int4|int8",
            help="Run on the weights in 4 or 8 bits, on our own engine: another model, faster and a little worse.",
        ),
    ] = None


@dataclass(frozen=True)
class Loading(_MachineFlags, ModelFlag):
    """Which model, and how it is run."""

    def for_transformers(self) -> Loading:
        """Return the same, by transformers if that can run the model and no other engine was named."""
        if self.engine is not None:
            return self
        return replace(self, engine=implied_engine(self.model, self.dtype, None, weights=self.weights))

    def load_model(self, *, release: bool = False) -> tuple[Any, Any]:
        """Return model, ready, and tokenizer; ``release`` frees weights of which packed copies are enough."""
        from draftwood.api.checks import is_target
        from draftwood.api.target import prepare

        # --no-pack is not for whatever loads the model, and only transformers has it
        how = {flag.name: getattr(self, flag.name) for flag in fields(_MachineFlags) if flag.name != "pack"}
        if not self.pack:
            how["engine"] = self.for_transformers().engine
        with screen.busy(f"loading {self.model}") as report:
            loaded = load(self.model, **how, report=report)
        gc.freeze()  # what was imported stays: it need not be looked at when garbage is collected
        if is_target(loaded[0]):  # a target, which needs no preparing
            if not self.pack:
                raise UsageError(f"--no-pack is for transformers, which does not run {self.model}: leave it out")
            if self.weights is not None:
                said = f"{self.model} runs on its weights as {self.weights}: its texts are those of another model"
                screen.say(said, file=sys.stderr)
            return loaded
        with screen.busy(f"preparing {self.model}"):
            try:
                prepare(loaded[0], pack=self.pack, release=release and self.pack)
            except UsageError:  # its passes need the weights that were to be released
                prepare(loaded[0], pack=self.pack)
        return loaded

    def setting_of(self, model: Any) -> Setting:
        """Return what the cost of the loaded model's passes depends on, under the name that the user gave."""
        from draftwood.models.findings import setting_of

        found = setting_of(model)
        assert found is not None, "every model that was loaded says its name"
        return found._replace(model=self.model)


@dataclass(frozen=True)
class SourceFlags:
    """Further texts to draft from."""

    prediction: Annotated[
        list[str] | None,
        Option(metavar="TEXT|@FILE", help="Text expected in the answer, to draft from; may be given again."),
    ] = None
    memory: Annotated[
        Path | None,
        Option(metavar="FILE", help="Draft from the answers kept here, and keep these; made if it is not there."),
    ] = None
    corpus: Annotated[
        list[Path] | None,
        Option(metavar="FILE", help="Draft from what `draftwood corpus build` wrote; may be given again."),
    ] = None
    context: Context = None

    @cached_property
    def sources(self) -> dict[str, Any]:
        """The keyword arguments of `draftwood.generate`; files of text are read, others only named."""
        given = {"prediction": self.prediction, "context": self.context}
        read = {what: [read_given(text, what) for text in texts or ()] or None for what, texts in given.items()}
        return {**read, "memory": self.memory, "corpus": self.corpus or None}


@dataclass(frozen=True)
class DraftingFlags:
    """What drafts, who decides how much, and which of it is accepted."""

    drafters: Drafters = DRAFTERS_DEFAULT
    planner: PlannerName = PLANNER_DEFAULT
    rule: RuleName = RULE_DEFAULT
    learned: Annotated[
        bool,
        Option(
            "--learned/--no-learned",
            help="Begin with what earlier runs learnt of this model's speed and of how often drafts are right, "
            "and keep what this one learns: numbers, never text.",
        ),
    ] = True


def shared(verb: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a verb that is a dataclass by one flag per field; the verb gets it filled in."""
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[Parameter] = []
    for name, own in signature(verb).parameters.items():
        if name not in groups:
            parameters.append(own.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))
            continue
        types = get_type_hints(groups[name], include_extras=True)
        parameters += [
            Parameter(flag.name, Parameter.KEYWORD_ONLY, default=flag.default, annotation=types[flag.name])
            for flag in fields(groups[name])
        ]

    parameters.sort(key=lambda parameter: parameter.name in _MachineFlags.__dataclass_fields__)  # those come last

    @wraps(verb)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{flag.name: given.pop(flag.name) for flag in fields(group)})
        verb(**given)

    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def group(name: str, help: str) -> typer.Typer:
    """Return a verb that only has verbs below it; without one of them it prints its help."""
    app = typer.Typer(name=name, help=help, invoke_without_command=True, rich_markup_mode=None)

    @app.callback(help=help)
    def top(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            print(context.get_help())

    return app


def was_given(call: typer.Context, name: str) -> bool:
    """Return whether the user gave this flag."""
    source = call.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def refuse_plain(drafters: str, planner: str, purpose: str) -> None:
    """Refuse, by UsageError, drafters or a planner that draft nothing; ``purpose`` begins the sentence."""
    from draftwood.drafters.load import load as load_drafters

    if not load_drafters(drafters):
        raise UsageError(f"{purpose}, and --drafters {drafters} is plain decoding: name drafters")
    if planner.partition("+")[0].strip() in ("off", "fixed:0"):
        raise UsageError(f"{purpose}, and --planner {planner} never drafts: choose another planner")


def check_sources(drafters: str, sources: dict[str, Any]) -> list[str]:
    """Open every file once, before a model is loaded; return the names of the drafters."""
    from draftwood.api.user_texts import UserTexts
    from draftwood.drafters.load import load as load_drafters

    given = UserTexts(**sources)
    complete = given.complete(load_drafters(drafters))
    given.opened(complete)
    memory = sources.get("memory")
    if memory is not None and not memory.exists():
        early.check_writable(memory, "--memory")
    return [d.name for d in complete]


def load_tokenizer(name: str) -> Any:
    """Load a model's tokenizer, showing on a terminal that this takes a moment."""
    with screen.busy(f"loading the tokenizer of {name}"):
        return tokenizer_of(name)
