"""Drafts for all requests of a batch: reads what is new, learns from it, grows chains, cuts them to what pays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Ask, Drafter, Floats
from draftwood.decoding.draft_source import DraftSource
from draftwood.drafters.memory.drafter import MemoryDrafter
from draftwood.drafters.memory.memory import Memory
from draftwood.drafters.ngram.chains import FEW, Chains, ChainText, Part
from draftwood.drafters.ngram.chains_kernel import (
    EVIDENCE,
    LABEL_CLASS,
    LABEL_PLACE,
    LABEL_RIGHT,
    LABEL_ROW,
    LABEL_SCORED,
    LABEL_SPEAKER,
    SPEAKER,
    TOKENS,
)
from draftwood.drafters.ngram.drafter import NgramDrafter
from draftwood.engines.vllm.counts import Counts
from draftwood.engines.vllm.followed import Followed
from draftwood.engines.vllm.planner import FixedChains, GoodputChains
from draftwood.engines.vllm.requests import Request
from draftwood.engines.vllm.seats import NOBODY, Seats
from draftwood.planning.beliefs import Beliefs

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

OWN, SHARED, OTHERS = (
    0,
    1,
    2,
)  # speakers: the request's own text, the memory, and from here on drafters asked one by one
_AT_ONCE = 8192  # tokens of prompts that one step reads, at about a microsecond each; the rest waits for the next
_LEAST = FEW  # of each prompt at least, so that it is known again
_TREE = 4  # drafters that propose trees are asked for so many times the nodes; the best chain is taken
_LABELS = 64  # of one step that rates are learnt from, at a third of a microsecond each
_PARKED = 16  # requests that are followed beyond those that fit into a batch: some come back
_NO_MEMORY: AbstractContextManager[Any] = nullcontext()


class Drafting:
    """The requests of one worker, and what was learnt from them.

    Parameters
    ----------
    drafters
        The set. ``ngram`` and ``memory`` draft for all requests in one call of a kernel, others text by text.
    planner, beliefs
        How much is drafted; how often drafts were right.
    longest, rows, max_length, vocab_size
        Most tokens of a draft, requests of a batch, tokens of a text, and token ids.
    most_tokens
        Most tokens of all texts together; further requests are not drafted for.
    """

    def __init__(
        self, drafters: Sequence[Drafter], planner: FixedChains | GoodputChains, beliefs: Beliefs, *, longest: int,
        rows: int, max_length: int, vocab_size: int, most_tokens: int,
    ) -> None:  # fmt: skip
        self._ngram = next((d for d in drafters if isinstance(d, NgramDrafter)), None)
        self._memory = next((d for d in drafters if isinstance(d, MemoryDrafter)), None)
        self._others = [d for d in drafters if d is not self._ngram and d is not self._memory]
        self.planner, self._beliefs = planner, beliefs
        self._max_length, self._vocab_size, self._most_tokens = max_length, vocab_size, most_tokens
        seats = rows + _PARKED
        self._seats, self._chains = Seats(seats, rows), Chains(seats, longest)
        self._followed: dict[int, Followed] = {}
        self._step = 0
        names = ["ngram", "memory", *(drafter.name for drafter in self._others)]
        self.counts = Counts(names)
        self._no_rates = np.zeros(len(NgramDrafter.prior), dtype=np.float32)

    @property
    def tokens(self) -> int:
        """Tokens of all texts that are followed."""
        return sum(len(one.text) for one in self._followed.values())

    def step(
        self, ids: Ints, ends: Longs, new: Longs, requests: Sequence[Request] | None = None
    ) -> tuple[list[list[int]], int]:
        """Return the draft of each row, and how many tokens they have.

        ``ids`` int32[.., ..] holds the texts, of which ``ends`` int64[rows] tokens are real, the last ``new`` of
        them written in this step; 0 for rows that are still being read.
        """
        self._step += 1
        names = None if requests is None else [request.name for request in requests]
        seats = self._seats.find(ids, ends, new > 0, self._step, names)
        self._follow_new(ends, new, seats, requests)
        parts = self._parts(ids, ends, new, seats)
        drafts: list[list[int]] = [[] for _ in ends]
        count = 0
        if parts:
            with self._lock():
                labels = self._chains.grow(
                    self._with_memory(parts),
                    ids,
                    max(self.planner.floor, 1e-6),
                    (self._rates(OWN), self._rates(SHARED)),
                )
                self._learn(labels, parts)
            rows = np.array([part.row for part in parts])
            some = np.array([part.seat for part in parts])
            if self._others:
                self._ask_others(parts, ids)
            self._seats.settle(some, rows, ends[rows], ids, self._step)
            count = self._cut(parts, rows, some, ends, drafts)
        self._let_go()
        return drafts, count

    # What is read

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
            seat = self._seats.take(row, request.name or None)
            if seat < 0 and self._free(1, seats):
                seat = self._seats.take(row, request.name or None)
            if seat < 0:
                continue
            documents = [*(self._ngram.context if self._ngram is not None else ()), *request.prediction]
            room = min(self._max_length, end + 1024)
            text = ChainText([np.asarray(one, dtype=np.int32) for one in documents], room)
            others = [DraftSource(drafter) for drafter in self._others]
            self._followed[seat] = Followed(text, end - int(new[row]), request.namespace, others)
            self._chains.lengths[seat] = self._chains.scored[seat] = 0
            self._chains.reach[seat] = 0
            seats[row], held = seat, held + end

    def _free(self, tokens: int, seats: Longs) -> int:
        """Let go of requests that are away, those that left first; returns how many tokens they had.

        ``seats`` are those of the batch. It stops at so many ``tokens``.
        """
        freed, present = 0, set(seats.tolist())
        for seat in self._seats.parked(self._step):
            if freed >= tokens:
                break
            if seat not in present:
                freed += len(self._followed[seat].text)
                self._drop(seat)
        return freed

    def _parts(self, ids: Ints, ends: Longs, new: Longs, seats: Longs) -> list[Part]:
        """Return what the kernel is to do; texts that are read for the first time are read here, in pieces."""
        longest, left, parts = self._chains.reach.shape[1], _AT_ONCE, []
        stay, most = [], self._max_length - 1
        known = self._seats.lengths[seats].tolist()  # a row without a seat gets the last one's, and is passed over
        for row, (seat, end, some, begin) in enumerate(
            zip(seats.tolist(), ends.tolist(), new.tolist(), known, strict=True)
        ):
            if seat < 0 or not some:
                continue
            text = self._followed[seat].text
            if end - begin != some:
                self._chains.lengths[seat] = 0  # the last chain was for another place
                if end - begin > FEW:
                    self._next_turn(seat, end - some)
                    begin, left = self._read(text, ids[row, : end - some], left)
                    if end - begin > some:
                        stay.append((seat, row, begin))
                        continue
            parts.append(Part(text, row, begin, end, min(longest, most - end), seat))
        if stay:
            unread, rows, lengths = np.array(stay).T
            self._seats.settle(unread, rows, lengths, ids, self._step)
        return parts

    def _next_turn(self, seat: int, start: int) -> None:
        """A text goes on with more than was written: with the next turn of a chat, or its prompt is still read."""
        followed = self._followed[seat]
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

    # What is learnt and drafted

    def _lock(self) -> AbstractContextManager[Any]:
        return self._store.lock if self._memory is not None else _NO_MEMORY

    def _with_memory(self, parts: list[Part]) -> list[Part]:
        if self._memory is None:
            return parts
        spaces = self._store.contents.spaces
        found = []
        for part in parts:
            space = spaces.get(self._followed[part.seat].namespace)
            found.append(part if space is None else part._replace(shared=(space.index, space.generation)))
        return found

    @property
    def _store(self) -> Memory:
        assert self._memory is not None
        assert self._memory.memory is not None
        return self._memory.memory

    def _drafter(self, speaker: int) -> Drafter | None:
        return (self._ngram, self._memory)[speaker] if speaker < OTHERS else self._others[speaker - OTHERS]

    def _rates(self, speaker: int) -> Floats:
        drafter = self._drafter(speaker)
        return self._no_rates if drafter is None else self._beliefs.accept_rates(drafter, greedy=False)

    def _learn(self, labels: Ints, parts: Sequence[Part]) -> None:
        """Learn whether the tokens of the last chains were right."""
        if not len(labels):
            return
        speakers = labels[:, LABEL_SPEAKER]
        for speaker in range(OTHERS + len(self._others)):
            own = labels[speakers == speaker] if speakers.any() or speaker else labels
            drafter = self._drafter(speaker)
            if drafter is None or not len(own):
                continue
            right = own[:, LABEL_RIGHT] != 0
            stride = -(-len(own) // _LABELS)
            some = slice(self._step % stride, None, stride)
            rates = self._beliefs.rates(drafter, greedy=False)
            rates.learn(own[some, LABEL_CLASS].tolist(), right[some].tolist())
            taken = right & (own[:, LABEL_SCORED] != 0)
            self.counts.accepted[speaker] += int(np.count_nonzero(taken))
            if speaker == SHARED and taken.any():
                self._credit(own[taken], parts)

    def _credit(self, labels: Ints, parts: Sequence[Part]) -> None:
        """Count tokens for the answers that they were copied from."""
        contents = self._store.contents
        for row, place in labels[:, [LABEL_ROW, LABEL_PLACE]].tolist():
            space = contents.spaces.get(self._followed[parts[row].seat].namespace)
            owner = space.owner(place) if space is not None and place >= 0 else None
            if owner is not None:
                contents.credit([owner])

    def _ask_others(self, parts: Sequence[Part], ids: Ints) -> None:
        """Ask the other drafters text by text; the chain that promises most replaces the kernel's."""
        for part in parts:
            followed = self._followed[part.seat]
            followed.tell_others(ids[part.row, : part.end], int(self._seats.lengths[part.seat]))
            best = float(self._chains.reach[part.seat].sum())
            for number, source in enumerate(followed.others):
                if part.room < 1 or source.session is None:
                    continue
                rates = self._rates(OTHERS + number)
                tree = source.draft(Ask(_TREE * part.room, 0, rates), self._vocab_size)
                nodes = tree.best_chain()[: part.room]
                reach = np.cumprod(rates[tree.evidence[nodes]], dtype=np.float32)
                if len(nodes) and (promised := float(reach.sum())) > best:
                    best, size = promised, len(nodes)
                    chain, seat = self._chains, part.seat
                    chain.tokens[TOKENS, seat, :size] = tree.tokens[nodes]
                    chain.tokens[EVIDENCE, seat, :size] = tree.evidence[nodes]
                    chain.tokens[SPEAKER, seat, :size] = OTHERS + number
                    chain.reach[seat, :size], chain.reach[seat, size:] = reach, 0
                    chain.lengths[seat] = size

    def _cut(self, parts: Sequence[Part], rows: Longs, seats: Longs, ends: Longs, drafts: list[list[int]]) -> int:
        """Cut the chains to what the planner says, into ``drafts``; returns how many tokens there are."""
        chains = self._chains
        cuts = self.planner.choose(chains.reach[seats], int(ends[rows].max()))
        chains.scored[seats] = cuts
        count = int(cuts.sum())
        if not count:
            return 0
        tokens = chains.tokens[TOKENS, seats].tolist()
        for part, own, cut in zip(parts, tokens, cuts.tolist(), strict=True):
            if cut:
                drafts[part.row] = own[:cut]
        speakers = chains.tokens[SPEAKER, seats]
        scored = np.arange(speakers.shape[1]) < cuts[:, None]
        self.counts.drafted += np.bincount(speakers[scored], minlength=len(self.counts.drafted))
        return count

    # What is let go

    def _let_go(self) -> None:
        """Remember the answers of requests that have left the batch; they may come back."""
        if self._memory is None:
            return
        for seat in self._seats.parked(self._step):
            self._remember(seat)

    def _remember(self, seat: int) -> None:
        followed = self._followed.get(seat)
        if followed is None or self._memory is None:
            return
        answer = followed.unremembered()
        if answer is not None:
            self._store.add(answer, followed.namespace)
            self._memory.save_if_due()

    def _drop(self, seat: int) -> None:
        self._remember(seat)
        followed = self._followed.pop(seat, None)
        if followed is not None:
            followed.close()
        self._seats.free(seat)
        self._chains.lengths[seat] = self._chains.scored[seat] = 0

    def close(self) -> None:
        """Let go of all requests."""
        for seat in list(self._followed):
            self._drop(seat)
