"""Sample and match: at each node take the target's own choice, and follow the child that equals it.

The choice depends on the scores, the committed text and keyed noise, never on what was drafted. So the text is the
one that plain decoding writes, token for token, sampled or greedy, whatever the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Ended, Floats, Processor, Rule, RuleSession, Sampling, Scores, Verdict
from draftwood.errors import DraftwoodError
from draftwood.tree import TokenTree
from draftwood.verify.noise import KeyedNoise
from draftwood.verify.sampling import check_sampling, choose, penalise


@dataclass(frozen=True)
class SampleAndMatch(Rule):
    """The default rule."""

    name: ClassVar[str] = "exact"
    lossy: ClassVar[bool] = False

    def open(
        self, prompt: Sequence[int], sampling: Sampling, processors: Sequence[Processor] = (), sequence: int = 0
    ) -> ExactSession:
        """Start a request; raises `UsageError` if a sampling setting is out of its range."""
        return ExactSession(prompt, sampling, processors, sequence)


class ExactSession(RuleSession):
    """One request's committed text, noise and processors.

    Each processor is called once per emitted token, after the repetition penalty and before the temperature, with
    a row of the target's own array type, which it may write to. Seed and ``sequence`` key the noise.
    """

    def __init__(
        self, prompt: Sequence[int], sampling: Sampling, processors: Sequence[Processor] = (), sequence: int = 0
    ) -> None:
        self.sampling = sampling = check_sampling(sampling)
        self.noise = None if sampling.greedy else KeyedNoise(sampling.seed, sequence, sampling.temperature)
        self._processors = tuple(processors)
        self._penalised = sampling.repetition_penalty != 1
        self._plain = sampling.greedy and not self._penalised and not self._processors
        self._text = _Growing()
        self._seen = _Growing()  # the distinct tokens of the text, kept only where they are penalised
        self._seen_set: set[int] = set()
        self.extend(prompt)

    @property
    def prefix(self) -> NDArray[np.int64]:
        """The committed text, int64[length]; a view."""
        return self._text.view

    def verify(self, tree: TokenTree, scores: Scores, ended: Ended) -> Verdict:
        """Walk from the root, accept while the target's own choice is a child, stop where the text ends.

        Reads only the rows of ``scores`` that lie on the way. ``ended`` is told each emitted token in order; once
        it gives a reason, nothing more is chosen. A node that carries the text's last token counts as accepted.

        Raises `DraftwoodError` if the root's row is all masked or has a NaN, or a processor returns another shape.
        Further down the error comes in the verdict: the tokens before it are committed.
        """
        path: list[int] = []
        emitted: list[int] = []
        node = -1
        try:
            while True:
                token = self._next(tree, node, scores)
                self.extend((token,))
                emitted.append(token)
                finish = ended(token)
                node = tree.child(node, token)
                if node < 0:
                    break
                path.append(node)
                if finish is not None:
                    break
        except Exception as error:
            if not emitted:
                raise
            return Verdict(tuple(path), tuple(emitted), error=error)
        return Verdict(tuple(path), tuple(emitted), finish)

    def extend(self, ids: Sequence[int]) -> None:
        """Take in committed text that was read, not chosen."""
        self._text.new += ids
        if self._penalised and (fresh := {int(token) for token in ids} - self._seen_set):
            self._seen_set |= fresh
            self._seen.new += sorted(fresh)

    def _next(self, tree: TokenTree, node: int, scores: Scores) -> int:  # noqa: ARG002 - for rules that look
        """Return the token that follows ``node`` (-1: the root); a rule that accepts more replaces this alone."""
        if self._plain and (best := scores.argmax(node + 1)) >= 0:
            return best
        return self._choice(self._processed(scores, node + 1))

    def _choice(self, row: Floats) -> int:
        """Return the target's own choice from a row of processed scores, float32[vocab]."""
        return choose(row, self.sampling, self.noise, self._text.length)

    def _processed(self, scores: Scores, row: int) -> Floats:
        """Return the scores of a row of the pass after penalty and processors, given the committed text."""
        raw = scores.raw(row)
        # Processors get a copy in the target's own array type, since they may write to it.
        own = raw * 1 if self._processors else scores.numpy(raw)
        if self._penalised:
            last = self.sampling.penalty_last_n
            ids = self._text.view[-last:] if last else self._seen.view
            own = penalise(own, ids, self.sampling.repetition_penalty)
        for processor in self._processors:
            own = processor(self.prefix, own)
            if np.shape(own) != np.shape(raw):
                name = getattr(processor, "__name__", type(processor).__name__)
                shapes = f"{list(np.shape(own))} for a row of shape {list(np.shape(raw))}"
                raise DraftwoodError(
                    f"the logits processor {name} returned shape {shapes}; it must keep the shape"
                )
        return scores.numpy(own) if self._processors else own


class _Growing:
    """An int64 array that grows at its end, in amortised constant time; written when it is looked at."""

    def __init__(self) -> None:
        self._room = np.empty(256, dtype=np.int64)
        self._written = 0
        self.new = list[int]()  # to add to the array, add to this

    @property
    def length(self) -> int:
        return self._written + len(self.new)

    @property
    def view(self) -> NDArray[np.int64]:
        before, end = self._written, self.length
        if end > before:
            if end > len(self._room):
                room = np.empty(2 * end, dtype=np.int64)
                room[:before] = self._room[:before]
                self._room = room
            self._room[before:end] = self.new
            self._written, self.new = end, []
        return self._room[:end]
