"""Flags that several verbs share. Imports nothing heavy: ``--help`` must be instant."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer import Option

from draftwood.cli import screen
from draftwood.errors import UsageError
from draftwood.local.hub_names import hub_name
from draftwood.models.engine import FASTEST, implied_engine
from draftwood.models.here import here
from draftwood.models.load import load
from draftwood.models.load import load_tokenizer as tokenizer_of

if TYPE_CHECKING:
    from draftwood.local.findings import Setting

# Repeated here, since the modules that define them import numpy; a test compares both.
MODEL_DEFAULT = "smollm2"
DRAFTERS_DEFAULT = "default"
PLANNER_DEFAULT = "goodput"
RULE_DEFAULT = "exact"

Drafters = Annotated[str, Option(help="Drafters, joined by +: ngram+lookup:max_ngram=3. none: no drafts.")]
PlannerName = Annotated[
    str,
    Option(
        "--planner",
        help="How much is drafted: goodput (as much as pays), fixed:16, off; with policies: goodput+battery.",
    ),
]
RuleName = Annotated[
    str,
    Option(
        "--rule",
        metavar="RULE",
        help="exact keeps the text that is written without drafts; threshold:tau=0.15 and top-k:k=2 may "
        "change it.",
    ),
]
Seed = Annotated[
    int | None, Option("--seed", "-s", help="The same seed gives the same text. [default: a new one]")
]
Chat = Annotated[
    bool | None,
    Option(
        "--chat/--raw",
        help="Use the model's chat template, or continue the text as it is. [default: --chat if it has "
        "a template]",
    ),
]
System = Annotated[
    str | None,
    Option("--system", "-sys", "--system-prompt", metavar="TEXT|@FILE", help="System message."),
]
Json = Annotated[bool, Option("--json", help="Print one JSON document and nothing else.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print the answer and nothing about it.")]


@dataclass(frozen=True)
class ModelFlag:
    """Which model."""

    model: Annotated[
        str,
        Option(
            "--model", "-m", "-hf", "--hf-repo",
            metavar="MODEL", help="A model of `draftwood list`, a folder, a GGUF file, or a hub name.",
        ),
    ] = MODEL_DEFAULT  # fmt: skip
    hf_file: Annotated[
        str | None,
        Option("--hf-file", metavar="FILE", help="The GGUF file of -hf owner/name, as in owner/name/FILE."),
    ] = None

    def __post_init__(self) -> None:
        if self.hf_file is not None:
            if not (name := hub_name(self.model)):
                raise UsageError(
                    f"--hf-file is a file of the hub, and {self.model} is no name there: give -hf owner/name"
                )
            object.__setattr__(self, "model", f"hf:{name.repository}/{self.hf_file}")
            object.__setattr__(self, "hf_file", None)


@dataclass(frozen=True)
class Engines:
    """What computes a model, whichever it is."""

    engine: Annotated[
        str | None,
        Option(help="cpu (draftwood's own), llama.cpp or transformers. [default: the fastest here for the model]"),
    ] = None
    device: Annotated[str | None, Option(help="cpu, cuda, cuda:1 or mps. [default: the best there is]")] = None
    gpu_layers: Annotated[
        int,
        Option(
            "--gpu-layers", "-ngl", "--n-gpu-layers",
            min=-1, help="Layers of a GGUF file on a graphics card; -1: all.",
        ),
    ] = -1  # fmt: skip
    threads: Annotated[
        int | None, Option("--threads", "-t", min=1, help="CPU threads. [default: the engine's choice]")
    ] = None


@dataclass(frozen=True)
class _MachineFlags(Engines):
    dtype: Annotated[str, Option(help="Number format of a folder's model.")] = "float32"
    exact: Annotated[
        bool | None,
        Option(
            "--exact/--fast",
            help="On llama.cpp: passes in which drafts change no rounding, or faster ones. [default: "
            "--exact if possible]",
        ),
    ] = None
    weights: Annotated[
        str | None,
        Option(
            metavar="int4|int8",
            help="Round the weights to 4 or 8 bits, on the engine cpu: faster, but another model, a little worse.",
        ),
    ] = None


@dataclass(frozen=True)
class Loading(_MachineFlags, ModelFlag):
    """Which model, and how it is run."""

    ctx_size: Annotated[
        int,
        Option(
            "--ctx-size", "-c",
            min=0, help="Most tokens of a text with its answer, if fewer than the model takes; 0: as many.",
        ),
    ] = 0  # fmt: skip

    def for_transformers(self) -> Loading:
        """Return the same, by transformers if that can run the model and no other engine was named."""
        if self.engine is not None:
            return self
        with screen.busy(f"loading {self.model}") as report:
            place = here(self.model, report)
        return replace(self, engine=implied_engine(place, self.dtype, None, weights=self.weights))

    def load_model(self, *, release: bool = False) -> tuple[Any, Any]:
        """Return the prepared model and its tokenizer; ``release`` frees weights where packed copies suffice."""
        from draftwood.api.target import prepare
        from draftwood.contracts import Target

        how = {flag.name: getattr(self, flag.name) for flag in fields(_MachineFlags)}
        how["engine"] = self.engine or FASTEST
        with screen.busy(f"loading {self.model}") as report:
            loaded = load(self.model, **how, report=report)
        gc.freeze()  # what was imported stays, so garbage collection need not scan it
        if not isinstance(loaded[0], Target):
            with screen.busy(f"preparing {self.model}"):
                try:
                    prepare(loaded[0], release=release)
                except UsageError:  # its passes need the weights that were to be released
                    prepare(loaded[0])
        elif self.weights is not None:
            said = f"{self.model} runs on its weights as {self.weights}: its texts are those of another model"
            screen.say(said, file=sys.stderr)
        if self.ctx_size:
            self._shorten(loaded[0])
        return loaded

    def _shorten(self, model: Any) -> None:
        """Let a model take as many tokens as were asked for; memory for them is taken as texts grow."""
        from draftwood.contracts import Target

        if not isinstance(model, Target):
            raise UsageError("--ctx-size is for models on the engines cpu and llama.cpp: leave it out")
        able = model.capabilities
        if self.ctx_size > able.max_positions:
            said = f"{self.model} takes {able.max_positions:,} tokens, not the {self.ctx_size:,} of --ctx-size"
            screen.say(said, file=sys.stderr)
        model.capabilities = replace(able, max_positions=min(self.ctx_size, able.max_positions))

    def setting_of(self, model: Any) -> Setting:
        """Return what the cost of the loaded model's passes depends on, under the name that the user gave."""
        from draftwood.local.findings import setting_of

        found = setting_of(model)
        assert found is not None, "every model that was loaded says its name"
        return found._replace(model=self.model)


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


def given_flags(call: typer.Context) -> Iterator[tuple[str, str]]:
    """Yield the name and the flag of each parameter that the user gave."""
    for parameter in call.command.params:
        source = call.get_parameter_source(name := parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            yield name, parameter.opts[0]


def numbers(text: str | None, flag: str) -> list[int] | None:
    """Read whole numbers with commas between; None stays None. `UsageError` for anything else."""
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"{flag} {text!r:.80} is no list of whole numbers: write it as 1,4,16") from error


def load_tokenizer(name: str) -> Any:
    """Load a model's tokenizer, showing on a terminal that this takes a moment."""
    with screen.busy(f"loading the tokenizer of {name}"):
        return tokenizer_of(name)
