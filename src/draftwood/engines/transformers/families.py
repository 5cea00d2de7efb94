"""Reads layers and limits from a model's configuration, and refuses models of other kinds by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from typing import Any, TypeVar

import torch
from transformers.generation import GenerateDecoderOnlyOutput

from draftwood.errors import UnsupportedModelError, UsageError

Method = TypeVar("Method", bound=Callable[..., Any])

CACHES = ("cache", "past_key_values", "cache_params")
"""Names of a cache, as argument and in outputs: since transformers 5.24; before it; before it in Mambas."""
CARRIERS = (*CACHES, "state")  # that of RWKV

_UNBOUNDED = 1 << 30  # positions of a model that names no limit (recurrent ones, alibi)


def text_config(model: Any) -> Any:
    """Return the configuration of the part that writes text."""
    return model.config.get_text_config(decoder=True)


def forward_parameters(model: Any) -> frozenset[str]:
    """Names that the model's forward takes."""
    return frozenset(inspect.signature(type(model).forward).parameters)


def cache_name(known: Collection[str]) -> str:
    """Return the name of the cache among the parameters of a forward, or the fields of an output; where it is not
    among them, the one that transformers itself uses."""
    usual = GenerateDecoderOnlyOutput.__dataclass_fields__
    return next(name for names in (known, usual) for name in CARRIERS if name in names)


def takes_rows(model: Any) -> bool:
    """Whether the model's forward scores just the rows that it is told; of all it can be told the last ones."""
    parameter = inspect.signature(type(model).forward).parameters.get("logits_to_keep")
    return parameter is not None and "Tensor" in str(parameter.annotation)


def layer_windows(config: Any) -> list[int | None] | None:
    """Sliding window of each layer, None for full attention; None at all if a layer is of another kind."""
    layers = config.num_hidden_layers
    width = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        if getattr(config, "attention_chunk_size", None) is not None:
            return None
        return [width] * layers
    if set(kinds) - {"full_attention", "sliding_attention"}:
        return None
    per_layer = getattr(config, "per_layer_config", None) or [config] * len(kinds)
    return [
        getattr(of, "sliding_window", width) if kind == "sliding_attention" else None
        for kind, of in zip(kinds, per_layer, strict=False)
    ]


def row_cost(model: Any) -> float:
    """What scoring a token costs, as a share of reading it: numbers in the head over those in the layers."""
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    around = embedding.numel() + (0 if head is embedding else head.numel())
    inside = sum(weight.numel() for weight in model.parameters()) - around
    return float(head.numel() / max(1, inside))


def max_positions(config: Any) -> int:
    """Return the longest text that the model takes, prompt included; it ends where rotary embeddings would
    re-scale themselves, which would change cached keys."""
    limits = [
        value
        for name in ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")
        if isinstance(value := getattr(config, name, None), int) and value > 0
    ]
    limit = min(limits, default=_UNBOUNDED)
    every = getattr(config, "rope_parameters", None) or {}
    for rope in (every, *(value for value in every.values() if isinstance(value, dict))):
        if rope.get("rope_type") in ("dynamic", "longrope"):
            original = rope.get("original_max_position_embeddings") or limit
            limit = min(limit, int(original))
    return limit


def refuse_unsupported(model: Any) -> None:
    """Raise `UnsupportedModelError` unless this is a decoder-only language model of transformers."""
    config = getattr(model, "config", None)
    name = type(model).__name__
    if config is None or not hasattr(config, "get_text_config"):
        raise UnsupportedModelError(f"{name} is no model of transformers and no Target")
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(f"{name} is an encoder-decoder model: use a decoder-only model")
    if not callable(getattr(model, "generate", None)) or model.get_output_embeddings() is None:
        raise UnsupportedModelError(f"{name} writes no text: load it with AutoModelForCausalLM")
    if config.model_type == "moshi":
        raise UnsupportedModelError(f"{name} forgets what its own mask still shows: use model.generate")
    if getattr(text_config(model), "use_bidirectional_attention", None) is True:
        raise UnsupportedModelError(f"{name} sees later tokens (use_bidirectional_attention): it cannot draft")


def refuse_autocast(model: Any) -> None:
    """Raise `UsageError` within ``torch.autocast``: its products round otherwise for each width of a pass."""
    device = getattr(model, "device", None)  # what is no model has none, and is refused by name later
    if device and torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        raise UsageError(
            "torch.autocast is on, under which drafts cannot be checked exactly: call draftwood outside of it, or "
            "within torch.autocast(..., enabled=False), and load the model in the number format that it shall have"
        )


def one_pass(method: Method) -> Method:
    """Make a method of an object with a ``device`` run without gradients, and without the ``torch.autocast`` of
    whoever consumes a stream that began outside of it."""

    @wraps(method)
    def run(self: Any, *args: Any, **named: Any) -> Any:
        with torch.inference_mode(), torch.autocast(self.device.type, enabled=False):
            return method(self, *args, **named)

    return run  # type: ignore[return-value]
