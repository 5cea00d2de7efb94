"""Which models the passes of this engine answer for, and the refusals by name."""

from __future__ import annotations

from typing import Any

from draftwood.errors import UnsupportedModelError

SUPPORTED = ("llama", "qwen2", "qwen3", "mistral", "gemma3_text")
"""Model types whose trees are tested against their chains and against ``model.generate``."""


def layer_windows(config: Any) -> list[int | None]:
    """Sliding window of each layer, None for full attention."""
    layers = config.num_hidden_layers
    kinds = getattr(config, "layer_types", None)
    width = getattr(config, "sliding_window", None)
    if kinds is None:
        return [width] * layers
    return [width if kind == "sliding_attention" else None for kind in kinds[:layers]]


def refuse_unsupported(model: Any) -> None:
    """Raise `UnsupportedModelError` for models and settings that we cannot answer for.

    Parameters
    ----------
    model
        A model of transformers.
    """
    config = getattr(model, "config", None)
    kind = getattr(config, "model_type", type(model).__name__)
    if config is None or kind not in SUPPORTED:
        raise UnsupportedModelError(
            f"models of type {kind!r} are not supported yet; supported are {', '.join(SUPPORTED)}"
        )
    if not hasattr(model, "lm_head"):
        raise UnsupportedModelError(f"{type(model).__name__} writes no text: load it with AutoModelForCausalLM")
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if kinds:
        raise UnsupportedModelError(f"layers of type {sorted(kinds)} are not supported yet")
    rope = getattr(config, "rope_parameters", None) or {}
    ropes = [rope, *(v for v in rope.values() if isinstance(v, dict))]
    for name in ("dynamic", "longrope"):
        if any(r.get("rope_type") == name for r in ropes):
            raise UnsupportedModelError(
                f"rope type {name!r} re-scales the text as it grows, which trees cannot follow yet"
            )
    for setting in ("use_bidirectional_attention", "attn_logit_softcapping"):
        if getattr(config, setting, None):
            raise UnsupportedModelError(f"{kind} with {setting} set is not supported yet")
    if getattr(model, "hf_device_map", None) and len(set(model.hf_device_map.values())) > 1:
        raise UnsupportedModelError("a model spread over several devices is not supported yet: load it on one")
