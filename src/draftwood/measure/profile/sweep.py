"""Measures the seconds of a pass over n tokens at a context length and of reading prompts.
Each round visits every case once, in a shuffled order, so that changes of the machine favour none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from time import perf_counter

import numpy as np

from draftwood.api.checks import check_whole
from draftwood.contracts import Target, TargetSession
from draftwood.errors import LARGEST, UsageError, number
from draftwood.measure.profile.rows import PassCase, Profile
from draftwood.tree import TokenTree

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
CONTEXTS = (128, 512, 2048)
SECONDS = 90.0  # time that the passes may take if no number of rounds is given
ROUNDS = 25  # more rounds do not change the medians
_LEAST_ROUNDS = 3
_READINGS, _READING_SHARE = 3, 0.1
_SEED = 1234

Progress = Callable[[str, float], None]  # called with what is measured now and the share of all work that is done


def profile(
    target: Target, *, sizes: Sequence[int] = SIZES, contexts: Sequence[int] | None = None,
    rounds: int | None = None, seconds: float = SECONDS, into: Profile | None = None,
    on_progress: Progress = lambda _what, _share: None,
) -> Profile:  # fmt: skip
    """Measure what passes cost on random tokens.

    ``sizes`` are tokens per pass, the root included, and ``contexts`` tokens in the cache before (None: `CONTEXTS`
    as far as the model goes); what the target cannot take is left out. Each case is timed ``rounds`` times (None:
    as the ``seconds`` for all allow, from 3 to `ROUNDS`). ``into`` is filled round by round, so that an interrupt
    loses only the unfinished one. Raises `UsageError` if nothing can be measured.
    """
    result = Profile() if into is None else into
    cases = _cases(target, sizes, contexts)
    rng = np.random.default_rng(_SEED)
    with ExitStack() as stack:
        timer = _Timer(target, rng)
        timer.open(cases, result, seconds * _READING_SHARE, stack, on_progress)
        for case in cases:  # the first pass of a shape may compile or allocate
            on_progress("warming up", 0.0)
            timer.time(case)
        budget = _Budget(rounds, seconds)
        while not budget.spent:
            on_progress(f"round {budget.done + 1}", budget.share())
            measured: dict[PassCase, float] = {}
            for which in rng.permutation(len(cases)):
                measured[cases[which]] = timer.time(cases[which])
                on_progress(f"round {budget.done + 1}", budget.share(len(measured) / len(cases)))
            for case in cases:
                result.passes.setdefault(case, []).append(measured[case])
            budget.done += 1
    return result


class _Budget:
    """Number of rounds: as many as were asked for, else as many as the seconds allow."""

    def __init__(self, rounds: int | None, seconds: float) -> None:
        if rounds is not None:
            check_whole("rounds", rounds)
        number(seconds, 5e-324, LARGEST, "seconds is {}: give a number above 0")
        self._rounds, self._seconds, self._started, self.done = rounds, seconds, perf_counter(), 0

    @property
    def spent(self) -> bool:
        if self._rounds is not None:
            return self.done >= self._rounds
        taken = perf_counter() - self._started
        return self.done >= _LEAST_ROUNDS and (self.done >= ROUNDS or taken + taken / self.done > self._seconds)

    def share(self, of_round: float = 0.0) -> float:
        """Share of the work that is done, with this share of the current round."""
        if self._rounds is not None:
            return (self.done + of_round) / self._rounds
        return min(1.0, max(self.done / ROUNDS, (perf_counter() - self._started) / self._seconds))


class _Timer:
    """Times passes at each context length; sessions return to their length after each."""

    def __init__(self, target: Target, rng: np.random.Generator) -> None:
        self._target, self._rng = target, rng
        self._sessions: dict[int, TargetSession] = {}

    def open(
        self, cases: Sequence[PassCase], result: Profile, seconds: float, stack: ExitStack, on_progress: Progress
    ) -> None:
        """Open a session per context length and time the reading; short ones are read up to three times."""
        widest = max(case.n for case in cases)
        contexts = sorted({case.context for case in cases})
        ((session, _),) = self._target.open([self._ids(contexts[0])], reserve=widest)  # warms up
        session.close()
        for context in contexts:
            on_progress(f"reading {context} tokens", 0.0)
            taken: list[float] = []
            while len(taken) < _READINGS and (not taken or sum(taken) + taken[-1] < seconds):
                ids = self._ids(context)
                started = perf_counter()
                ((session, scores),) = self._target.open([ids], reserve=widest)
                stack.enter_context(closing(session))
                scores.argmax(0)
                taken.append(perf_counter() - started)
                if self._sessions.setdefault(context, session) is not session:
                    session.close()
            result.prefill[context] = taken

    def time(self, case: PassCase) -> float:
        session, ids = self._sessions[case.context], self._ids(case.n)
        tree = TokenTree.build(ids[1:])
        _ = tree.depth, tree.ancestor_mask, tree.is_chain  # computed once per tree, also while decoding
        started = perf_counter()
        (scores,) = self._target.score([(session, ids[0], tree)])
        scores.argmax(0)  # waits for a device that works asynchronously
        taken = perf_counter() - started
        session.keep(())
        session.truncate(case.context)
        if session.length < case.context:  # the cut has lost tokens that the next pass must see
            self._target.extend([(session, self._ids(case.context - session.length))])
        return taken

    def _ids(self, n: int) -> list[int]:
        found: list[int] = self._rng.integers(0, self._target.capabilities.vocab_size, n).tolist()
        return found


def _cases(target: Target, sizes: Sequence[int], contexts: Sequence[int] | None) -> list[PassCase]:
    """The cases that this target can run, shortest context first."""
    can = target.capabilities
    if wrong := [n for n in sizes if n < 1]:
        raise UsageError(f"a pass over {wrong[0]} tokens is none: give sizes from 1 on")
    if wrong := [c for c in contexts or () if c < 1]:
        raise UsageError(f"context length {wrong[0]}: give lengths from 1 on")
    widest = 1 if can.rollback == "none" else can.max_pass
    room = can.max_positions - 1
    asked = contexts or [c for c in CONTEXTS if c < room] or [max(1, room // 2)]
    widths = sorted({n for n in sizes if n <= widest})
    cases = [PassCase(c, n) for c in sorted(set(asked)) for n in widths if c + n <= room]
    if not cases:
        raise UsageError(f"nothing to measure: give sizes up to {widest} and contexts below {can.max_positions}")
    return cases
