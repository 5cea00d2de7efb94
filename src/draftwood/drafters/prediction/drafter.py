"""Drafter ``prediction``: copies from a text that the user expects, and finds its place again after changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import DraftTexts, Feedback, Floats, Noise, Takes
from draftwood.drafters.answer import AnswerSession
from draftwood.drafters.base import BaseDrafter, draft_tree
from draftwood.errors import UsageError
from draftwood.index.accept_rates import for_kernel
from draftwood.tree import TokenTree

if TYPE_CHECKING:
    from draftwood.drafters.prediction.expected import Expected

PRIOR = (
    *(0.30,),  # the beginning of a text
    *(0.55, 0.95),  # what became of it before, instead of what stands in the prediction: so once, more often
    *(0.20, 0.05, 0.05, 0.03),  # as many tokens replaced as the answer gave: 1, 2, 3 or 4, 5 to 16
    *(0.07, 0.02, 0.02),  # the answer's tokens were inserted: 1, 2, 3 and more
    *(0.05, 0.05),  # one token more replaced than given, one fewer
    *(0.55, 0.10, 0.75, 0.81, 0.91),  # best match nearby: 1 token (near, further), 2, 3, 4 or 5
    *(0.08,),  # another match of 1 or 2 tokens
    *(0.35, 0.05, 0.06),  # what was replaced before, kept: once, more often; by position alone after a short match
    *(0.60, 0.75, 0.90, 0.95),  # match anywhere: 3 tokens, 4 or 5, 6 to 8, 9 and more
    *(0.88, 0.92, 0.96, 0.97, 0.98),  # behind the cursor: up to 3 tokens, 4, 8, 16, 32 and more
    *(0.15, 0.45),  # any match after the prediction was lost: up to 3 tokens, 4 and more
)
"""Acceptance rate per evidence class: source code of which lines were changed at random (``--classes`` of
``benchmarks/prediction_changes.py``), leaning towards what SmolLM2 made of texts to edit or correct."""

_PRIOR = np.array(PRIOR, dtype=np.float32)
_PRIOR.flags.writeable = False


@dataclass(frozen=True)
class PredictionDrafter(BaseDrafter):
    """Copies from texts that the user expects, and finds its place again after a difference.

    Parameters
    ----------
    length
        Most tokens it proposes.
    window
        How many tokens of the prediction ahead of the place where the answer left it are searched for any match;
        a quarter as many behind it. Elsewhere three tokens must match.
    floor
        Proposals less likely to be reached and taken than this are not made.
    texts
        Token ids of the expected texts, each as it would be written in the answer; see
        `draftwood.api.prediction_text.variants`.

    Raises
    ------
    UsageError
        For an option out of range, and for what are no token ids.
    """

    name: ClassVar[str] = "prediction"

    length: int = 64
    window: int = 256
    floor: float = 0.01
    texts: tuple[tuple[int, ...], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.length <= 1 << 16:
            raise UsageError("prediction: length must lie between 1 and 65536")
        if not 4 <= self.window <= 1 << 16:
            raise UsageError("prediction: window must lie between 4 and 65536")
        if not 0 <= self.floor <= 1:
            raise UsageError("prediction: floor is a probability, between 0 and 1")
        for text in self.texts:
            _checked(text)

    @property
    def prior(self) -> Floats:
        return _PRIOR

    @property
    def takes(self) -> Takes:
        return Takes(prediction=True)

    def with_user_texts(self, texts: DraftTexts) -> PredictionDrafter:
        return replace(self, texts=tuple(dict.fromkeys((*self.texts, *texts.prediction))))

    @cached_property
    def expected(self) -> Expected:
        """The texts, indexed when first asked for; shared by all sessions."""
        from draftwood.drafters.prediction.expected import Expected  # brings numba, so not before it is used

        return Expected([_checked(text) for text in self.texts])

    def open(self, prompt: Sequence[int], noise: Noise | None) -> PredictionSession:  # noqa: ARG002
        return PredictionSession(self, prompt)


def _checked(text: Sequence[int]) -> NDArray[np.int64]:
    ids = np.asarray(text)
    if ids.ndim != 1 or (ids.size and (ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= 1 << 31)):
        raise UsageError("prediction: texts must be sequences of token ids: tokenise each text first")
    return ids.astype(np.int64)


class PredictionSession(AnswerSession):
    """One answer beside its prediction.

    Attributes
    ----------
    accepted_prediction_tokens
        Tokens of the answer that this drafter had proposed from the prediction and the target took.
    rejected_prediction_tokens
        Scored proposals of this drafter that the target did not take, those behind a refused one and those of
        other branches included. What the planner left unscored is in neither count. Both count the whole session:
        `truncate` takes nothing back, since the work was done.
    """

    accepted_prediction_tokens = 0
    rejected_prediction_tokens = 0

    def __init__(self, drafter: PredictionDrafter, prompt: Sequence[int]) -> None:
        from draftwood.drafters.prediction import alignment
        from draftwood.drafters.prediction.grow_kernel import draft

        self._draft, self._fields = draft, alignment
        self._drafter, self._expected = drafter, drafter.expected
        self._state = np.zeros(alignment.STATE, dtype=np.int64)
        self._out = np.empty((5, drafter.length), dtype=np.int32)
        super().__init__(prompt)

    def _restart(self) -> None:
        """Put the cursor where the answer begins."""
        self._state[:] = 0
        self._state[[self._fields.SEEN, self._fields.START]] = self.start

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:  # noqa: ARG002
        drafter, expected, out = self._drafter, self._expected, self._out
        n = 0
        if len(expected.starts):
            n = self._draft(
                (expected.flat, expected.heads, expected.chain, expected.starts),
                (self._buffer, self._length),
                self._state,
                drafter.window,
                (min(nodes, drafter.length), float(drafter.floor)),
                for_kernel(accept_rates, len(drafter.prior)),
                out,
            )
        self.match_length = int(self._state[self._fields.MATCH])
        if not n:
            return TokenTree.empty()
        evidence = out[2, :n].astype(np.int16)
        return draft_tree(out[0, :n].copy(), evidence, accept_rates[evidence], out[1, :n].copy())

    def learn(self, feedback: Feedback) -> None:
        super().learn(feedback)
        scored = set(feedback.node_map.tolist()) - {-1}
        accepted = len(scored.intersection(feedback.path))
        self.accepted_prediction_tokens += accepted
        self.rejected_prediction_tokens += len(scored) - accepted

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().extend(ids)
        self._restart()

    def begin_answer(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().begin_answer(ids)
        self._restart()

    def truncate(self, length: int) -> None:
        super().truncate(length)
        self._restart()  # what is left of the answer is followed again at the next draft

    def close(self) -> None:
        super().close()
        self._restart()

    def fork(self) -> Self:
        twin = super().fork()
        twin._state, twin._out = self._state.copy(), self._out.copy()
        return twin
