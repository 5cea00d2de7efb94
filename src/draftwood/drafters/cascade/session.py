"""One text of a cascade: what its draft model has written ahead of it, and whether to write more."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from draftwood.contracts import (
    Drafter,
    Ended,
    Floats,
    Ints,
    Noise,
    PlannerSession,
    Prices,
    Rule,
    RuleSession,
    Sampling,
    Scores,
    Target,
    Verdict,
    Watch,
)  # fmt: skip
from draftwood.decoding.feedback import BrokenRowError
from draftwood.decoding.request import Request, Stopping
from draftwood.decoding.sequence import ActiveSequence
from draftwood.drafters.base import TextSession
from draftwood.drafters.draft_model.experience import evidence_class
from draftwood.drafters.draft_model.growth import SAMPLED, Candidate, candidates
from draftwood.drafters.draft_model.session import can_read
from draftwood.step import StageStep, Step, stages_of
from draftwood.tree import TokenTree

_HOPE, _MOST_HOPE = 0.7, 0.999  # belief in the next token: at first, and the most that is counted on
_KEEP = 0.95  # weight of earlier tokens and passes in the averages
_RESERVE = 256  # tokens that the cache of a new text has room for as well


class CascadeSession(TextSession):
    """One text, and the text that the draft model of a ``cascade``, a `CascadeDrafter`, writes ahead of it."""

    def __init__(self, prompt: Sequence[int], noise: Noise | None, cascade: Any) -> None:
        super().__init__(prompt)
        self.prices, self.ends = Prices(), frozenset[int]()
        self.stages: tuple[StageStep, ...] = ()
        self._cascade, self._noise = cascade, noise
        # Decides how much of the inner drafts the model scores.
        self.planner: PlannerSession = cascade.planner.open()
        self._room = cascade.own.capabilities.max_positions
        self._ahead: Ahead | None = None  # None: the model has read nothing of the text
        self._hope, self._pace = _HOPE, 1.0  # pace: tokens that a pass of the model writes
        self._most = 0  # tokens of the draft under way
        self._own, self._inner = StageStep(cascade.model), tuple[StageStep, ...]()  # counts of that draft

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        return self._cascade.draft_many([self], [nodes], [lookahead_nodes], accept_rates)[0]

    def truncate(self, length: int) -> None:
        super().truncate(length)
        if self._ahead is not None:
            self._ahead.cut(self._length)
        if not self._length:
            self.drop()

    def close(self) -> None:
        self.drop()

    def drop(self) -> None:
        """Free the model's cache; the next draft reads the text again."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()

    # What `CascadeDrafter.draft_many` does with it.

    def begin(self, nodes: int) -> bool:
        """Begin a draft; returns whether there is anything to write, which there is not after unknown tokens."""
        self._own, self._inner = StageStep(self._cascade.model), ()
        readable = self._length and can_read(self._cascade.own, self.text)
        self._most = max(0, min(nodes, self._cascade.length, self._room - self._length)) if readable else 0
        return self._most > 0

    @property
    def is_new(self) -> bool:
        """Whether the model has read nothing of the text."""
        return self._ahead is None

    def unread(self) -> list[int]:
        """Follow the committed text; returns what of it the model must read before its next pass."""
        if self._ahead is None:
            text = self.text.tolist()
            self._ahead = Ahead(text, self._noise, self._cascade.own, self._cascade.drafters)
            return text
        return self._ahead.follow(self.text)

    @property
    def cache_bytes(self) -> int | None:
        """Bytes that the cached tokens take in the caches of its model and of its drafters; None: not known."""
        if self._ahead is None or not self._ahead.is_open:
            return 0
        every = [self._ahead.session.cache_bytes, *self._ahead.draft_caches()]
        known = [each for each in every if each is not None]
        return sum(known) if len(known) == len(every) else None

    @property
    def ahead(self) -> Ahead:
        """The text that the model writes; `unread` makes it."""
        assert self._ahead is not None
        return self._ahead

    @property
    def is_short(self) -> bool:
        """Whether the draft may have more tokens."""
        written = self._written()
        if len(written) >= self._most or self.ahead.finish == "error" or not all(map(self._proposes, written)):
            return False
        return not (written and written[-1].token in self.ends)

    def pays(self, accept_rates: Floats, seconds: float) -> bool:
        """Whether another pass of the model, which takes so many seconds, is worth its time."""
        if not self.is_short:
            return False
        prices = self.prices
        if not prices.pass_s:
            return True
        reach, hope = 1.0, min(self._hope, _MOST_HOPE)
        for _, belief in _believed(self._written(), accept_rates):
            reach *= belief
        accepted = reach * hope * (1 - hope**self._pace) / (1 - hope)  # of what the pass writes, by the target
        return prices.pass_s * (accepted * prices.token - self._pace * prices.node) > seconds

    def wants_more(self) -> None:
        """Let the model write the tokens that are still missing."""
        self.ahead.wants(self._most - len(self._written()))

    def count(self, accept_rates: Floats, tokens: int, seconds: float, step: Step | None = None) -> None:
        """Record a pass that wrote so many tokens; ``step`` is None where it only read text."""
        drafted, accepted = (0, 0) if step is None else (step.drafted, step.accepted)
        self._own += StageStep(self._own.name, 1, drafted, accepted, seconds)
        if step is not None:
            self._inner = stages_of((self._inner, *[source.stages for source in step.by_source]))
            self._pace = _KEEP * self._pace + (1 - _KEEP) * max(1, tokens)
        believed = _believed(self._written(), accept_rates)
        for _, belief in believed[len(believed) - tokens :] if tokens else ():
            self._hope = _KEEP * self._hope + (1 - _KEEP) * belief

    def tree(self, accept_rates: Floats) -> TokenTree:
        self.stages = (self._own, *self._inner) if self._own.passes else ()
        written = list(takewhile(self._proposes, self._written())) if self._most else []
        if not written:
            return TokenTree.empty()
        believed = _believed(written, accept_rates)
        return TokenTree.build(
            [one.token for one in written],
            belief=np.array([belief for _, belief in believed], dtype=np.float32),
            evidence=[evidence for evidence, _ in believed],
            draft_prob=np.array([one.probability for one in written], dtype=np.float32),
        )

    def _written(self) -> list[Candidate]:
        return self.ahead.ahead_of(self._length)[: self._most]

    def _proposes(self, one: Candidate) -> bool:
        """Whether the draft takes this token in; it ends before the first that it does not."""
        size = self._cascade.found.vocab_size
        return (size is None or one.token < size) and one.confidence >= self._cascade.p_min


def _believed(written: Sequence[Candidate], accept_rates: Floats) -> list[tuple[int, float]]:
    """Return evidence class and acceptance rate of each token that was written ahead."""
    classes = [evidence_class(one.confidence, depth, copied=False) for depth, one in enumerate(written, 1)]
    return [(evidence, float(accept_rates[evidence])) for evidence in classes]


class AheadRule(Rule, RuleSession):
    """Chooses the draft model's next token, with the noise that the target will use: the best of ``SAMPLED``.

    The text does not depend on what was drafted, as with the exact rule. One object is rule and session of a text
    of ``length`` tokens; ``written`` are the tokens chosen last, with what the draft model makes of each.
    """

    def __init__(self, length: int, noise: Noise | None) -> None:
        self.noise, self.written = noise, list[Candidate]()
        self._length = length

    def extend(self, ids: Sequence[int]) -> None:
        """Do nothing: `restart` says where the text goes on."""

    def open(self, *_: Any) -> AheadRule:
        """As in the contract (`draftwood.contracts.Rule`), whose arguments the constructor got."""
        return self

    def verify(self, tree: TokenTree, scores: Scores, ended: Ended) -> Verdict:
        ids, probabilities = scores.top_k(1 if self.noise is None else SAMPLED)
        path, emitted = list[int](), list[int]()
        node, finish = -1, None
        while finish is None and (node >= 0 or not emitted):
            if not probabilities[node + 1, 0] > 0:
                return Verdict(tuple(path), tuple(emitted), error=BrokenRowError())
            one = self._choice(ids[node + 1], probabilities[node + 1])
            self.written.append(one)
            self._length += 1
            emitted.append(one.token)
            finish = ended(one.token)
            node = tree.child(node, one.token)
            if node >= 0:
                path.append(node)
        return Verdict(tuple(path), tuple(emitted), finish)

    def _choice(self, ids: Ints, probabilities: Floats) -> Candidate:
        if self.noise is None:  # the best token however unlikely it is
            best = float(probabilities[0])
            return Candidate(int(ids[0]), best, best)
        return candidates(ids, probabilities, self._length, self.noise, 1)[0]

    def restart(self, length: int) -> None:
        """Continue after ``length`` tokens and forget all earlier choices."""
        self._length = length
        self.written.clear()


class Ahead(ActiveSequence):
    """A text that a draft model writes ahead of the committed one, and cuts back to where that one differs.

    What it has written stays as long as the committed text agrees, so no token of the text is read twice.
    """

    rule: AheadRule

    def __init__(
        self, text: Sequence[int], noise: Noise | None, target: Target, drafters: Sequence[Drafter]
    ) -> None:
        sampling = Sampling() if noise is None else Sampling(temperature=noise.temperature)
        super().__init__(0, Request(text, _RESERVE, sampling), target, drafters, AheadRule(len(text), noise))
        self._common = 0  # tokens that are known to be the committed text's

    def cut(self, length: int) -> None:
        """Take note that the committed text was cut to its first ``length`` tokens: others may follow them."""
        self._common = min(self._common, length)

    def follow(self, text: Ints) -> list[int]:
        """Drop what differs from the committed text; return its tokens that the draft model has not read.

        The list is empty if a pass can start at once: the cache holds all of the text but its last token, or more
        of it was written here. Otherwise `read_on` comes next.
        """
        self.finish = self.error = None
        first = min(self._common, len(text))
        mine = self.ids[first : len(text)]
        differs = np.flatnonzero(np.asarray(mine) != text[first : first + len(mine)])
        common = first + (int(differs[0]) if len(differs) else len(mine))
        self._common = len(text)
        ahead = len(self.ids) - len(text)
        if common == len(text) and ahead <= len(self.rule.written) and self.session.length >= len(text) - 1:
            del self.rule.written[: len(self.rule.written) - ahead]
            return []
        self.session.truncate(min(common, len(text) - 1, self.session.length))
        known = self.session.length
        for source in self.sources:
            source.truncate(common)
            source.extend(text[common:].tolist())
        self.ids = text.tolist()
        self.rule.restart(len(text))
        return self.ids[known:] if known < len(text) - 1 else []

    def watch_rest(self) -> Watch | None:
        """Return the watch that gets the scores of the tokens that `follow` returned."""
        self._read = 0
        return self._watch(self.ids, self.session.length)

    def wants(self, tokens: int) -> None:
        """Let the text go on for so many tokens."""
        self.stopping = Stopping(max(1, tokens))
        self.finish = None

    def read_on(self, scores: Scores) -> None:
        """Take the scores of the committed text's last token, and write the token after it."""
        self._scores, self._read = scores, len(self.ids)
        self._reading.show(self.sources)
        self.begin()

    def ahead_of(self, length: int) -> list[Candidate]:
        """Return what was written after the first ``length`` tokens."""
        count = len(self.ids) - length
        return self.rule.written[len(self.rule.written) - count :] if count > 0 else []
