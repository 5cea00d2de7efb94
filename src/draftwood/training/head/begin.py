"""How a head begins: its shape and its first weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from draftwood.engines.heads.weights import HeadShape
from draftwood.engines.transformers.head.module import HeadModule
from draftwood.engines.transformers.lean_parts import Parts, read_parts
from draftwood.engines.transformers.target import TransformersTarget

_SPREAD = 0.02  # standard deviation of the first weights, as in the models that heads are made for
_SMALL = 0.005  # and of what is added to the residual stream: at first the layer changes little


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
    """Take over the last layer; it reads the last of the head's states, and almost nothing of the embedding."""
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
