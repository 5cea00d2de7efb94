"""How a head begins: as the target's last layer, which foretells a token from states like those it will read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from draftwood.engines.transformers.head.module import HeadModule
from draftwood.engines.transformers.head.weights import HeadShape
from draftwood.engines.transformers.lean_parts import Parts, read_parts
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import CapabilityError
from draftwood.training.texts import Text


def parts_of(model: Any) -> Parts:
    """Return the parts of a model; raises `CapabilityError` for one whose layers are of another kind."""
    parts = read_parts(model)
    if parts is None:
        raise CapabilityError(
            "train-head needs a Llama-like model of transformers: this one has layers of its own"
        )
    return parts


def begun(target: TransformersTarget, model: Any, layers: tuple[int, ...]) -> HeadModule:
    """Return a head for a target that is the target's last layer at first, reading the last of ``layers``."""
    parts = parts_of(model)
    embedding, _ = target.token_tables()
    last, width = parts.layers[-1], embedding.shape[1]
    shape = HeadShape(
        width, layers, target.n_layers, len(embedding), parts.dim, parts.norm[1], _theta(model.config)
    )
    module = HeadModule(shape, parts.heads, parts.kv_heads, last.gate.out_features)
    with torch.no_grad():
        module.fc.weight.normal_(std=0.01 * width**-0.5)
        module.fc.weight[:, -width:] += torch.eye(width)
        layer, attention = module.midlayer, module.midlayer.self_attn
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
    return module


def _theta(config: Any) -> float:
    """Return the base of a model's rotary positions."""
    known = getattr(config, "rope_parameters", None) or {}
    return float(known.get("rope_theta") or getattr(config, "rope_theta", None) or 10000.0)


def frequent(texts: Sequence[Text], size: int, vocab: int) -> list[int]:
    """Return the ``size`` most frequent tokens of what was written, ascending; low ids fill up what is missing."""
    counts: Counter[int] = Counter()
    for text in texts:
        counts.update(text.ids[text.start :])
    chosen = [token for token, _ in counts.most_common(size)]
    taken = set(chosen)
    chosen += [token for token in range(vocab) if token not in taken][: max(0, size - len(chosen))]
    return sorted(chosen)
