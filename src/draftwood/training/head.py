"""Trains a head: a small layer that drafts from a model's hidden states (``draftwood train head``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from draftwood.engines.heads.fitting import usual
from draftwood.engines.heads.weights import HeadWeights, read_head
from draftwood.errors import ModelError, UsageError
from draftwood.files.paths import whole_file
from draftwood.training.head_module import HeadModule
from draftwood.training.job import Trained, TrainingJob
from draftwood.training.loss import Loss, Result, Teacher, Windows, cross_entropy
from draftwood.training.target import TrainingTarget

DECAY = 0.8  # weight of each further step, as in EAGLE
_SPREAD = 0.02  # standard deviation of the first weights, as in the models that heads are made for
_SMALL = 0.005  # the same of the two matrices that write to the residual stream, so that the layer changes little


class HeadJob(TrainingJob):
    """Makes a head."""

    command = "train head"

    _start: HeadWeights | None = None

    def chosen_layers(self) -> tuple[int, ...]:
        layers, shown = self.plan.layers or usual(self.target.layers), self.target.target.capabilities.hidden
        if (path := self.plan.start) is not None:
            self._start = start = read_head(path)
            layers = start.shape.layers or usual(self.target.layers)
            module = self.target.head(layers)
            sizes = {name: tuple(value.shape) for name, value in module.named_parameters()}
            fits = replace(start.shape, layers=layers, target_layers=self.target.layers) == module.shape
            if not fits or sizes != {name: start.tensors[name].shape for name in sizes}:
                raise UsageError(f"--from {path}: that head was made for another model: leave it out")
            if self.plan.layers not in ((), layers):
                raise UsageError(f"--from {path}: that head reads the layers {layers}: leave --states out")
        if outside := set(layers) - set(shown):
            raise UsageError(f"--states {sorted(outside)}: this model shows 0 to {max(shown)}")
        return layers

    def begin(self, teacher: Teacher) -> tuple[HeadModule, Loss, int]:
        module = begun(self.target, self.layers)
        if self._start is not None:
            with torch.no_grad():
                for name, own in module.named_parameters():
                    own.copy_(torch.from_numpy(self._start.tensors[name]))
        module = module.to(self.target.device)
        return module, partial(loss_of, module, teacher), self.plan.steps


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
    module: HeadModule = made.module
    weights = HeadWeights(module.shape, module.tensors(made.ids, torch.bfloat16), made.fingerprint)
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
