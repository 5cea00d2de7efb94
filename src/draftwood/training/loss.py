"""What a head is trained for: to foretell the target's own distribution, at its first step and at later ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from draftwood.engines.transformers.head.module import HeadModule

DECAY = 0.8  # weight of each further step, as in EAGLE


class Batch(NamedTuple):
    """Windows of equal length: ids int64[b, n], states [b, n, layers * width], last [b, n, width]."""

    ids: Tensor
    states: Tensor
    last: Tensor


class Result(NamedTuple):
    """The loss, and of each step the share of tokens that the head and the target agree on, float64[steps]."""

    loss: Tensor
    agreement: Tensor
    tokens: int


class Teacher:
    """The target's side of training.

    Parameters
    ----------
    embedding, rows
        The target's tables, [vocab, width].
    norm
        What is applied to the last layer's states before tokens are scored.
    ids
        The head's vocabulary, int64[v].
    """

    def __init__(self, embedding: Tensor, rows: Tensor, norm: torch.nn.Module, ids: Tensor) -> None:
        self.embedding, self._norm = embedding, norm
        self._rows = rows[ids].clone()

    def logits(self, states: Tensor) -> Tensor:
        """Score the head's tokens by normed states [..., width]: [..., v]."""
        return linear(states, self._rows.to(states.dtype))

    @torch.no_grad()
    def distribution(self, last: Tensor) -> Tensor:
        """Return the target's distribution among the head's tokens, [..., v]."""
        return self.logits(self._norm(last.to(self._rows.dtype))).float().softmax(-1)


def loss_of(module: HeadModule, teacher: Teacher, batch: Batch, steps: int) -> Result:
    """Return the mean cross-entropy of all steps, weighted by `DECAY`.

    The head at token ``j`` reads the target's state there and the token behind it, and foretells what the target
    says behind that token.
    """
    states, following = batch.states[:, :-1], batch.ids[:, 1:]
    wanted = teacher.distribution(batch.last[:, 1:])
    best = wanted.argmax(-1)
    made = module(states, teacher.embedding[following].to(states.dtype), steps)
    whole: Tensor | float = 0.0
    agreement = []
    for step, normed in enumerate(made):
        logits = teacher.logits(normed[:, step:]).float()
        entropy = -(wanted[:, step:] * logits.log_softmax(-1)).sum(-1).mean()
        whole = whole + DECAY**step * entropy
        agreement.append((logits.argmax(-1) == best[:, step:]).double().mean())
    return Result(torch.as_tensor(whole), torch.stack(agreement).detach(), batch.ids.numel())


def expected_tokens(agreement: Sequence[float]) -> float:
    """Return the tokens that a pass emits with chains of so many steps, if each agreement were independent."""
    reached, tokens = 1.0, 1.0
    for share in agreement:
        reached *= share
        tokens += reached
    return tokens
