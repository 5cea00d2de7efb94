"""What a head is trained for: to foretell the target's distribution at its first step and at later ones."""

from __future__ import annotations

import torch

from draftwood.engines.transformers.head.module import HeadModule
from draftwood.training.loss import Batch, Result, Teacher, cross_entropy

DECAY = 0.8  # weight of each further step, as in EAGLE


def loss_of(module: HeadModule, teacher: Teacher, batch: Batch, steps: int) -> Result:
    """Return the mean cross-entropy of all steps, weighted by `DECAY`.

    The head at token ``j`` reads the target's state there and the token behind it, and foretells what the target
    says behind that token.
    """
    states, following = batch.states[:, :-1], batch.ids[:, 1:]
    wanted = teacher.distribution(batch.last[:, 1:])
    best = wanted.argmax(-1)
    made = module(states, teacher.embedding[following].to(states.dtype), steps)
    losses, agreement = [], []
    for step, normed in enumerate(made):
        normed = normed[:, step:].flatten(0, 1).to(teacher.rows.dtype)
        entropy, found = cross_entropy(normed, teacher.rows, wanted[:, step:].flatten(0, 1))
        losses.append(DECAY**step * entropy / len(normed))
        agreement.append((found == best[:, step:].flatten()).double().mean())
    return Result(
        torch.stack(losses).sum(), float(losses[0].detach()), torch.stack(agreement).detach(), batch.ids.numel()
    )
