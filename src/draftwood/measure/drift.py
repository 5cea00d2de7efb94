"""How far another way of computing differs from plain decoding: a wide pass, a lossy rule.

At each position the distributions of the next token, softmax of the raw scores before temperature and truncation,
are compared: KL(plain || other) = sum over tokens of p log(p / q), in nats (Kullback and Leibler, "On Information
and Sufficiency", 1951), and the perplexity of the text under each.

A lossy rule writes another text (`rule_drift`): the model then reads both; perplexities say how natural it
finds them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.api.generation import Generation
from draftwood.api.learned import fresh
from draftwood.api.prompts import Prompt, as_ids
from draftwood.api.setup import Setup
from draftwood.contracts import Ended, Floats, Rule, RuleSession, Scores, Target, Verdict
from draftwood.decoding.loop import decode
from draftwood.decoding.request import Request
from draftwood.errors import UsageError
from draftwood.measure.compare import compare
from draftwood.planning.load import DEFAULT as DEFAULT_PLANNER
from draftwood.planning.load import load as load_planner
from draftwood.rates import Rates
from draftwood.tree import TokenTree
from draftwood.verify.exact import SampleAndMatch
from draftwood.verify.noise import KeyedNoise
from draftwood.verify.sampling import choose, penalise


@dataclass(slots=True)
class Drift:
    """What was found along one text, or along several (`total`); lists have an entry per token of the text. Of no
    tokens means are 0, and other figures None."""

    kl: list[float] = field(default_factory=list)  # KL(plain || other) in nats, never negative
    # -log probability of the token under each side, in nats.
    surprise_plain: list[float] = field(default_factory=list)
    surprise_other: list[float] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)  # whether both sides choose the same token here
    ids: list[int] = field(default_factory=list)  # the text

    def figures(self, *, positions: bool = False) -> dict[str, Any]:
        """Return what these lists amount to, JSON-ready, and with ``positions`` the lists themselves."""
        tokens = len(self.kl)
        lists = {name: getattr(self, name) for name in ("ids", "kl", "surprise_plain", "surprise_other")}
        return {
            "tokens": tokens,
            "kl_mean": math.fsum(self.kl) / tokens if tokens else 0.0,
            "kl_max": max(self.kl, default=0.0),
            "perplexity_plain": perplexity(self.surprise_plain),
            "perplexity_other": perplexity(self.surprise_other),
            "equal_share": sum(self.same) / tokens if tokens else None,
            "first_difference": None if all(self.same) else self.same.index(False),
            "text_identical": all(self.same),
        } | (lists if positions else {})

    @classmethod
    def total(cls, found: Sequence[Drift]) -> Drift:
        """Join texts: means are over all tokens, ``first_difference`` is an index into all texts in a row."""
        names = ("kl", "surprise_plain", "surprise_other", "same", "ids")
        return cls(*([value for one in found for value in getattr(one, name)] for name in names))

    def add(self, token: int, plain: Floats, other: Floats, *, same: bool) -> None:
        """Add a token of the text with the raw scores, float32[vocab], that each side gave before it."""
        p, q = log_softmax(plain), log_softmax(other)
        self.kl.append(divergence(p, q))
        self.surprise_plain.append(-float(p[token]))
        self.surprise_other.append(-float(q[token]))
        self.same.append(same)
        self.ids.append(token)


def log_softmax(row: Floats) -> NDArray[np.float64]:
    """Log probabilities of raw scores, float64[vocab]."""
    wide = row.astype(np.float64)
    wide -= wide.max()
    wide -= math.log(np.exp(wide).sum())
    return wide


def divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """Return KL(p || q) of two log distributions, in nats; infinite where q excludes what p allows."""
    possible = p > -np.inf
    there = p[possible]
    # Rounding can bring the divergence of nearly equal distributions slightly below zero.
    return max(0.0, float((np.exp(there) * (there - q[possible])).sum()))


def drift(model: Any, prompt: Prompt, *, into: Drift | None = None, **settings: Any) -> Drift:
    """Compare plain decoding with drafted decoding.

    The drafted loop writes an answer; the scores of its wide passes are compared with those of single-token passes
    over the same text. ``into`` is filled token by token. Settings are those of `draftwood.generate`. Raises what
    that raises, and `UsageError` for logits processors and stop strings.
    """
    result = Drift() if into is None else into
    if refused := {"logits_processor", "stop"} & {name for name, given in settings.items() if given is not None}:
        raise UsageError(f"drift does not take {' or '.join(sorted(refused))}: leave it out")
    drafters, planner = settings.pop("drafters", "default"), settings.pop("planner", DEFAULT_PLANNER)
    setup = Setup(model, settings.pop("tokenizer", None), drafters, planner)
    alone = load_planner(planner, fresh(setup.model))  # what others learnt would change the trees
    request = setup.request(as_ids(prompt, setup.tokenizer), **settings)
    request.check(setup.target.capabilities)
    recording = _RecordingRule()
    with closing(TextReader(setup.target, request)) as reader:
        for _ in decode(setup.target, setup.drafters, alone, recording, [request]):
            while recording.decisions:  # between steps, when the target may be used for something else
                token, row = recording.decisions.popleft()
                result.add(token, reader.row, row, same=reader.choice() == token)
                reader.read(token)
    return result


class _RecordingRule(Rule):
    """The exact rule; notes each emitted token with a copy of the scores that decided it."""

    def __init__(self) -> None:
        self.decisions: deque[tuple[int, Floats]] = deque()  # (token, raw scores float32[vocab])

    def open(self, *request: Any, **settings: Any) -> RuleSession:
        return _RecordingSession(SampleAndMatch().open(*request, **settings), self.decisions)


class _RecordingSession(RuleSession):
    def __init__(self, session: RuleSession, decisions: deque[tuple[int, Floats]]) -> None:
        self._session, self._decisions, self.noise = session, decisions, session.noise

    def verify(self, tree: TokenTree, scores: Scores, ended: Ended) -> Verdict:
        verdict = self._session.verify(tree, scores, ended)
        rows = (0, *(1 + node for node in verdict.path))
        for token, row in zip(verdict.emitted, rows, strict=False):  # the last node may carry the end of the text
            self._decisions.append((token, scores.numpy(scores.raw(row)).copy()))
        return verdict

    def extend(self, ids: Sequence[int]) -> None:
        self._session.extend(ids)


class TextReader:
    """Reads a text as plain decoding does, a token per pass; `row` has its scores for the next token."""

    def __init__(self, target: Target, request: Request) -> None:
        self._target, self._sampling = target, request.sampling
        self._noise = None if request.sampling.greedy else KeyedNoise(request.sampling.seed, request.sequence)
        self._text = list(request.prompt)
        ((self._session, scores),) = target.open([request.prompt], reserve=request.limit)
        self.row: Floats = scores.numpy(scores.raw(0))

    def choice(self) -> int:
        """Return the token that the exact rule takes next."""
        row = self.row
        if self._sampling.repetition_penalty != 1:
            ids = np.unique(self._text[-(self._sampling.penalty_last_n or 0) :])
            row = penalise(row, ids, self._sampling.repetition_penalty)
        return choose(row, self._sampling, self._noise, len(self._text))

    def read(self, token: int) -> None:
        self._text.append(token)
        if self._session.length >= self._target.capabilities.max_positions:  # the text ends here
            return
        (scores,) = self._target.score([(self._session, token, TokenTree.empty())])
        self._session.keep(())
        self.row = scores.numpy(scores.raw(0))

    def close(self) -> None:
        self._session.close()


def perplexity(surprise: Sequence[float]) -> float | None:
    """Return exp of the mean surprise, in nats; None without tokens."""
    return math.exp(math.fsum(surprise) / len(surprise)) if surprise else None


@dataclass(slots=True)
class RuleDrift:
    """What one rule did to some prompts: its texts, plain decoding's, and how the model reads both. Figures are
    None without texts."""

    rule: str  # with its options
    lossy: bool
    plain: list[Generation] = field(default_factory=list)
    texts: list[Generation] = field(default_factory=list)
    # -log probability of each token of all these texts, in nats.
    surprise_plain: list[float] = field(default_factory=list)
    surprise: list[float] = field(default_factory=list)
    busy: set[int] = field(default_factory=set)  # which of them were written while the machine was busy

    def figures(self) -> dict[str, Any]:
        """Return what was found, JSON-ready.

        ``changed``: share of the texts. ``perplexity_change``: of the rule's texts less plain decoding's; below 0
        the model finds the rule's likelier. ``speedup``: plain seconds for as many tokens / the rule's,
        each text written once, without those written while the machine was ``busy``, which are counted;
        ``most_speedup``: what its tokens per pass allow; None where a side has no pass.
        """
        differ = [one.ids != two.ids for one, two in zip(self.plain, self.texts, strict=True)]
        mine, plain = perplexity(self.surprise), perplexity(self.surprise_plain)
        pairs = [(_pace(one), two) for one, two in zip(self.plain, self.texts, strict=True)]
        quiet = [pair for number, pair in enumerate(pairs) if number not in self.busy]
        timed = [(pace, text) for pace, text in quiet if pace and _pace(text)]
        plainly = sum(pace * (len(text.ids) - 1) for pace, text in timed)
        return {
            "rule": self.rule,
            "lossy": self.lossy,
            "changed": sum(differ) / len(differ) if differ else None,
            "perplexity_change": None if mine is None or plain is None else mine - plain,
            "tokens_per_pass": Rates.of([s for text in self.texts for s in text.steps]).mean_acceptance_length,
            "speedup": plainly / sum(step.seconds for _, text in timed for step in text.steps) if timed else None,
            "most_speedup": plainly / sum(pace * len(text.steps) for pace, text in timed) if timed else None,
            "busy": len(self.busy),
            "perplexity_plain": plain,
            "perplexity": mine,
            "ids": [text.ids for text in self.texts],
        }


def _pace(text: Generation) -> float | None:
    """Return decode seconds per token, reading the prompt excluded; None without a pass."""
    seconds, tokens = sum(step.seconds for step in text.steps), len(text.ids) - 1
    return seconds / tokens if seconds and tokens > 0 else None


def rule_drift(model: Any, prompt: Prompt, into: Sequence[RuleDrift], **settings: Any) -> None:
    """Write a text plainly and by each rule, and add what was found of each to ``into``.

    Settings are those of `draftwood.generate`, ``seed`` among them. A prompt under way at an interrupt is left
    out. Raises what `generate` raises.
    """
    found = [compare(model, prompt, rounds=1, rule=one.rule, **settings) for one in into]
    reading = {name: settings[name] for name in settings if name not in ("drafters", "planner", "tokenizer")}
    setup = Setup(model, settings.get("tokenizer"), "none", "off")
    request = setup.request(as_ids(prompt, setup.tokenizer), **reading)
    different = {tuple(text.ids) for one in found for text in (*one.plain, *one.drafted)}
    read = {ids: _surprise(setup.target, request, ids) for ids in different}
    for one, result in zip(found, into, strict=True):
        (plain,), (text,) = one.plain, one.drafted
        result.plain.append(plain)
        result.texts.append(text)
        result.busy |= {len(result.texts) - 1} if one.busy else set()
        result.surprise_plain += read[tuple(plain.ids)]
        result.surprise += read[tuple(text.ids)]


def _surprise(target: Target, request: Request, ids: Sequence[int]) -> list[float]:
    found = []
    with closing(TextReader(target, request)) as reader:
        for token in ids:
            found.append(-float(log_softmax(reader.row)[token]))
            reader.read(token)
    return found
