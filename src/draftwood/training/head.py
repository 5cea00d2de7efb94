"""A head under training: its first weights, its loss, and its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from draftwood.engines.heads.weights import HeadWeights
from draftwood.errors import ModelError
from draftwood.files.paths import whole_file
from draftwood.training.head_module import HeadModule
from draftwood.training.loss import Result, Teacher, Windows, cross_entropy
from draftwood.training.target import TrainingTarget
from draftwood.training.train import Progress

DECAY = 0.8  # weight of each further step, as in EAGLE
_SPREAD = 0.02  # standard deviation of the first weights, as in the models that heads are made for
_SMALL = 0.005  # the same of the two matrices that write to the residual stream, so that the layer changes little


@dataclass(frozen=True, slots=True)
class Trained:
    """A head, the tokens that it can say (ascending), its figures, and its model's fingerprint."""

    module: HeadModule
    ids: list[int]
    progress: Progress
    fingerprint: str


def loss_of(module: HeadModule, teacher: Teacher, batch: Windows, steps: int) -> Result:
    """Return the mean cross-entropy of all steps, weighted by `DECAY`.

    The head at token ``j`` reads the target's state there and the next token, and predicts the target's
    distribution after that token.
    """
    states, following = batch.states[:, :-1], batch.ids[:, 1:]
    wanted = teacher.distribution(batch.last[:, 1:])
    best = wanted.argmax(-1)
    losses, agreement = [], []
    for step, normed in enumerate(module(states, teacher.embedded(following).to(states.dtype), steps)):
        normed = normed[:, step:].flatten(0, 1).to(teacher.rows.dtype)
        entropy, found = cross_entropy(normed, teacher.rows, wanted[:, step:].flatten(0, 1))
        losses.append(DECAY**step * entropy / len(normed))
        agreement.append((found == best[:, step:].flatten()).double().mean())
    first, tokens = float(losses[0].detach()), batch.ids.numel()
    return Result(torch.stack(losses).sum(), first, torch.stack(agreement).detach(), tokens)


def write_head(path: Path, made: Trained, about: Mapping[str, str]) -> None:
    """Write a head's file, completely or not at all; ``about`` joins its header."""
    weights = HeadWeights(made.module.shape, made.module.tensors(made.ids, torch.bfloat16), made.fingerprint)
    with whole_file(path, error=ModelError) as beside:
        beside.write_bytes(save(dict(weights.tensors), {**weights.header(), **about}))


def begun(target: TrainingTarget, layers: tuple[int, ...]) -> HeadModule:
    """Return a head for a target, as wide as one of its layers.

    Its first weights are those of the last layer of a Llama-like model, which foretells a token from states like
    those that the head will read; for other models they are random (torch's own generator).
    """
    module, last = target.head(layers), target.last_layer()
    with torch.no_grad():
        if last:
            _imitate(module, last)
        else:
            _randomise(module)
    return module


def _randomise(module: HeadModule) -> None:
    for matrix in (value for value in module.parameters() if value.dim() == 2):
        matrix.normal_(std=_SPREAD)
    for added in (module.midlayer.self_attn.o_proj, module.midlayer.mlp.down_proj):
        added.weight.normal_(std=_SMALL)


def _imitate(module: HeadModule, last: Mapping[str, Tensor]) -> None:
    """Copy the model's last layer. Of what the head reads it uses the last state, and hardly the embedding."""
    width = module.shape.width
    module.fc.weight.normal_(std=0.01 * width**-0.5)
    module.fc.weight[:, -width:] += torch.eye(width)
    for name, own in module.named_parameters():
        if name in last and own.shape == last[name].shape:
            own.copy_(last[name])
        elif name in last:  # queries, keys and values, which read the embedding, too
            own[:, :width].normal_(std=0.1 * width**-0.5)
            own[:, width:] = last[name]
