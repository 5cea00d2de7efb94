"""Trains a head: a small layer that drafts from a model's hidden states (``draftwood train head``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from draftwood.engines.heads.weights import HeadShape, HeadWeights
from draftwood.engines.transformers.head.load import embedding_fingerprint, usual_layers
from draftwood.engines.transformers.head.module import HeadModule
from draftwood.engines.transformers.lean_parts import Parts, read_parts
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import ModelError, UsageError
from draftwood.files.paths import whole_file
from draftwood.training.job import TrainingJob
from draftwood.training.loss import Loss, Result, Teacher, Windows, cross_entropy

DECAY = 0.8  # weight of each further step, as in EAGLE
_SPREAD = 0.02  # standard deviation of the first weights, as in the models that heads are made for
_SMALL = 0.005  # the same of the two matrices that write to the residual stream, so that the layer changes little


class HeadJob(TrainingJob):
    """Makes a head."""

    command = "train head"

    def chosen_layers(self) -> tuple[int, ...]:
        layers, shown = self.plan.layers or usual_layers(self.target), self.target.capabilities.hidden
        if outside := set(layers) - set(shown):
            raise UsageError(f"--states {sorted(outside)}: this model shows 0 to {max(shown)}")
        return layers

    def begin(self, teacher: Teacher) -> tuple[HeadModule, Loss, int]:
        module = begun(self.target, self.model, self.layers).to(teacher.embedding.device)
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
    for step, normed in enumerate(module(states, teacher.embedding[following].to(states.dtype), steps)):
        normed = normed[:, step:].flatten(0, 1).to(teacher.rows.dtype)
        entropy, found = cross_entropy(normed, teacher.rows, wanted[:, step:].flatten(0, 1))
        losses.append(DECAY**step * entropy / len(normed))
        agreement.append((found == best[:, step:].flatten()).double().mean())
    first, tokens = float(losses[0].detach()), batch.ids.numel()
    return Result(torch.stack(losses).sum(), first, torch.stack(agreement).detach(), tokens)


def write_head(
    path: Path, module: HeadModule, ids: Sequence[int], embedding: Tensor, about: Mapping[str, str]
) -> None:
    """Write a head's file, completely or not at all.

    ``embedding`` is the model's, [vocab, width], and ``about`` joins the header.
    """
    weights = HeadWeights(module.shape, module.tensors(ids, torch.bfloat16), embedding_fingerprint(embedding))
    with whole_file(path, error=ModelError) as beside:
        beside.write_bytes(save(dict(weights.tensors), {**weights.header(), **about}))


def begun(target: TransformersTarget, model: Any, layers: tuple[int, ...]) -> HeadModule:
    """Return a head for a target, as wide as one of its layers.

    Its first weights are those of the last layer of a Llama-like model, which foretells a token from states like
    those that the head will read; for other models they are random (torch's own generator).
    """
    embedding, _ = target.token_tables()
    config, width = model.config.get_text_config(), embedding.shape[1]
    heads = int(config.num_attention_heads)
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    dim = int(getattr(config, "head_dim", None) or width // heads)
    inner = getattr(config, "intermediate_size", None)
    eps = float(getattr(config, "rms_norm_eps", None) or 1e-6)
    shape = HeadShape(width, layers, target.n_layers, len(embedding), dim, eps, _theta(config))
    module = HeadModule(shape, heads, kv_heads, inner if isinstance(inner, int) else 4 * width)
    parts = read_parts(model)
    with torch.no_grad():
        if parts is None:
            _randomise(module)
        else:
            _imitate(module, parts)
    return module


def _randomise(module: HeadModule) -> None:
    for matrix in (value for value in module.parameters() if value.dim() == 2):
        matrix.normal_(std=_SPREAD)
    for added in (module.midlayer.self_attn.o_proj, module.midlayer.mlp.down_proj):
        added.weight.normal_(std=_SMALL)


def _imitate(module: HeadModule, parts: Parts) -> None:
    """Copy the model's last layer. Of what the head reads it uses the last state, and hardly the embedding."""
    last, width = parts.layers[-1], module.shape.width
    layer, attention = module.midlayer, module.midlayer.self_attn
    module.fc.weight.normal_(std=0.01 * width**-0.5)
    module.fc.weight[:, -width:] += torch.eye(width)
    for own, its in ((attention.q_proj, last.q), (attention.k_proj, last.k), (attention.v_proj, last.v)):
        own.weight[:, :width].normal_(std=0.1 * width**-0.5)
        own.weight[:, width:] = its.weight
    pairs: Sequence[tuple[Tensor, Tensor]] = (
        (attention.o_proj.weight, last.o.weight), (layer.mlp.gate_proj.weight, last.gate.weight),
        (layer.mlp.up_proj.weight, last.up.weight), (layer.mlp.down_proj.weight, last.down.weight),
        (layer.hidden_norm.weight, last.first_norm[0]),
        (layer.post_attention_layernorm.weight, last.second_norm[0]), (module.norm.weight, parts.norm[0]),
    )  # fmt: skip
    for own_weight, its_weight in pairs:
        own_weight.copy_(its_weight)


def _theta(config: Any) -> float:
    """Return the base of a model's rotary positions."""
    known = getattr(config, "rope_parameters", None)
    known = known if isinstance(known, Mapping) else {}
    return float(known.get("rope_theta") or getattr(config, "rope_theta", None) or 10000.0)
