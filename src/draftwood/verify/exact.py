"""Sample and match: at each node take the target's own choice, follow the child that equals it.

The choice depends on the scores, the committed text and keyed noise, never on what was drafted; so the text is
the one plain decoding writes, token for token, sampled or greedy, whatever the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Ended, Processor, Sampling, Scores, Verdict
from draftwood.errors import DraftwoodError
from draftwood.tree import TokenTree
from draftwood.verify.noise import KeyedNoise
from draftwood.verify.sampling import check_sampling, choose, penalise


@dataclass(frozen=True)
class SampleAndMatch:
    """The default rule; fulfils `draftwood.contracts.Rule`. Stateless: each request gets a session of its own."""

    def open(
        self, prompt: Sequence[int], sampling: Sampling, processors: Sequence[Processor] = (), sequence: int = 0
    ) -> ExactSession:
        """Start a request; raises `UsageError` if a sampling setting is out of its range."""
        return ExactSession(prompt, sampling, processors, sequence)


class ExactSession:
    """One request's committed text, noise and processors; fulfils `draftwood.contracts.RuleSession`.

    Parameters
    ----------
    prompt
        Token ids of the text so far.
    sampling
        Settings of this request.
    processors
        Called in order, each once per emitted token, after the repetition penalty and before the temperature.
        They get rows of the target's own array type, which they may write to.
    sequence
        Number of the returned sequence; keys the noise together with the seed.
    """

    def __init__(
        self, prompt: Sequence[int], sampling: Sampling, processors: Sequence[Processor] = (), sequence: int = 0
    ) -> None:
        check_sampling(sampling)
        self.sampling = sampling
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

        Parameters
        ----------
        tree
            What was scored; empty for a plain step and for the first token after reading the prompt.
        scores
            One row for the root and one per node; only rows on the way are asked for.
        ended
            Told each emitted token in order. After a reason nothing is chosen, and no processor is called.

        Returns
        -------
        Verdict
            A node that carries the text's last token counts as accepted.

        Raises
        ------
        DraftwoodError
            If the root's row is all masked or has a NaN, or a processor returns a row of another shape. Further
            down it comes in the verdict: the tokens before it are the text's.
        """
        path: list[int] = []
        emitted: list[int] = []
        node, finish = -1, None
        try:
            while finish is None and (node >= 0 or not emitted):
                token = self._choose(scores, node + 1)
                self._append(token)
                emitted.append(token)
                finish = ended(token)
                node = tree.child(node, token)
                if node >= 0:
                    path.append(node)
        except Exception as error:
            if not emitted:
                raise
            return Verdict(tuple(path), tuple(emitted), error=error)
        return Verdict(tuple(path), tuple(emitted), finish)

    def extend(self, ids: Sequence[int]) -> None:
        """Take in committed text that no verdict brought."""
        self._text.extend(ids)
        if self._penalised:
            self._see(ids)

    def _choose(self, scores: Scores, row: int) -> int:
        """Return the target's own choice at this row of the pass, given the committed text."""
        if self._plain and (best := scores.argmax(row)) >= 0:
            return best
        raw = scores.raw(row)
        if not self._processors:
            return self._decide(self._penalise(scores.numpy(raw)))
        # A copy, since processors may write to their row and the pass is still read for feedback.
        own = self._penalise(raw) if self._penalised else raw * 1
        for processor in self._processors:
            own = processor(self.prefix, own)
            if np.shape(own) != np.shape(raw):
                name = getattr(processor, "__name__", type(processor).__name__)
                shapes = f"{list(np.shape(own))} for a row of shape {list(np.shape(raw))}"
                raise DraftwoodError(
                    f"the logits processor {name} returned shape {shapes}; it must keep the shape"
                )
        return self._decide(scores.numpy(own))

    def _penalise(self, row: Any) -> Any:
        # In the row's own array type, so that it can come before the user's processors.
        return penalise(row, self._seen.view, self.sampling.repetition_penalty) if self._penalised else row

    def _decide(self, row: NDArray[np.float32]) -> int:
        return choose(row, self.sampling, self.noise, self._text.length)

    def _append(self, token: int) -> None:
        self._text.extend((token,))
        if self._penalised and token not in self._seen_set:
            self._see((token,))

    def _see(self, ids: Sequence[int] | NDArray[np.int64]) -> None:
        fresh = {int(token) for token in ids} - self._seen_set
        self._seen_set |= fresh
        self._seen.extend(sorted(fresh))


class _Growing:
    """An int64 array that grows at its end, in amortised constant time."""

    def __init__(self) -> None:
        self._room = np.empty(256, dtype=np.int64)
        self.length = 0

    @property
    def view(self) -> NDArray[np.int64]:
        return self._room[: self.length]

    def extend(self, ids: Sequence[int]) -> None:
        end = self.length + len(ids)
        if end > len(self._room):
            room = np.empty(2 * end, dtype=np.int64)
            room[: self.length] = self.view
            self._room = room
        self._room[self.length : end] = ids
        self.length = end
