"""The text of a draft model that drafts with drafters of its own: it runs ahead of the committed text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from draftwood.contracts import (
    Drafter,
    Ended,
    Floats,
    Ints,
    Noise,
    Sampling,
    Scores,
    Target,
    Verdict,
    Watch,
)
from draftwood.decoding.broken_rows import BrokenRowError
from draftwood.decoding.draft_source import DraftSource
from draftwood.decoding.request import Request
from draftwood.decoding.sequence import ActiveSequence
from draftwood.decoding.stopping import Stopping
from draftwood.drafters.draft_model.candidates import SAMPLED, Candidate, candidates
from draftwood.tree import TokenTree

_RESERVE = 256  # tokens that the cache of a new text has room for besides


class AheadRule:
    """Chooses the draft model's next token, with the same noise that the target will use.

    With noise it is the best of the ``SAMPLED`` likeliest tokens. The text does not depend on what was drafted, as
    with the exact rule. One object is rule and session of one text, which holds ``length`` tokens at first.

    Attributes
    ----------
    written
        The tokens chosen last, in order, with what the draft model makes of each.
    """

    def __init__(self, length: int, noise: Noise | None) -> None:
        self.noise, self.written = noise, list[Candidate]()
        self._length = length

    def open(self, *_: Any) -> AheadRule:
        """As in the contract (`draftwood.contracts.Rule`), whose arguments the constructor got."""
        return self

    def verify(self, tree: TokenTree, scores: Scores, ended: Ended) -> Verdict:
        """As in the contract (`draftwood.contracts.RuleSession`)."""
        ids, probabilities = scores.top_k(1 if self.noise is None else SAMPLED)
        path: list[int] = []
        emitted: list[int] = []
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

    def copy(self) -> AheadRule:
        """Return an independent copy."""
        twin = AheadRule(self._length, self.noise)
        twin.written += self.written
        return twin


class Ahead(ActiveSequence):
    """A text that a draft model writes ahead of the committed one, and follows it when that takes another way.

    What it has written stays as long as the committed text agrees, so no token of the text is read twice.
    """

    rule: AheadRule

    def __init__(
        self, text: Sequence[int], noise: Noise | None, target: Target, drafters: Sequence[Drafter],
        rule: AheadRule | None = None,
    ) -> None:  # fmt: skip
        sampling = Sampling() if noise is None else Sampling(temperature=noise.temperature)
        rule = AheadRule(len(text), noise) if rule is None else rule
        super().__init__(0, Request(text, _RESERVE, sampling), target, drafters, rule)
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
        if common == len(text) and ahead <= len(self.rule.written):
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
        """Return who is to see the scores of the tokens that `follow` returned."""
        self._read = 0
        return self._watch(self.ids, self.session.length)

    def wants(self, tokens: int) -> None:
        """Let the text go on for so many tokens."""
        self.stopping = Stopping(max(1, tokens))
        self.finish = None

    def read_on(self, scores: Scores) -> None:
        """Take the scores of the committed text's last token, and write the token behind it."""
        self._scores, self._read = scores, len(self.ids)
        self._reading.show(self.sources)
        self.begin()

    def ahead_of(self, length: int) -> list[Candidate]:
        """Return what was written behind the first ``length`` tokens."""
        count = len(self.ids) - length
        return self.rule.written[len(self.rule.written) - count :] if count > 0 else []

    def fork(self) -> Ahead:
        """Return an independent copy."""
        drafters = [source.drafter for source in self.sources]
        twin = Ahead(self.ids, self.rule.noise, self._target, drafters, self.rule.copy())
        twin._session, twin._read, twin._settled = self.session.fork(), len(self.ids), self._settled
        twin._common = self._common
        for mine, theirs in zip(self.sources, twin.sources, strict=True):
            _fork(mine, theirs, twin.session)
        return twin


def _fork(source: DraftSource, twin: DraftSource, target_session: object) -> None:
    source.catch_up()
    if source.session is None:
        return
    session = source.session.fork()
    if source.needs.target_session:
        session.follow(target_session)
    twin.session = session
