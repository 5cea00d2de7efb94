"""The flags that decide how an answer is written, and the model they load."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from draftwood.cli import early, options
from draftwood.cli.options import Loading, ModelFlag
from draftwood.cli.prompt import read_given
from draftwood.errors import DraftwoodError, UsageError

if TYPE_CHECKING:
    from draftwood.api.generation import Generation
    from draftwood.decoding.request import Request


_MOST = 4096  # tokens of an answer that is written to its end
_LITTLE, _GAIN = 1.3, 1.15  # below so many tokens per pass, or times plain decoding, drafts brought little
_SLOW, _SURE = 8e-3, 32  # from so many seconds of a plain pass on a head pays; plain passes that it takes to know


@dataclass(frozen=True)
class WritingFlags:
    """How the tokens of an answer are chosen, and where it ends."""

    max_new_tokens: Annotated[
        int | None,
        Option(
            "--max-new-tokens",
            "-n",
            "--predict",
            "--n-predict",
            min=-1,
            help="Most tokens to write; -1: as many as fit. [default: the model's, else 4096, 256 to measure]",
        ),
    ] = None
    temperature: Annotated[
        float | None,
        Option(
            "--temperature",
            "--temp",
            help="0: always the likeliest token. [default: the model's, else 0.7 in chats, else 0]",
        ),
    ] = None
    top_k: Annotated[int | None, Option(help="Sample from this many of the likeliest tokens.")] = None
    top_p: Annotated[
        float | None, Option(help="Sample from the likeliest tokens whose probabilities add up to this.")
    ] = None
    min_p: Annotated[float | None, Option(help="Leave out tokens below this share of the top probability.")] = None
    repetition_penalty: Annotated[
        float | None,
        Option("--repetition-penalty", "--repeat-penalty", help="Above 1: fewer repeated tokens."),
    ] = None
    seed: options.Seed = None
    stop: Annotated[list[str] | None, Option(metavar="TEXT", help="End before this text; may be repeated.")] = None


@dataclass(frozen=True)
class GrammarFlags:
    """What the answer must look like."""

    json_schema: Annotated[str | None, Option(metavar="JSON|@FILE", help="Answer in JSON of this schema.")] = None
    regex: Annotated[str | None, Option(metavar="PATTERN", help="Answer with a text that this matches.")] = None
    grammar: Annotated[str | None, Option(metavar="TEXT|@FILE", help="Follow this Lark grammar.")] = None

    @cached_property
    def asked(self) -> Any:
        """The `Grammar` that was given, read and checked; None without one."""
        from draftwood.grammar.grammar import Grammar

        made = {"json_schema": Grammar.json_schema, "regex": Grammar.regex, "grammar": Grammar.lark}
        given = {name: text for name in made if (text := getattr(self, name)) is not None}
        if len(given) > 1:
            said = " and ".join(f"--{name.replace('_', '-')}" for name in given)
            raise UsageError(f"{said} were given: an answer can follow one of them")
        for name, text in given.items():
            found = made[name](text if name == "regex" else read_given(text, name.replace("_", " ")))
            found.compiled()
            return found
        return None


@dataclass(frozen=True)
class SourceFlags:
    """Further texts to draft from."""

    prediction: Annotated[
        list[str] | None,
        Option(
            metavar="TEXT|@FILE", help="Text that you expect in the answer: drafts copy it. May be given again."
        ),
    ] = None
    memory: Annotated[
        Path | None,
        Option(metavar="FILE", help="File of earlier answers: drafts copy them, and new answers are added."),
    ] = None
    corpus: Annotated[
        list[Path] | None,
        Option(
            metavar="FILE", help="File of `draftwood corpus build`: drafts copy its texts. May be given again."
        ),
    ] = None
    context: Annotated[
        list[str] | None,
        Option(
            metavar="TEXT|@FILE",
            help="Further text that drafts copy; the model does not read it. May be given again.",
        ),
    ] = None

    @cached_property
    def sources(self) -> dict[str, Any]:
        """The keyword arguments of `draftwood.generate`; files of text are read, others only named."""
        given = {"prediction": self.prediction, "context": self.context}
        read = {what: [read_given(text, what) for text in texts or ()] or None for what, texts in given.items()}
        return {**read, "memory": self.memory, "corpus": self.corpus or None}


@dataclass(frozen=True)
class DraftingFlags(SourceFlags):
    """The drafters and their texts, the planner, and the rule by which drafts are accepted."""

    drafters: options.Drafters = options.DRAFTERS_DEFAULT
    planner: options.PlannerName = options.PLANNER_DEFAULT
    rule: options.RuleName = options.RULE_DEFAULT
    learned: Annotated[
        bool,
        Option(
            "--learned/--no-learned",
            help="Use and keep what was learnt about the speed of this model here: numbers, never text.",
        ),
    ] = True

    def check(self) -> list[str]:
        """Check everything that can be checked without a model; return the names of the drafters."""
        if not self.learned:
            from draftwood.local import findings

            findings.keep_no_learning()
        check_names(self.planner, self.rule)
        return check_sources(self.drafters, self.sources)


@dataclass(frozen=True)
class Given(Loading, GrammarFlags, WritingFlags, DraftingFlags, ModelFlag):
    """Everything that decides how an answer is written."""

    @property
    def settings(self) -> dict[str, Any]:
        """What `draftwood.stream` and `draftwood.Conversation` call settings."""
        found = {name: getattr(self, name) for name in WritingFlags.__dataclass_fields__}
        if found["max_new_tokens"] == 0:
            raise UsageError("--max-new-tokens is 0: give at least 1, or -1 for as many as fit")
        if found["max_new_tokens"] == -1:
            found["max_new_tokens"] = sys.maxsize
        return found | {"stop": self.stop or None} | ({} if self.asked is None else {"grammar": self.asked})

    @property
    def label(self) -> str:
        """The drafters with those that the sources add: ``ngram+prediction``."""
        from draftwood.api.user_texts import UserTexts

        return UserTexts(**self.sources).label(self.drafters)

    def load(self) -> Loaded:
        """Check everything that can be checked without a model, then load it."""
        names = self.check()
        early.check_sampling(self.settings)
        if self.stop:
            from draftwood.api.text import StopStrings

            StopStrings(self.stop, lambda _: "")  # refuses empty ones
        return Loaded(self, *self.load_model(release="quantized-self" not in names), names)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to answer, and the names of the drafters, those that the sources add among them."""

    given: Given
    model: Any
    tokenizer: Any
    names: list[str]
    filled: Mapping[str, Any] = field(default_factory=dict)  # settings in place of those that no flag gave

    def to_the_end(self, *, is_chat: bool) -> Loaded:
        """Return the same for answers that are written to their end: where neither a flag nor the model says
        otherwise, they have at most 4,096 tokens, and chats the temperature 0.7."""
        from draftwood.api.checks import CHAT_TEMPERATURE, fill_sampling, new_tokens

        filled, config = dict(self.given.settings), self.model.generation_config
        fill_sampling(config, filled, otherwise=CHAT_TEMPERATURE if is_chat else 0.0)
        if getattr(config, "max_length", None) is None:  # which counts the prompt, too
            filled["max_new_tokens"] = new_tokens(config, filled["max_new_tokens"], 0, _MOST)
        return replace(self, filled={name: filled[name] for name in ("max_new_tokens", "temperature")})

    @property
    def settings(self) -> dict[str, Any]:
        """What `Given.settings` says, filled in."""
        return {**self.given.settings, **self.filled}

    @property
    def opening(self) -> str:
        """The line with which a session begins."""
        from draftwood.api.draft_models import DraftModels, with_models
        from draftwood.api.target import target_of
        from draftwood.api.user_texts import UserTexts
        from draftwood.cli.opening import opening
        from draftwood.drafters.load import load

        asked = UserTexts(**self.given.sources).complete(load(self.given.drafters))
        there = with_models(asked, DraftModels(target_of(self.model), self.tokenizer))
        return opening(self.model, [one.name for one in there], self.settings["temperature"] or 0.0)

    @property
    def most(self) -> int:
        """Tokens that a text and its answer can have together."""
        from draftwood.api.target import target_of

        return target_of(self.model).capabilities.max_positions

    @property
    def keywords(self) -> dict[str, Any]:
        """All keyword arguments of `draftwood.stream` and `draftwood.Conversation` that the flags name."""
        given = self.given
        return {
            "tokenizer": self.tokenizer,
            "drafters": given.drafters,
            "planner": given.planner,
            "rule": given.rule,
            **given.sources,
            **self.settings,
        }

    def request(self, ids: list[int]) -> Request:
        """Return what the flags ask for, the model's own settings filled in."""
        from draftwood.api.setup import Setup

        setup = Setup(self.model, self.tokenizer, self.given.drafters, self.given.planner)
        return setup.request(ids, **self.settings)

    def head_note(self, answer: Generation, speedup: float | None = None) -> str:
        """Say how to make a head, where drafts brought little, the model has none, and it would pay: at 2 ms
        a pass it saves what it costs, at 23 ms a fifth (docs/drafters/models.md). Else an empty string."""
        from draftwood.api.draft_models import DraftModels
        from draftwood.api.target import target_of
        from draftwood.drafters.load import load

        plain = [step.score_s for step in answer.steps if not step.drafted]
        asked = any(source.asked for step in answer.steps for source in step.by_source)
        gained = answer.stats.mean_acceptance_length >= _LITTLE if speedup is None else speedup >= _GAIN
        if gained or not asked or len(plain) < _SURE or median(plain) < _SLOW:
            return ""
        named = (getattr(drafter, "file", "") for drafter in load(self.given.drafters) if drafter.name == "head")
        try:
            DraftModels(target_of(self.model)).head(next(named, ""))
        except DraftwoodError as error:
            if isinstance(error, UsageError):  # for other errors it can have none, or the user has named a bad one
                how = f"draftwood train head {shlex.quote(self.given.model)} -o head.safetensors"
                return f"this answer repeats little: a head trained for this model drafts free text too ({how})"
        return ""


def check_names(planner: str, rule: str = options.RULE_DEFAULT) -> None:
    """Refuse a planner or a rule that does not exist."""
    from draftwood.planning.load import load as load_planner
    from draftwood.verify.load import load as load_rule

    load_planner(planner)
    load_rule(rule)


def check_sources(drafters: str, sources: dict[str, Any]) -> list[str]:
    """Open every file once, before a model is loaded; return the names of the drafters."""
    from draftwood.api.user_texts import UserTexts
    from draftwood.drafters.load import load as load_drafters

    given = UserTexts(**sources)
    complete = given.complete(load_drafters(drafters))
    memory = sources.get("memory")
    if memory is not None and memory.is_dir():
        raise UsageError(f"--memory {memory} is a folder: name a file, which need not be there yet")
    given.opened(complete)
    if memory is not None and not memory.exists():
        early.check_writable(memory, "--memory")
    return [d.name for d in complete]


def refuse_plain(drafters: str, planner: str, purpose: str) -> None:
    """Refuse, by UsageError, drafters or a planner that draft nothing; ``purpose`` begins the sentence."""
    from draftwood.drafters.load import load as load_drafters

    if not load_drafters(drafters):
        raise UsageError(f"{purpose}, and --drafters {drafters} is plain decoding: name drafters")
    if planner.partition("+")[0].strip() in ("off", "fixed:0"):
        raise UsageError(f"{purpose}, and --planner {planner} never drafts: choose another planner")
