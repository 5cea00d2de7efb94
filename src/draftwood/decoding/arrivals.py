"""Sequences that begin: a list, read together, or arrivals whose prompts are read between passes of a loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from time import perf_counter
from typing import Protocol

from draftwood.contracts import Drafter, Rule, Target
from draftwood.contracts.declaring import refuse_mismatch
from draftwood.decoding.prompt_scores import watched_by
from draftwood.decoding.request import Request
from draftwood.decoding.sequence import ActiveSequence

CHUNK = 256
"""Prompt tokens read between two passes, shared by all sequences that wait: on a laptop a tenth of a second."""


class Arrivals(Protocol):
    """Hands sequences to a running `decode_sequences`; their maker closes them."""

    def fetch(self, *, idle: bool) -> Sequence[ActiveSequence] | None:
        """Return the sequences that have arrived since the last call; None if no more will ever come.

        Called between two passes. ``idle`` is True where the loop has nothing else to do: then it may wait for
        an arrival; otherwise it must return at once.
        """
        ...


class Entrance:
    """Takes in newcomers and reads their prompts a chunk at a time, so that running texts never wait for long.

    Shorter prompts come first, and a text whose prompt has been read begins before longer prompts are read on.
    After the oldest has waited once, it gets a whole chunk, with at most half a chunk of others before it.
    ``arrivals`` may be a list: then no others will come. ``chunk``: most prompt tokens that are read between two
    passes, half as many more where the oldest has waited.
    """

    def __init__(self, target: Target, arrivals: Arrivals | Sequence[ActiveSequence], chunk: int = CHUNK) -> None:
        self._target, self._chunk, self._oldest_first = target, chunk, False
        self._reading = list(arrivals) if isinstance(arrivals, Sequence) else []
        self._arrivals = None if isinstance(arrivals, Sequence) else arrivals

    @property
    def is_empty(self) -> bool:
        """True if no text waits and none will come."""
        return self._arrivals is None and not self._reading

    def admit(self, *, idle: bool) -> list[ActiveSequence]:
        """Read the next chunk; returns the sequences that can begin, failed and cancelled ones too.

        ``idle`` says that no text is being written, so that this may wait for newcomers.
        """
        if self._arrivals is not None:
            fetched = self._arrivals.fetch(idle=idle and not self._reading)
            if fetched is None:
                self._arrivals = None
            self._reading += fetched or ()
        waiting = [s for s in self._reading if s.unread and not s.is_cancelled]
        owed = waiting[0] if self._oldest_first and waiting else None
        read = self._read_pieces(self._order(waiting, owed), owed)
        self._oldest_first = bool(waiting) and waiting[0] not in read
        done = [s for s in self._reading if not s.unread or s.is_cancelled or s.finish is not None]
        self._reading = [s for s in self._reading if s not in done]
        return done

    def _order(self, waiting: list[ActiveSequence], owed: ActiveSequence | None) -> list[ActiveSequence]:
        """Return the order: the shortest first; before one that is ``owed`` a chunk only what fits into half."""
        order = sorted(waiting, key=lambda sequence: sequence.unread)
        if owed is not None:
            order.remove(owed)
            sums = accumulate(sequence.unread for sequence in order)
            order.insert(sum(tokens <= self._chunk // 2 for tokens in sums), owed)
        return order

    def _read_pieces(self, order: Sequence[ActiveSequence], owed: ActiveSequence | None) -> list[ActiveSequence]:
        """Read pieces of prompts in this order, one chunk of tokens in all; returns the sequences that were read.

        ``owed`` gets a chunk of its own, whatever was read before it: of prompts of 100 and 300 tokens only the
        100 are read with a chunk of 256, but if the longer one is owed a chunk, 256 of its tokens are read, too.
        """
        pieces = self._pieces(order, owed)
        ends = [(s, size) for s, size in pieces if s.is_open and not s.is_half_read and size == s.unread]
        together = len(ends) > 1 and self._read_together(ends)
        for piece in pieces:
            if together and piece in ends:
                continue
            try:
                self._read_piece(*piece)
            except Exception as error:  # this text cannot be read; the others go on
                piece[0].fail(error)
        return [sequence for sequence, _ in pieces]

    def _pieces(
        self, order: Sequence[ActiveSequence], owed: ActiveSequence | None
    ) -> list[tuple[ActiveSequence, int]]:
        """Return which prompts are read on, and how many tokens of each."""
        left, pieces, one_begins = self._chunk, list[tuple[ActiveSequence, int]](), False
        for sequence in order:
            if sequence is owed:
                left = self._chunk
            waits = sequence.unread > left or sequence.is_half_read  # too long, or a long one's rest
            if left <= 0 or (one_begins and waits and owed is None):
                break  # a text that can begin now does not wait for it
            size = min(left, sequence.unread)
            left -= size
            pieces.append((sequence, size))
            one_begins = one_begins or size == sequence.unread
        return pieces

    def _read_together(self, ends: Sequence[tuple[ActiveSequence, int]]) -> bool:
        """Read the ends of prompts whose beginnings were known, often a token each, in one pass; False if that
        fails: then each text is what it was, or shorter."""
        started = perf_counter()
        lengths = [sequence.session.length for sequence, _ in ends]
        try:
            asked = watched_by([sequence.watch() for sequence, _ in ends])
            texts = [(sequence.session, sequence.next_piece(size)) for sequence, size in ends]
            found = self._target.extend(texts, **asked)
        except Exception:  # each is read alone, which shows whose fault it is
            for (sequence, _), length in zip(ends, lengths, strict=True):
                sequence.go_back(length)
            return False
        seconds = (perf_counter() - started) / len(ends)
        for (sequence, size), scores in zip(ends, found, strict=True):
            sequence.read(sequence.session, scores, seconds, size)
        return True

    def _read_piece(self, sequence: ActiveSequence, size: int) -> None:
        started = perf_counter()
        asked, piece = watched_by([sequence.watch()]), sequence.next_piece(size)
        if not sequence.is_open:
            left = len(sequence.request.prompt) + sequence.request.limit - len(piece)
            ((session, scores),) = self._target.open([piece], reserve=left, **asked)
        else:
            session = sequence.session
            (scores,) = self._target.extend([(session, piece)], **asked)
        sequence.read(session, scores, perf_counter() - started, len(piece))


@contextmanager
def open_sequences(
    target: Target, drafters: Sequence[Drafter], requests: Sequence[Request], rule: Rule
) -> Iterator[list[ActiveSequence]]:
    """Read the prompts and open the target's sessions; all are closed on the way out, however it is left.

    Raises
    ------
    CapabilityError
        If a drafter needs what the target lacks; before anything is read.
    PromptError, UsageError
        For requests that cannot be written; before anything is read.
    """
    refuse_mismatch(target.capabilities, drafters)
    for request in requests:
        check_request(request, target)
    sequences = [ActiveSequence(i, request, target, drafters, rule) for i, request in enumerate(requests)]
    try:
        read_whole(target, sequences)
        yield sequences
    finally:
        for sequence in sequences:
            sequence.close()


def check_request(request: Request, target: Target) -> None:
    """Raise `CapabilityError`, `PromptError` or `UsageError` for what cannot be written on this target."""
    request.check(target.capabilities)
    refuse_mismatch(target.capabilities, request.drafters or ())


def read_whole(target: Target, sequences: Sequence[ActiveSequence]) -> None:
    """Read all prompts in passes that they share."""
    started = perf_counter()
    asked = watched_by([sequence.watch() for sequence in sequences])
    requests = [sequence.request for sequence in sequences]
    reserve = max((r.limit for r in requests), default=0)
    opened = target.open([r.prompt for r in requests], reserve=reserve, **asked)
    seconds = perf_counter() - started
    for sequence, (session, scores) in zip(sequences, opened, strict=True):
        sequence.read(session, scores, seconds)
