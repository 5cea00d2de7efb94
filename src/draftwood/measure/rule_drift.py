"""What a lossy rule costs in text and gains in passes: its text against plain decoding's, both read by the model.

Plain decoding writes a text, each rule another one, from the same prompt and seed. The model then reads both, a
token per pass. The perplexity of each text under the model says how natural it finds it. The divergence is that of
the model's next-token distributions after as many tokens of either text: KL(after the plain text || after the
rule's text), in nats, over the positions that both texts have. It is 0 up to the first changed token, and then
counts everything that follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.api.learned import fresh, planner_of
from draftwood.api.prompts import Prompt, as_ids
from draftwood.api.setup import Setup
from draftwood.contracts import Drafter, Planner, Rule
from draftwood.decoding.loop import decode
from draftwood.decoding.request import Request
from draftwood.decoding.sequence import common_prefix
from draftwood.measure.drift import Reader, divergence, log_softmax, perplexity
from draftwood.planning.load import DEFAULT as DEFAULT_PLANNER
from draftwood.rates import Rates
from draftwood.step import Step
from draftwood.verify.exact import SampleAndMatch
from draftwood.verify.load import is_lossy, label, load

_WARM_PROMPT, _WARM_TOKENS = 16, 4


@dataclass(slots=True)
class Side:
    """A text, its passes, and how the model reads it."""

    ids: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    surprise: list[float] = field(default_factory=list)  # -log probability of each token, nats

    @property
    def seconds_per_token(self) -> float | None:
        """Decode seconds per token, reading the prompt excluded; None without a pass."""
        seconds, tokens = sum(step.seconds for step in self.steps), len(self.ids) - 1
        return seconds / tokens if seconds and tokens > 0 else None


@dataclass(slots=True)
class RuleDrift:
    """What one rule did to some prompts."""

    rule: str  # with its options
    lossy: bool
    plain: list[Side] = field(default_factory=list)  # of each prompt
    texts: list[Side] = field(default_factory=list)  # the rule's
    kl: list[list[float]] = field(default_factory=list)  # of each prompt and position, nats

    @property
    def changed(self) -> float | None:
        """Share of the texts that differ from plain decoding's; None without texts."""
        pairs = [(one.ids, other.ids) for one, other in zip(self.plain, self.texts, strict=True)]
        return sum(one != other for one, other in pairs) / len(pairs) if pairs else None

    @property
    def same_tokens(self) -> float | None:
        """Share of plain decoding's tokens before the first one that differs; None without texts."""
        kept = sum(common_prefix(one.ids, two.ids) for one, two in zip(self.plain, self.texts, strict=True))
        tokens = sum(len(one.ids) for one in self.plain)
        return kept / tokens if tokens else None

    @property
    def kl_mean(self) -> float:
        """Mean divergence per position, in nats; 0 without positions."""
        every = [value for one in self.kl for value in one]
        return math.fsum(every) / len(every) if every else 0.0

    @property
    def perplexity(self) -> float | None:
        """Perplexity of the rule's texts under the model."""
        return perplexity([value for one in self.texts for value in one.surprise])

    @property
    def perplexity_plain(self) -> float | None:
        """Perplexity of plain decoding's texts under the model."""
        return perplexity([value for one in self.plain for value in one.surprise])

    @property
    def perplexity_change(self) -> float | None:
        """Perplexity of the rule's texts less plain decoding's; below 0 the model finds the rule's likelier."""
        mine, plain = self.perplexity, self.perplexity_plain
        return None if mine is None or plain is None else mine - plain

    @property
    def tokens_per_pass(self) -> float:
        """Mean acceptance length: tokens per pass of the model."""
        return Rates.of([step for one in self.texts for step in one.steps]).mean_acceptance_length

    @property
    def speedup(self) -> float | None:
        """Plain seconds per token / the rule's, each text written once; None where a side has no pass."""
        pairs = [
            (one.seconds_per_token, two.seconds_per_token) for one, two in zip(self.plain, self.texts, strict=True)
        ]
        timed = [(plain, mine) for plain, mine in pairs if plain and mine]
        return sum(p for p, _ in timed) / sum(m for _, m in timed) if timed else None

    def to_json(self) -> dict[str, Any]:
        """Return the figures, JSON-ready."""
        names = (
            "rule", "lossy", "changed", "same_tokens", "kl_mean", "perplexity_plain", "perplexity",
            "perplexity_change", "tokens_per_pass", "speedup",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names} | {"ids": [one.ids for one in self.texts]}


def empty(rules: Sequence[str | Rule]) -> list[RuleDrift]:
    """Return a result without texts for each rule, for `rule_drift` to fill."""
    return [RuleDrift(label(rule), is_lossy(rule)) for rule in map(load, rules)]


def rule_drift(
    model: Any, prompt: Prompt, rules: Sequence[str | Rule], into: Sequence[RuleDrift], **settings: Any
) -> None:
    """Write a text plainly and by each rule, and add what was found of each to ``into`` (of `empty`).

    Settings are those of `draftwood.generate`; all texts have one seed, and each begins with a planner that has
    learnt nothing. A prompt under way at an interrupt is left out. Raises what `generate` raises.
    """
    drafters, planner = settings.pop("drafters", "default"), settings.pop("planner", DEFAULT_PLANNER)
    setup = Setup(model, settings.pop("tokenizer", None), drafters, planner)
    request = setup.request(as_ids(prompt, setup.tokenizer), **settings)
    request.check(setup.target.capabilities)

    def written(rule: Rule, by: Sequence[Drafter], how: str | Planner, request: Request = request) -> Side:
        alone = planner_of(how, fresh(setup.model))
        side = Side()
        for emission in decode(setup.target, by, alone, rule, [request]):
            side.ids += emission.tokens
            side.steps += [emission.step] if emission.step is not None else []
        return side

    arms = [partial(written, SampleAndMatch(), (), "off")]
    arms += [partial(written, load(rule), setup.drafters, planner) for rule in rules]
    done = len(into[0].texts) if into else 0
    if not done:  # what the first pass of a process takes longer is nobody's
        for arm in arms[:2]:
            arm(replace(request, prompt=request.prompt[:_WARM_PROMPT], limit=_WARM_TOKENS))
    turns = [(done + n) % len(arms) for n in range(len(arms))]  # another one begins with each prompt
    sides = {number: arms[number]() for number in turns}
    plain, *found = (sides[number] for number in range(len(arms)))
    rows = _read(setup, request, plain)
    for side, result in zip(found, into, strict=True):
        theirs = rows if side.ids == plain.ids else _read(setup, request, side)
        side.surprise = [-float(row[token]) for row, token in zip(theirs, side.ids, strict=True)]
        result.plain.append(plain)
        result.texts.append(side)
        result.kl.append([divergence(p, q) for p, q in zip(rows, theirs, strict=False)])


def _read(setup: Setup, request: Request, side: Side) -> list[NDArray[np.float64]]:
    """Return the model's log distributions before each token of a text, and note their surprise."""
    rows = []
    with closing(Reader(setup.target, request)) as reader:
        for token in side.ids:
            rows.append(log_softmax(reader.row))
            reader.read(token)
    side.surprise = [-float(row[token]) for row, token in zip(rows, side.ids, strict=True)]
    return rows
