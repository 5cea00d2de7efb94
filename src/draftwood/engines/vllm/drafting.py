"""Drafts for all requests of a batch: reads what is new, learns from it, grows chains, cuts them to what pays."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

import numpy as np

from draftwood.contracts import Drafter, Floats, Ints, Positions
from draftwood.contracts.declaring import declared
from draftwood.engines.vllm.following import NOTHING, Chain, Followed, Following
from draftwood.engines.vllm.planner import FixedChains, GoodputChains
from draftwood.engines.vllm.requests import ServedRequest
from draftwood.planning.beliefs import Beliefs


class Counts:
    """By drafter, tokens ``drafted`` for vLLM and those of them that it ``accepted``; ``steps`` in all, those in
    which something was drafted (``drafting``), and those that failed here and were answered by no drafts
    (``errors``); ``own_s`` are the seconds that all of it took."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self.drafted, self.accepted = [0] * len(names), [0] * len(names)
        self.steps = self.drafting = self.errors = 0
        self.own_s = 0.0
        self._said_at, self._said_steps = monotonic(), 0

    def due(self, every: float) -> bool:
        """Return whether a line is due: so many seconds have passed, and something was done; it counts as said."""
        if not every or self.steps == self._said_steps or monotonic() - self._said_at < every:
            return False
        self._said_at, self._said_steps = monotonic(), self.steps
        return True

    def line(self) -> str:
        """Return all counts since the start."""
        found = zip(self._names, self.accepted, self.drafted, strict=True)
        sources = ", ".join(f"{name} {accepted} of {drafted}" for name, accepted, drafted in found if drafted)
        each = 1e3 * self.own_s / max(1, self.steps)
        said = f"{self.steps} steps, {self.drafting} with drafts, {each:.2f} ms each; "
        said += f"accepted: {sources or 'nothing drafted'}"
        return said + (f"; {self.errors} steps failed" if self.errors else "")


_MANY, _SOME = 64, 4  # with more labels in a step, only each fourth step is learnt from


class Drafting:
    """The requests of one worker, and what was learnt from them.

    ``drafters`` are ``ngram`` and ``memory``, or one of them; ``beliefs`` say how often drafts were right.
    ``longest``, ``rows`` and ``max_length`` are the most tokens of a draft, requests of a batch, and tokens of a
    text, ``most_tokens`` those of all texts together; further requests are not drafted for.
    """

    def __init__(
        self, drafters: Sequence[Drafter], planner: FixedChains | GoodputChains, beliefs: Beliefs, *, longest: int,
        rows: int, max_length: int, most_tokens: int,
    ) -> None:  # fmt: skip
        self.drafters, self.planner, self._beliefs = drafters, planner, beliefs
        self._longest, self._max_length, self._step = longest, max_length, 0
        columns = np.zeros((len(drafters), rows, 7, longest), dtype=np.int32)
        chances = np.zeros((len(drafters), rows, 3, longest), dtype=np.float32)
        self._columns, self._reach = columns, chances[:, :, 2]  # of each drafter's chains, see `NgramIndex.grow`
        self._arrays = [list(zip(*both, strict=True)) for both in zip(columns, chances, strict=True)]
        self.following = Following(drafters, rows=rows, most_tokens=most_tokens)
        self.counts = Counts([drafter.name for drafter in drafters])

    def step(
        self, ids: Ints, ends: Positions, new: Positions, requests: Sequence[ServedRequest] | None = None
    ) -> tuple[list[list[int]], int]:
        """Return the draft of each row, and how many tokens they have.

        ``ids`` int32[.., ..] holds the texts, of which ``ends`` int64[rows] tokens are real, the last ``new`` of
        them written in this step; 0 for rows that are still being read.
        """
        self._step += 1
        drafts: list[list[int]] = [[] for _ in ends]
        rows, seats, known = self.following.begin(ids, ends, new, requests)
        if not len(rows):
            return drafts, 0
        some = [self.following.by_seat[seat] for seat in seats.tolist()]
        labels: list[list[tuple[int, bool]]] = [[] for _ in self.drafters]
        for one, row, begin in zip(some, rows.tolist(), known.tolist(), strict=True):
            self._read(one, ids[row, begin : ends[row]].tolist(), int(new[row]), labels)
        if sum(map(len, labels)) <= _MANY or not self._step % _SOME:
            for drafter, learnt in zip(self.drafters, labels, strict=True):
                if learnt:
                    classes, right = zip(*learnt, strict=True)
                    self._beliefs.rates(declared(drafter), greedy=False).learn(list(classes), list(right))
        reach = self._grow(some, np.minimum(self._longest, self._max_length - 1 - ends[rows]).clip(0).tolist())
        count = self._cut(some, reach, rows.tolist(), int(ends.max()), drafts)
        self.following.end()
        return drafts, count

    def _read(self, one: Followed, ids: list[int], written: int, labels: list[list[tuple[int, bool]]]) -> None:
        """Read what is new of a text; ``labels`` are told whether the tokens of its last chain were right."""
        right, accepted = one.right(ids)
        if len(ids) == written:
            labels[one.chain.speaker] += zip(one.chain.evidence, right, strict=False)
            self.counts.accepted[one.chain.speaker] += accepted
        one.read(ids, written, accepted)

    def _grow(self, some: Sequence[Followed], rooms: list[int]) -> Floats:
        """Let the drafters write chains; a later drafter's is taken where it matches more and promises more.

        Returns how likely each token of the chains is reached and right, float32[chains, longest].
        """
        for one in some:
            one.chain, one.scored = NOTHING, 0
        matched = [-1] * len(some)
        self._reach[:, : len(some)] = 0
        for speaker, drafter in enumerate(self.drafters):
            rates, reach = self._beliefs.accept_rates(declared(drafter), greedy=False), self._reach[speaker]
            sessions = [one.sessions[speaker] for one in some]
            asked = zip(sessions, rooms, self._arrays[speaker], strict=False)  # rows may be empty
            lengths = [session.grow(room, rates, arrays)[0].shape[1] for session, room, arrays in asked]
            columns = self._columns[speaker, : len(some)]
            tokens, evidence = columns[:, 4].tolist(), columns[:, 5].tolist()
            for i, (one, length) in enumerate(zip(some, lengths, strict=True)):
                # It must match more, too: a memory's accept rates are learnt from fewer labels. See LOG.md.
                if length and (match := sessions[i].match_length) > matched[i]:
                    old = len(one.chain.tokens)
                    if not old or reach[i, :length].sum() > self._reach[0, i, :old].sum():
                        one.chain, matched[i] = Chain(speaker, tokens[i][:length], evidence[i][:length]), match
                        if speaker:
                            self._reach[0, i] = reach[i]
        return self._reach[0, : len(some)]

    def _cut(
        self, some: Sequence[Followed], reach: Floats, rows: list[int], context: int, drafts: list[list[int]]
    ) -> int:
        """Cut the chains to what the planner says, into ``drafts``; returns how many tokens there are."""
        cuts = self.planner.choose(reach, len(drafts), context).tolist()
        for one, row, cut in zip(some, rows, cuts, strict=True):
            one.scored, drafts[row] = cut, one.chain.tokens[:cut]
            if cut:
                self.counts.drafted[one.chain.speaker] += cut
        return sum(cuts)
