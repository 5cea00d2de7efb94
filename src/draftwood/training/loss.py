"""What a head is trained for: to foretell the target's own distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import linear

_BLOCK = 512  # rows scored at once


class Windows(NamedTuple):
    """Windows of equal length: ids int64[b, n], states [b, n, layers * width], last [b, n, width]."""

    ids: Tensor
    states: Tensor
    last: Tensor


class Result(NamedTuple):
    """What a loss gives for a batch."""

    loss: Tensor  # to be minimised
    first: float  # cross-entropy of the first step, to be shown
    agreement: Tensor  # of each step, the share of tokens on which the head and the target agree
    tokens: int  # of the batch


Loss = Callable[[Windows, int], Result]
"""``loss(batch, steps)``"""


class Teacher:
    """The target's side of training: ``embedded`` returns the embeddings of tokens, ``rows`` [v, width] are those
    that score the tokens of the head's vocabulary."""

    def __init__(self, embedded: Callable[[Tensor], Tensor], rows: Tensor) -> None:
        self.embedded, self.rows = embedded, rows

    @torch.no_grad()
    def distribution(self, last: Tensor) -> Tensor:
        """Return the target's distribution among the head's tokens, [..., v]."""
        return linear(last.to(self.rows.dtype), self.rows).float().softmax(-1)


class _CrossEntropy(Function):
    """Sum of the cross-entropies of rows against whole distributions.

    The gradient is made together with the value, a block of rows at a time, which stays in the processor's cache:
    all logits at once would be written and read a dozen times.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, rows: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Take ``states`` [n, width], ``rows`` [v, width], ``wanted`` [n, v].

        Returns the sum, and the best tokens int64[n].
        """
        gradient, whole = torch.empty_like(states), torch.zeros((), device=states.device)
        best = torch.empty(len(states), dtype=torch.int64, device=states.device)
        for first in range(0, len(states), _BLOCK):
            some = slice(first, first + _BLOCK)
            scores = linear(states[some], rows).float()
            best[some] = scores.argmax(-1)
            scores = scores.log_softmax(-1)
            whole -= torch.dot(scores.view(-1), wanted[some].reshape(-1))
            gradient[some] = scores.exp_().sub_(wanted[some]).to(rows.dtype) @ rows
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(best)
        return whole, best

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> Any:
        (gradient,) = ctx.saved_tensors
        return gradient * outputs[0], None, None


def cross_entropy(states: Tensor, rows: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of the cross-entropies of states [n, width] against distributions ``wanted`` [n, v].

    ``rows`` [v, width] score tokens. Also returns the best token of each state, int64[n].
    """
    found: tuple[Tensor, Tensor] = _CrossEntropy.apply(states, rows, wanted)  # type: ignore[no-untyped-call]
    return found
