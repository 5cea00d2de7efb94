"""The requests that are followed: which they are, their drafters' sessions, and the latest draft of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from draftwood.contracts import Drafter, Feedback, Ints, Positions
from draftwood.drafters.memory.drafter import MemoryDrafter
from draftwood.drafters.ngram.drafter import NgramDrafter
from draftwood.engines.vllm.requests import ServedRequest
from draftwood.engines.vllm.seats import NOBODY, Seats
from draftwood.tree import TokenTree, ascending, constant

_EMPTY = TokenTree.empty()
_PARKED = 16  # requests that are followed beyond those that fit into a batch: some come back
_FEW = 64  # tokens that were not written here, as where steps were skipped; with more a turn of a chat begins


class Chain(NamedTuple):
    """The best chain of one drafter's tree: which drafter of the set, its tokens and their evidence classes."""

    speaker: int
    tokens: list[int]
    evidence: list[int]


NOTHING = Chain(0, [], [])


class Followed:
    """A request: a session of each drafter, once its text was read, and its latest draft (``chain``), of which
    vLLM was given the first ``scored`` tokens."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = drafters
        self.sessions: list[Any] = []  # `NgramSession` or `MemorySession`
        self.chain, self.scored = NOTHING, 0
        self._answers = False  # whether an answer is under way

    def read(self, ids: list[int], written: int, accepted: int) -> None:
        """Read more of the text, whose last ``written`` tokens were written in this step.

        So many tokens of the chain were ``accepted``.
        """
        prompt, answer = ids[: len(ids) - written], ids[len(ids) - written :]
        self._answers = True
        if len(prompt) > _FEW or not self.sessions:
            opened = bool(self.sessions)
            self.sessions = self.sessions or [drafter.open(prompt, None) for drafter in self._drafters]
            for session in self.sessions:
                if opened:
                    session.extend(prompt)
                session.begin_answer(answer)
        else:
            for speaker, session in enumerate(self.sessions):
                node_map = ascending(len(self.chain.tokens) if speaker == self.chain.speaker else 0)
                path = tuple(range(accepted))
                session.learn(Feedback(_EMPTY, _EMPTY, node_map, path, tuple(ids), constant(-1, 1)))
        if prompt:
            self.chain = NOTHING  # it was for another place

    def right(self, new: Sequence[int]) -> tuple[list[bool], int]:
        """Return whether each token of the chain came, up to the first wrong one; and how many vLLM accepted."""
        tokens, right = self.chain.tokens, 0
        most = min(len(tokens), len(new))
        while right < most and tokens[right] == new[right]:
            right += 1
        return [True] * right + [False] * (right < most), min(right, self.scored)

    def pause(self) -> None:
        """End the answer: a memory takes it in."""
        for session in self.sessions if self._answers else ():
            session.extend([])
        self._answers = False

    def close(self) -> None:
        for session in self.sessions:
            session.close()


class Following:
    """The requests of one worker: at most ``rows`` in a batch, and ``most_tokens`` in all texts; further requests
    are not followed."""

    def __init__(self, drafters: Sequence[Drafter], *, rows: int, most_tokens: int) -> None:
        self._drafters, self._most_tokens = drafters, most_tokens
        self.seats = Seats(rows + _PARKED, rows)
        self.by_seat: dict[int, Followed] = {}
        self._step = self._joining = 0  # the latter: tokens of texts that join in this step

    @property
    def tokens(self) -> int:
        return int(self.seats.lengths.sum())

    def begin(
        self, ids: Ints, ends: Positions, new: Positions, requests: Sequence[ServedRequest] | None
    ) -> tuple[Positions, Positions, Positions]:
        """Return the rows that take part in this step, their seats, and how much of their texts is known.

        The arguments are those of `Drafting.step`.
        """
        self._step, self._joining = self._step + 1, 0
        names = None if requests is None else [request.name for request in requests]
        seats = self.seats.match(ids, ends, new, self._step, names)
        for row in np.flatnonzero((new > 0) & (seats == NOBODY)).tolist():
            seats[row] = self._take(row, int(ends[row]), set(seats.tolist()), requests)
        rows = np.flatnonzero((new > 0) & (seats >= 0))
        seats = seats[rows]
        known = self.seats.lengths[seats]
        self.seats.settle(rows, seats, ends[rows], ids, self._step)
        return rows, seats, known

    def _take(self, row: int, end: int, present: set[int], requests: Sequence[ServedRequest] | None) -> int:
        """Return a seat for a new request; those that are away let go of theirs where there is no room."""
        request = requests[row] if requests is not None else ServedRequest()
        seat = NOBODY
        for away in [*self.seats.parked(self._step), None]:
            if self.tokens + self._joining + end <= self._most_tokens:
                seat = self.seats.take(row, request.name)
            if seat >= 0 or away is None:
                break
            if away not in present:
                self.drop(away)
        if seat >= 0:
            self._joining += end
            self.by_seat[seat] = Followed([_of_request(drafter, request) for drafter in self._drafters])
        return seat

    def end(self) -> None:
        """Let a memory take in the answers of requests that have left the batch; they may come back."""
        for seat in self.seats.parked(self._step):
            self.by_seat[seat].pause()
        for drafter in self._drafters:
            if isinstance(drafter, MemoryDrafter):
                drafter.save_if_due()

    def drop(self, seat: int) -> None:
        followed = self.by_seat.pop(seat, None)
        if followed is not None:
            followed.close()
        self.seats.free(seat)

    def close(self) -> None:
        for seat in list(self.by_seat):
            self.drop(seat)


def _of_request(drafter: Drafter, request: ServedRequest) -> Drafter:
    """Return the drafter with what the client has sent: texts that are expected, and whose memory it is."""
    if isinstance(drafter, NgramDrafter) and request.prediction:
        return replace(drafter, context=(*drafter.context, *request.prediction))
    if isinstance(drafter, MemoryDrafter) and request.namespace:
        return drafter.in_namespace(request.namespace)
    return drafter
