"""Drafts for all requests of a batch: reads what is new, learns from it, grows chains, cuts them to what pays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Ask, Drafter, Floats
from draftwood.contracts.declaring import declared
from draftwood.drafters.memory.drafter import MemoryDrafter
from draftwood.drafters.memory.memory import Memory
from draftwood.drafters.ngram.drafter import NgramDrafter
from draftwood.drafters.ngram.index import NgramIndex
from draftwood.engines.vllm.chains_kernel import (
    END,
    EVIDENCE,
    LABEL_CLASS,
    LABEL_PLACE,
    LABEL_RIGHT,
    LABEL_ROW,
    LABEL_SCORED,
    LABEL_SPEAKER,
    ROOM,
    ROW,
    SEAT,
    SPEAKER,
    TOKENS,
)
from draftwood.engines.vllm.following import Following
from draftwood.engines.vllm.planner import FixedChains, GoodputChains
from draftwood.engines.vllm.requests import Request
from draftwood.planning.beliefs import Beliefs


class Counts:
    """Tokens drafted and accepted by source, steps and errors.

    Attributes
    ----------
    drafted, accepted : int64[sources]
        Tokens handed to vLLM, and those of them that it accepted.
    steps, drafting
        Steps in all, and those in which something was drafted.
    own_s
        Seconds that all of it took.
    errors
        Steps that failed here and were answered by no drafts.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self.drafted = np.zeros(len(names), dtype=np.int64)
        self.accepted = np.zeros(len(names), dtype=np.int64)
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
        sources = [
            f"{name} {accepted} of {drafted}"
            for name, drafted, accepted in zip(
                self._names, self.drafted.tolist(), self.accepted.tolist(), strict=True
            )
            if drafted
        ]
        each = 1e3 * self.own_s / max(1, self.steps)
        said = f"{self.steps} steps, {self.drafting} with drafts, {each:.2f} ms each; "
        said += f"accepted: {', '.join(sources) or 'nothing drafted'}"
        return said + (f"; {self.errors} steps failed" if self.errors else "")


Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

OWN, SHARED, OTHERS = 0, 1, 2  # speakers: the request's own text, the memory, then drafters asked text by text
_TREE = 4  # drafters that propose trees are asked for so many times the nodes; the best chain is taken
_LABELS = 64  # of one step that rates are learnt from, at a third of a microsecond each
_MANY, _SOME = 16, 4  # with more labels in a step, only each fourth step is learnt from
_NEVER = 1e-6  # a token that is less likely is never worth a place
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
        self._vocab_size, self._step = vocab_size, 0
        documents = self._ngram.context if self._ngram is not None else ()
        self.following = Following(
            documents, self._others, self._memory,
            longest=longest, rows=rows, max_length=max_length, most_tokens=most_tokens,
        )  # fmt: skip
        self._is_alone = self._memory is None and not self._others  # drafts from a request's own text only
        names = ["ngram", "memory", *(drafter.name for drafter in self._others)]
        self.counts = Counts(names)
        self._no_rates = np.zeros(len(NgramDrafter.prior), dtype=np.float32)

    def step(
        self, ids: Ints, ends: Longs, new: Longs, requests: Sequence[Request] | None = None
    ) -> tuple[list[list[int]], int]:
        """Return the draft of each row, and how many tokens they have.

        ``ids`` int32[.., ..] holds the texts, of which ``ends`` int64[rows] tokens are real, the last ``new`` of
        them written in this step; 0 for rows that are still being read.
        """
        self._step += 1
        work = self.following.begin(ids, ends, new, requests)
        drafts: list[list[int]] = [[] for _ in ends]
        count = 0
        if len(work):
            rates = self._rates(OWN), self._rates(SHARED)
            floor = max(self.planner.floor, _NEVER)
            with self._lock():
                shared = self._in_memory(work)
                labels, accepted = self.following.chains.grow(work, ids, floor, rates, shared)
                self._learn(labels, accepted, work)
            if self._others:
                self._ask_others(work, ids)
            self.following.settle(work, ids)
            count = self._cut(work, int(ends.max()), drafts)
        self.following.end()
        return drafts, count

    def _lock(self) -> AbstractContextManager[Any]:
        return self._store.lock if self._memory is not None else _NO_MEMORY

    def _in_memory(self, work: Longs) -> list[tuple[NgramIndex, object] | None]:
        """Return what is remembered for each of these requests: an index and its generation; [] without memory."""
        if self._memory is None:
            return []
        spaces, by_seat = self._store.contents.spaces, self.following.by_seat
        found = [spaces.get(by_seat[seat].namespace) for seat in work[:, SEAT].tolist()]
        return [None if space is None else (space.index, space.generation) for space in found]

    @property
    def _store(self) -> Memory:
        assert self._memory is not None
        assert self._memory.memory is not None
        return self._memory.memory

    def _drafter(self, speaker: int) -> Drafter | None:
        return (self._ngram, self._memory)[speaker] if speaker < OTHERS else self._others[speaker - OTHERS]

    def _rates(self, speaker: int) -> Floats:
        drafter = self._drafter(speaker)
        return self._no_rates if drafter is None else self._beliefs.accept_rates(declared(drafter), greedy=False)

    def _learn(self, labels: Ints, accepted: int, work: Longs) -> None:
        """Learn whether the tokens of the last chains were right; ``accepted`` were, and scored."""
        teaches = 0 < len(labels) <= _MANY or not self._step % _SOME
        if self._is_alone:
            self.counts.accepted[OWN] += accepted
            if teaches:
                self._teach(OWN, labels)
            return
        taken = labels[(labels[:, LABEL_RIGHT] & labels[:, LABEL_SCORED]) != 0]
        self.counts.accepted += np.bincount(taken[:, LABEL_SPEAKER], minlength=len(self.counts.accepted))
        for speaker in range(OTHERS + len(self._others)) if teaches else ():
            self._teach(speaker, labels[labels[:, LABEL_SPEAKER] == speaker])
        self._credit(taken[taken[:, LABEL_SPEAKER] == SHARED], work)

    def _teach(self, speaker: int, labels: Ints) -> None:
        """Let a drafter's accept rates learn some of these labels."""
        drafter = self._drafter(speaker)
        if drafter is None or not len(labels):
            return
        stride = -(-len(labels) // _LABELS)
        some = labels[self._step % stride :: stride]
        right = some[:, LABEL_RIGHT] != 0
        self._beliefs.rates(declared(drafter), greedy=False).learn(some[:, LABEL_CLASS].tolist(), right.tolist())

    def _credit(self, labels: Ints, work: Longs) -> None:
        """Count tokens for the answers that they were copied from."""
        if not len(labels):
            return
        contents, by_seat = self._store.contents, self.following.by_seat
        for at, place in labels[:, [LABEL_ROW, LABEL_PLACE]].tolist():
            space = contents.spaces.get(by_seat[int(work[at, SEAT])].namespace)
            owner = space.owner(place) if space is not None and place >= 0 else None
            if owner is not None:
                contents.credit([owner])

    def _ask_others(self, work: Longs, ids: Ints) -> None:
        """Ask the other drafters text by text; the chain that promises most replaces the kernel's."""
        known = self.following.seats.lengths
        for row, end, room, seat in work[:, [ROW, END, ROOM, SEAT]].tolist():
            one = self.following.by_seat[seat]
            one.tell_others(ids[row, :end], int(known[seat]))
            best = float(self.following.chains.reach[seat].sum())
            for number, source in enumerate(one.others):
                if room < 1 or source.session is None:
                    continue
                rates = self._rates(OTHERS + number)
                tree = source.draft(Ask(_TREE * room, 0, rates), self._vocab_size)
                nodes = tree.best_chain()[:room]
                reach = np.cumprod(rates[tree.evidence[nodes]], dtype=np.float32)
                if len(nodes) and (promised := float(reach.sum())) > best:
                    best, size = promised, len(nodes)
                    chain = self.following.chains
                    chain.tokens[TOKENS, seat, :size] = tree.tokens[nodes]
                    chain.tokens[EVIDENCE, seat, :size] = tree.evidence[nodes]
                    chain.tokens[SPEAKER, seat, :size] = OTHERS + number
                    chain.reach[seat, :size], chain.reach[seat, size:] = reach, 0
                    chain.lengths[seat] = size

    def _cut(self, work: Longs, context: int, drafts: list[list[int]]) -> int:
        """Cut the chains to what the planner says, into ``drafts``; returns how many tokens there are."""
        chains, seats = self.following.chains, work[:, SEAT]
        cuts = self.planner.choose(chains.reach[seats], len(drafts), context)
        chains.scored[seats] = cuts
        count = int(cuts.sum())
        if not count:
            return 0
        tokens = chains.tokens[TOKENS, seats].tolist()
        for row, own, cut in zip(work[:, ROW].tolist(), tokens, cuts.tolist(), strict=True):
            if cut:
                drafts[row] = own[:cut]
        if self._is_alone:
            self.counts.drafted[OWN] += count
            return count
        speakers = chains.tokens[SPEAKER, seats]
        scored = np.arange(speakers.shape[1]) < cuts[:, None]
        self.counts.drafted += np.bincount(speakers[scored], minlength=len(self.counts.drafted))
        return count
