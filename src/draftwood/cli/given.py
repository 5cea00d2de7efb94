"""The flags that decide how an answer is written, and the model they load."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from draftwood.cli import early, options
from draftwood.cli.options import DraftingFlags, Loading, ModelFlag, SourceFlags, check_sources
from draftwood.cli.prompt import read_given
from draftwood.decoding.stopping import StopStrings
from draftwood.errors import UsageError

if TYPE_CHECKING:
    from draftwood.decoding.request import Request


@dataclass(frozen=True)
class WritingFlags:
    """How the tokens of an answer are chosen, and where it ends."""

    max_new_tokens: Annotated[
        int | None, Option(min=1, help="Most tokens to write. [default: the model's own setting, else 256]")
    ] = None
    temperature: Annotated[float, Option(help="0 is greedy.")] = 0.0
    top_k: Annotated[int | None, Option(help="Sample from the K best tokens.")] = None
    top_p: Annotated[float | None, Option(help="Sample from the best tokens that hold this probability.")] = None
    min_p: Annotated[
        float | None, Option(help="Leave out tokens below this share of the best one's probability.")
    ] = None
    repetition_penalty: Annotated[
        float | None, Option(help="Above 1 makes tokens that are in the text already less likely.")
    ] = None
    seed: options.Seed = None
    stop: Annotated[
        list[str] | None, Option(metavar="TEXT", help="End the answer before this text; may be given again.")
    ] = None


@dataclass(frozen=True)
class GrammarFlags:
    """What the answer must look like."""

    json_schema: Annotated[
        str | None, Option(metavar="JSON|@FILE", help="Answer with JSON that this JSON Schema allows.")
    ] = None
    regex: Annotated[
        str | None, Option(metavar="PATTERN", help="Answer with a text that this expression matches.")
    ] = None
    grammar: Annotated[
        str | None,
        Option("--grammar", metavar="TEXT|@FILE", help="Answer with a text of this grammar (as for Lark)."),
    ] = None

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
            found = made[name](text if name == "regex" else read_given(text, name))
            found.compiled()
            return found
        return None


@dataclass(frozen=True)
class Given(Loading, GrammarFlags, WritingFlags, SourceFlags, DraftingFlags, ModelFlag):
    """Everything that decides how an answer is written."""

    @property
    def settings(self) -> dict[str, Any]:
        """What `draftwood.stream` and `draftwood.Conversation` call settings."""
        found = {name: getattr(self, name) for name in WritingFlags.__dataclass_fields__}
        return found | {"stop": self.stop or None} | ({} if self.asked is None else {"grammar": self.asked})

    @property
    def label(self) -> str:
        """The drafters with those that the sources add: ``suffix+prediction``."""
        from draftwood.api.user_texts import UserTexts

        return UserTexts(**self.sources).label(self.drafters)

    def load(self, prompt: str | None = None) -> Loaded:
        """Check everything that can be checked without a model, among it the ``prompt``, then load the model."""
        from draftwood.planning.load import load as load_planner
        from draftwood.verify.load import load as load_rule

        if not self.learned:
            from draftwood.models import findings

            findings.keep_no_learning()
        names = check_sources(self.drafters, self.sources)
        load_planner(self.planner)
        load_rule(self.rule)
        early.check_sampling(self.settings)
        if self.stop:
            StopStrings(self.stop, lambda _: "")  # refuses empty ones
        if prompt is not None:
            early.check_lengths(self.model, {"": prompt}, self.engine)
        return Loaded(self, *self.load_model(release="quantized-self" not in names), names)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to answer, and the names of the drafters, those that the sources add among them."""

    given: Given
    model: Any
    tokenizer: Any
    names: list[str]

    @property
    def keywords(self) -> dict[str, Any]:
        """All keyword arguments of `draftwood.stream` and `draftwood.Conversation` that the flags name."""
        given = self.given
        objects = {"tokenizer": self.tokenizer, "drafters": given.drafters}
        objects |= {"planner": given.planner, "rule": given.rule}
        return objects | given.sources | given.settings

    def request(self, ids: list[int]) -> Request:
        """Return what the flags ask for, the model's own settings filled in."""
        from draftwood.api.setup import Setup

        setup = Setup(self.model, self.tokenizer, self.given.drafters, self.given.planner)
        return setup.request(ids, **self.given.settings)
