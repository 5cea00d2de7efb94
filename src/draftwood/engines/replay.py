"""Recorded answers as a target, to measure drafting without a model: it chooses the tokens that were recorded.

The loop, the drafters, the planner and the rule are the live ones; only the scores come from the record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Never

from draftwood.contracts import Capabilities, Floats, Ints, Target, TargetSession, Watch
from draftwood.errors import CapabilityError, PromptError
from draftwood.tree import TokenTree

MAX_ID = (1 << 31) - 1  # token ids lie below this where no tokenizer limits them: trees hold int32

Cost = Callable[[int, int], float]
"""``cost(n, context)``: seconds of a pass over ``n`` tokens, the root included, after ``context`` cached ones."""


class ReplayClock:
    """Real seconds, except that a pass counts as the cost curve's seconds, not those of looking it up."""

    def __init__(self) -> None:
        self._added = 0.0

    def __call__(self) -> float:
        return perf_counter() + self._added

    def replace(self, started: float, seconds: float) -> None:
        """Let the time since ``started`` (of `perf_counter`) count as ``seconds``."""
        self._added += seconds - (perf_counter() - started)


class ReplayTarget(Target):
    """Recorded answers, each a prompt and an output, that share passes; a `Target`. It knows what follows the
    recorded texts and nothing else: no raw scores, top-k or hidden states. A prompt recorded several times gets
    its answers in order. With ``cost``, a pass takes on ``clock`` the cost of all its tokens after the
    longest of its contexts."""

    def __init__(
        self, prompt: Sequence[int], output: Sequence[int], *more: tuple[Sequence[int], Sequence[int]],
        vocab_size: int = MAX_ID, cost: Cost | None = None, clock: ReplayClock | None = None,
    ) -> None:  # fmt: skip
        self._records = [(list(asked), [*asked, *answered]) for asked, answered in ((prompt, output), *more)]
        self._cost, self._clock = cost, clock
        longest = max(len(text) for _, text in self._records)
        self.capabilities = Capabilities(vocab_size, max_positions=longest + (1 << 20), batch=True, top_k=False)

    def open(
        self, prompts: Sequence[Sequence[int]], *, reserve: int = 0, watch: Sequence[Watch] | None = None
    ) -> list[tuple[ReplaySession, ReplayScores]]:
        del reserve, watch  # it has no scores to show
        opened, left = [], list(self._records)
        for prompt in prompts:
            asked = list(prompt)
            place = next((i for i, (recorded, _) in enumerate(left) if recorded == asked), None)
            if place is None:
                raise PromptError("a replay knows the answer to its recorded prompts only: replay one of those")
            opened.append(ReplaySession(left.pop(place)[1]))
        return list(zip(opened, self.extend(list(zip(opened, prompts, strict=True))), strict=True))

    def extend(
        self, texts: Sequence[tuple[ReplaySession, Sequence[int]]], watch: Sequence[Watch] | None = None
    ) -> list[ReplayScores]:
        del watch
        return [session.read(ids) for session, ids in texts]

    def score(self, requests: Sequence[tuple[ReplaySession, int, TokenTree]]) -> list[ReplayScores]:
        started = perf_counter()
        scores = [session.score(tree) for session, _, tree in requests]
        if self._cost is not None and self._clock is not None:
            width = sum(1 + len(tree) for _, _, tree in requests)
            self._clock.replace(started, self._cost(width, max(s.length for s, _, _ in requests)))
        return scores


class ReplaySession(TargetSession):
    """A place in the record."""

    def __init__(self, text: Sequence[int]) -> None:
        self._text, self._length = text, 0

    @property
    def length(self) -> int:
        return self._length

    def read(self, ids: Sequence[int]) -> ReplayScores:
        """Move on by these tokens; returns what the record has after them."""
        self._length += len(ids)
        return ReplayScores(self._text, self._length, TokenTree.empty())

    def score(self, tree: TokenTree) -> ReplayScores:
        """Return what the record has after the root, which follows the cached text, and after each node."""
        return ReplayScores(self._text, self._length + 1, tree)

    def keep(self, path: Sequence[int]) -> None:
        self._length += 1 + len(path)

    def truncate(self, length: int) -> None:
        self._length = min(length, self._length)

    def close(self) -> None:
        """Nothing to give back."""


class ReplayScores:
    """The next token of rows whose path was recorded; `CapabilityError` for other rows."""

    def __init__(self, text: Sequence[int], length: int, tree: TokenTree) -> None:
        self._text, self._tree = text, tree
        self._at = {0: length}  # row -> index of the token that follows it

    def argmax(self, row: int) -> int:
        if (place := self._place(row)) == len(self._text):
            self._unknown("what follows its end")
        return self._text[place]

    def _place(self, row: int) -> int:
        """Return the index of the recorded token after this row."""
        if row not in self._at:
            tree, node = self._tree, row - 1
            place = self._place(1 + int(tree.parents[node]))
            if place == len(self._text) or tree.tokens[node] != self._text[place]:
                self._unknown("what follows a draft that it did not take")
            self._at[row] = place + 1
        return self._at[row]

    def raw(self, row: int) -> Never:  # noqa: ARG002
        self._unknown("scores")

    def numpy(self, array: Any) -> Floats:  # noqa: ARG002
        self._unknown("scores")

    def top_k(self, k: int) -> tuple[Ints, Floats]:  # noqa: ARG002
        self._unknown("top-k scores")

    def hidden(self, layer: int) -> Never:  # noqa: ARG002
        self._unknown("hidden states")

    def _unknown(self, what: str) -> Never:
        raise CapabilityError(f"a recorded answer does not tell {what}: use a live model")
