"""The requests that are followed: which they are, what of their texts was read, what is remembered of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Drafter, Feedback, Ints
from draftwood.decoding.draft_source import DraftSource
from draftwood.drafters.memory.drafter import MemoryDrafter
from draftwood.engines.vllm.chains import FEW, Chains, ChainText
from draftwood.engines.vllm.chains_kernel import BEGIN, COLUMNS, END, OWN, ROOM, ROW, SEAT
from draftwood.engines.vllm.requests import Request
from draftwood.engines.vllm.seats import NOBODY, Seats
from draftwood.tree import TokenTree

_EMPTY = TokenTree.empty()
_NO_NODES: Ints = np.empty(0, dtype=np.int32)
_NO_NODES.flags.writeable = False


class Followed:
    """A request.

    Attributes
    ----------
    text
        Its tokens, indexed.
    start
        How many of them are the prompt's.
    namespace
        Whose memory it reads and writes.
    others
        Drafters that are asked text by text.
    """

    def __init__(
        self, text: ChainText, start: int, namespace: str = "", others: Sequence[DraftSource] = ()
    ) -> None:
        self.text, self.start, self.namespace, self.others = text, start, namespace, tuple(others)
        self._opened = False
        self._remembered = 0  # tokens of the text when its answer was last remembered

    def tell_others(self, ids: Ints, told: int) -> None:
        """Tell the other drafters of all tokens from the ``told``-th on; ``ids`` is the whole text."""
        if not self.others:
            return
        if not self._opened or self.start > told:  # an answer begins
            prompt, answer = ids[told if self._opened else 0 : self.start].tolist(), ids[self.start :].tolist()
            for source in self.others:
                source.extend(prompt) if self._opened else source.open(prompt, None)
                source.begin_answer(answer)
            self._opened = True
            return
        new = tuple(ids[told:].tolist())
        choice = np.array(new[:1], dtype=np.int32)
        choice.flags.writeable = False
        for source in self.others:
            source.learn(Feedback(_EMPTY, _EMPTY, _NO_NODES, (), new, choice))

    def unremembered(self) -> Ints | None:
        """Return the answer, if it has grown since it was last asked for; the caller remembers it."""
        length = len(self.text)
        if length <= max(self.start, self._remembered):
            return None
        self._remembered = length
        return self.text.ids[self.start :].copy()

    def close(self) -> None:
        """Close the other drafters' sessions."""
        for source in self.others:
            source.close()


Longs = NDArray[np.int64]

_AT_ONCE = 8192  # tokens of prompts that one step reads, at about a microsecond each; the rest waits for the next
_LEAST = FEW  # of each prompt at least, so that it is known again
_PARKED = 16  # requests that are followed beyond those that fit into a batch: some come back


class Following:
    """The requests of one worker.

    Parameters
    ----------
    documents
        Texts from which all of them may copy.
    others
        Drafters that have a session per request.
    memory
        Remembers the answers of requests that have left; None: nobody does.
    longest, rows, max_length, most_tokens
        Most tokens of a draft, requests of a batch, tokens of a text, and tokens of all texts together.
    """

    def __init__(
        self, documents: Sequence[Sequence[int]], others: Sequence[Drafter], memory: MemoryDrafter | None, *,
        longest: int, rows: int, max_length: int, most_tokens: int,
    ) -> None:  # fmt: skip
        self._documents, self._others, self._memory = documents, others, memory
        self._max_length, self._most_tokens = max_length, most_tokens
        self.seats, self.chains = Seats(rows + _PARKED, rows), Chains(rows + _PARKED, longest)
        self.by_seat: dict[int, Followed] = {}
        self._step = 0

    @property
    def tokens(self) -> int:
        """Tokens of all texts."""
        return sum(len(one.text) for one in self.by_seat.values())

    def begin(self, ids: Ints, ends: Longs, new: Longs, requests: Sequence[Request] | None) -> Longs:
        """Return what the kernel is to do in this step, int64[rows, 7]: see `Chains.grow`.

        The arguments are those of `Drafting.step`.
        """
        self._step += 1
        names = None if requests is None else [request.name for request in requests]
        bounds = self.chains.reach.shape[1], self._max_length
        seats, work, is_all = self.seats.match(ids, ends, new, bounds, self.chains.addresses, names)
        if is_all:
            return work
        if names is None:
            self.seats.search(ids, ends, new, seats, self._step)
        self._follow_new(ends, new, seats, requests)
        return self._work(ids, ends, new, seats)

    def settle(self, work: Longs, ids: Ints) -> None:
        """Record that these texts were read to their ends."""
        self.seats.settle(work, ids, self._step)

    def _follow_new(self, ends: Longs, new: Longs, seats: Longs, requests: Sequence[Request] | None) -> None:
        """Find seats for requests that are new, as long as there is room."""
        rows = np.flatnonzero((new > 0) & (seats == NOBODY)).tolist()
        held = self.tokens if rows else 0
        for row in rows:
            end = int(ends[row])
            if held + end > self._most_tokens:
                held -= self._free(held + end - self._most_tokens, seats)
            if held + end > self._most_tokens:
                continue
            request = requests[row] if requests is not None else Request()
            seat = self.seats.take(row, request.name or None)
            if seat < 0 and self._free(1, seats):
                seat = self.seats.take(row, request.name or None)
            if seat < 0:
                continue
            documents = [*self._documents, *request.prediction]
            room = min(self._max_length, end + 1024)
            text = ChainText([np.asarray(one, dtype=np.int32) for one in documents], room)
            others = [DraftSource(drafter) for drafter in self._others]
            self.by_seat[seat] = Followed(text, end - int(new[row]), request.namespace, others)
            self.chains.follow(seat, text)
            seats[row], held = seat, held + end

    def _free(self, tokens: int, seats: Longs) -> int:
        """Let go of requests that are away, those that left first; returns how many tokens they had.

        ``seats`` are those of the batch. It stops at so many ``tokens``.
        """
        freed, present = 0, set(seats.tolist())
        for seat in self.seats.parked(self._step):
            if freed >= tokens:
                break
            if seat not in present:
                freed += len(self.by_seat[seat].text)
                self._drop(seat)
        return freed

    def _work(self, ids: Ints, ends: Longs, new: Longs, seats: Longs) -> Longs:
        """Return what the kernel is to do; texts that are read for the first time are read here, in pieces."""
        begins = self.seats.lengths[seats]  # a row without a seat gets the last one's, and is passed over
        takes_part = (seats >= 0) & (new > 0)
        jumped = takes_part & (ends - begins != new)
        if jumped.any():
            self._read_on(ids, ends, new, seats, begins, takes_part, np.flatnonzero(jumped).tolist())
        rows = np.flatnonzero(takes_part)
        work = self._table(rows, seats[rows], ends[rows])
        work[:, OWN], work[:, BEGIN] = self.chains.addresses[seats[rows]], begins[rows]
        work[:, ROOM] = np.minimum(self.chains.reach.shape[1], self._max_length - 1 - work[:, END])
        return work

    @staticmethod
    def _table(rows: Longs, seats: Longs, ends: Longs) -> Longs:
        work = np.zeros((len(rows), COLUMNS), dtype=np.int64)
        work[:, ROW], work[:, SEAT], work[:, END] = rows, seats, ends
        return work

    def _read_on(
        self, ids: Ints, ends: Longs, new: Longs, seats: Longs, begins: Longs, takes_part: NDArray[np.bool_],
        rows: Sequence[int],
    ) -> None:  # fmt: skip
        """Read what stands before the new tokens of these rows; those where more is left take no part yet.

        ``begins`` and ``takes_part`` are changed.
        """
        left, stay = _AT_ONCE, []
        for row in rows:
            seat, end, some, begin = int(seats[row]), int(ends[row]), int(new[row]), int(begins[row])
            self.chains.lengths[seat] = 0  # the last chain was for another place
            if end - begin <= FEW:
                continue
            self._next_turn(seat, end - some)
            begins[row], left = self._read(self.by_seat[seat].text, ids[row, : end - some], left)
            if end - begins[row] > some:
                stay.append(row)
        if stay:
            takes_part[stay] = False
            self.seats.settle(self._table(np.array(stay), seats[stay], begins[stay]), ids, self._step)

    def _next_turn(self, seat: int, start: int) -> None:
        """A text goes on with more than was written: with the next turn of a chat, or its prompt is still read."""
        followed = self.by_seat[seat]
        if len(followed.text) > followed.start:
            self._remember(seat)
        followed.start = start

    @staticmethod
    def _read(text: ChainText, ids: Ints, left: int) -> tuple[int, int]:
        """Read on in a text, as far as the step allows; returns how long it is now, and what is left to others."""
        begin = len(text)
        end = min(len(ids), begin + max(left, _LEAST))
        if end > begin:
            text.read(ids[begin:end])
        return max(begin, end), left - max(0, end - begin)

    def end(self) -> None:
        """Remember the answers of requests that have left the batch; they may come back."""
        if self._memory is None:
            return
        for seat in self.seats.parked(self._step):
            self._remember(seat)

    def _remember(self, seat: int) -> None:
        followed = self.by_seat.get(seat)
        if followed is None or self._memory is None:
            return
        answer = followed.unremembered()
        if answer is not None:
            self._memory.in_namespace(followed.namespace).remember(answer.tolist())
            self._memory.save_if_due()

    def _drop(self, seat: int) -> None:
        self._remember(seat)
        followed = self.by_seat.pop(seat, None)
        if followed is not None:
            followed.close()
        self.seats.free(seat)
        self.chains.leave(seat)

    def close(self) -> None:
        """Let go of all requests."""
        for seat in list(self.by_seat):
            self._drop(seat)
