"""What the config.json of a model of transformers says, under the keys of GGUF's metadata (see `families`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.files.families import MOST_LAYERS, MOST_WIDTH
from draftwood.errors import ModelError, UnsupportedModelError

Factors = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class HubType:
    """What the models of one ``model_type`` have in common."""

    architecture: str  # GGUF's name of it
    # Settings that a config.json may leave out.
    defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    every: int = 0  # n: each n-th layer has no window, unless the config says which layers have it; 0: all have it
    act: str = "silu"
    adds_one: bool = False  # whether weights of norms are what is added to 1
    has_more_norms: bool = False  # ``post_attention_layernorm`` is of attention's result, not of the MLP's input


_GELU = "gelu_pytorch_tanh"
_GEMMA = {"head_dim": 256, "tie_word_embeddings": True}
_GEMMA2 = _GEMMA | {"num_key_value_heads": 4, "sliding_window": 4096, "query_pre_attn_scalar": 256}
_QWEN_MOE = {
    "use_sliding_window": False, "sliding_window": 4096, "num_key_value_heads": 4, "norm_topk_prob": False,
    "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
}  # fmt: skip
_QWEN = {
    "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28, "num_key_value_heads": 32
}  # fmt: skip
TYPES = {
    "llama": HubType("llama"),
    "mistral": HubType("llama", {"num_key_value_heads": 8, "sliding_window": 4096}),
    "mixtral": HubType(
        "llama",
        {"num_key_value_heads": 8, "rope_theta": 1e6, "rms_norm_eps": 1e-5, "num_experts_per_tok": 2,
         "num_local_experts": 8},
    ),
    "qwen2": HubType("qwen2", _QWEN),
    "qwen3": HubType("qwen3", _QWEN | {"head_dim": 128}),
    "qwen3_moe": HubType("qwen3moe", _QWEN_MOE),
    "gemma": HubType("gemma", _GEMMA | {"num_key_value_heads": 16}, act=_GELU, adds_one=True),
    "gemma2": HubType(
        "gemma2", _GEMMA2 | {"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0}, every=2, act=_GELU,
        adds_one=True, has_more_norms=True,
    ),
    "gemma3_text": HubType(
        "gemma3",
        _GEMMA2 | {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6}, act=_GELU,
        adds_one=True, has_more_norms=True,
    ),
    "phi3": HubType("phi3", {"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096}),
    "smollm3": HubType(
        "smollm3",
        {"rope_theta": 2e6, "tie_word_embeddings": True, "use_sliding_window": False, "num_key_value_heads": 4},
    ),
    "granite": HubType("granite", {"attention_multiplier": 1.0, "logits_scaling": 1.0}),
    "olmo2": HubType("olmo2", {"rms_norm_eps": 1e-5}, has_more_norms=True),
    "olmo3": HubType(
        "olmo2",
        {"rms_norm_eps": 1e-5, "rope_theta": 5e5, "rope_local_base_freq": 5e5, "sliding_window": 4096}, every=4,
        has_more_norms=True,
    ),
}  # fmt: skip
"""By the ``model_type`` of a config.json."""

_SIZES = {
    "hidden_size": "embedding_length", "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count", "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon", "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length", "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale", "attention_multiplier": "attention.scale",
    "logits_scaling": "logit_scale", "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}  # fmt: skip
"""Settings that GGUF has under another name; those without a value are left out."""
_ONLY: dict[str, tuple[Any, ...]] = {
    "quantization_config": (None,), "use_bidirectional_attention": (None, False), "norm_topk_prob": (True,),
    "decoder_sparse_step": (1,), "mlp_only_layers": (None, []), "no_rope_layer_interval": (4,),
    "clip_qkv": (None,),
}  # fmt: skip
"""Settings that change what a pass computes, and the values of them that this engine knows."""


def hub_type(config: Mapping[str, Any]) -> HubType:
    """Return what is known of a model's type; raises `UnsupportedModelError` for others."""
    found = TYPES.get(str(config.get("model_type")))
    if found is None:
        raise _unknown(f"models of type {config.get('model_type')!s:.40}")
    return found


def settings_of(given: Mapping[str, Any]) -> tuple[dict[str, Any], Factors]:
    """Return the metadata that say the same as a config.json, and the factors of its rotary positions by name.

    Raises `UnsupportedModelError` for what this engine does not run, `ModelError` for settings that make no sense.
    """
    kind = hub_type(given)
    try:
        return _settings(given, kind)
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise ModelError(f"the config.json has settings of a wrong type ({error}): get it again") from error


def _settings(given: Mapping[str, Any], kind: HubType) -> tuple[dict[str, Any], Factors]:
    config = {"rms_norm_eps": 1e-6, "rope_theta": 1e4, **kind.defaults, **given}
    for name, values in _ONLY.items():
        if name in config and config[name] not in values:
            raise _unknown(f"models with {name} {config[name]!r:.40}")
    act = config.get("hidden_activation") or config.get("hidden_act") or kind.act
    if act != kind.act:
        raise _unknown(f"{config['model_type']} with the activation {act!r:.40}")
    found = {"attn_logit_softcapping": 0.0, "final_logit_softcapping": 0.0}  # as where they are null
    found |= {theirs: config[ours] for ours, theirs in _SIZES.items() if config.get(ours) is not None}
    experts = config.get("num_local_experts", config.get("num_experts"))
    if experts is not None:
        found["expert_count"] = experts
    if "query_pre_attn_scalar" in config:
        found["attention.scale"] = _number(config, "query_pre_attn_scalar") ** -0.5
    layers = int(_number(config, "num_hidden_layers", most=MOST_LAYERS))
    width = int(_number(config, "hidden_size", most=MOST_WIDTH))
    still = config.get("no_rope_layers")
    if still is not None and list(still) != [int((i + 1) % 4 != 0) for i in range(layers)]:
        raise _unknown("models in which other layers than every fourth have no rotary positions")
    head = config.get("head_dim") or width // int(_number(config, "num_attention_heads"))
    head = int(_number({"head_dim": head}, "head_dim", most=MOST_WIDTH))
    found |= {f"attention.{name}_length": head for name in ("key", "value")} | _windows(config, kind, layers)
    rope, factors = _rope(config, kind, head)
    found = {f"{kind.architecture}.{name}": value for name, value in (found | rope).items()}
    return found | {"general.architecture": kind.architecture}, factors


def _unknown(what: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"the CPU engine does not run {what}: take the engine transformers")


def _number(settings: Mapping[str, Any], name: str, default: float | None = None, most: float = 1e18) -> float:
    found = settings.get(name, default)
    found = default if found is None else found
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found <= most:
        raise ModelError(f"the config.json says {name} is {found!r:.40}: get it again")
    return float(found)


def _windows(config: Mapping[str, Any], kind: HubType, layers: int) -> dict[str, Any]:
    """Return the window, and which layers have it."""
    window, named = config.get("sliding_window"), config.get("layer_types")
    own = {name: config[name] for name in kind.defaults}  # transformers reads these where the type has them alone
    if window is None or not own.get("use_sliding_window", True):
        return {"attention.sliding_window": 0}
    if named is None and kind.architecture == "smollm3":
        raise _unknown("smollm3 with a window and without layer_types")
    every, first = int(own.get("sliding_window_pattern", kind.every)), int(own.get("max_window_layers", 0))
    here = [i >= first and not (every and (i + 1) % every == 0) for i in range(layers)]
    if named is not None:
        if set(named) - {"sliding_attention", "full_attention"}:
            raise _unknown(f"layers of the types {sorted(set(map(str, named)))}")
        here = [name == "sliding_attention" for name in named]
    return {"attention.sliding_window": window, "attention.sliding_window_pattern": here}


_LONG = ("longrope", "su")  # names of one way to scale positions


def _rope(config: Mapping[str, Any], kind: HubType, head: int) -> tuple[dict[str, Any], Factors]:
    """Return metadata and factors of rotary positions, from any form in which transformers has written them."""
    said = config.get("rope_scaling") or config.get("rope_parameters") or {}
    local: Mapping[str, Any] = {"rope_theta": config.get("rope_local_base_freq")}
    if "full_attention" in said or "sliding_attention" in said:
        local = {**local, **(said.get("sliding_attention") or {})}
        said = said.get("full_attention") or {}
    if local.get("rope_type", "default") != "default":
        raise _unknown(f"positions of layers with a window that are scaled by {local['rope_type']!r:.40}")
    settings = {"rope_theta": config["rope_theta"]} | {k: v for k, v in said.items() if v is not None}
    type_ = settings.get("rope_type", settings.get("type", "default"))
    part = settings.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    rotary = int(head * _number({"partial_rotary_factor": part}, "partial_rotary_factor", 1.0))
    if rotary != head and kind.architecture != "phi3":
        # In other types transformers turns whole heads where positions are not scaled, and fails where they are.
        if type_ != "default":
            raise _unknown(f"{kind.architecture} with scaled positions of a part of each head")
        rotary = head
    found: dict[str, Any] = {"rope.freq_base": _number(settings, "rope_theta"), "rope.dimension_count": rotary}
    if local.get("rope_theta") is not None:
        found["rope.freq_base_swa"] = _number(local, "rope_theta")
    if type_ == "default":
        return found, {}
    if type_ == "linear":
        return found | {"rope.scaling.type": "linear", "rope.scaling.factor": _number(settings, "factor")}, {}
    longest = _number(config, "max_position_embeddings")
    original = config.get("original_max_position_embeddings") or settings.get("original_max_position_embeddings")
    original = _number({"original": original}, "original", longest)
    factor = _number(settings, "factor", longest / original if type_ in _LONG else None)
    if type_ == "llama3":
        return found, {"rope_freqs": _llama3(settings, rotary, factor, original)}
    found["rope.scaling.original_context_length"] = int(original)
    if type_ == "yarn":
        return found | _yarn(settings, factor), {}
    if type_ not in _LONG:
        raise _unknown(f"positions that are scaled by {type_!r:.40}")
    size = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    found |= {
        "rope.scaling.type": "longrope",
        "rope.scaling.attn_factor": _number(settings, "attention_factor", size),
    }
    lists = {f"rope_factors_{name}": settings.get(f"{name}_factor") for name in ("long", "short")}
    return found, {name: np.asarray(values, np.float32) for name, values in lists.items()}


def _llama3(settings: Mapping[str, Any], rotary: int, factor: float, original: float) -> NDArray[np.float32]:
    """Return what each frequency is divided by: 1 of fast ones, ``factor`` of slow ones, in between of others."""
    waves = 2 * np.pi * _number(settings, "rope_theta") ** (np.arange(0, rotary, 2) / rotary)
    low, high = _number(settings, "low_freq_factor"), _number(settings, "high_freq_factor")
    smooth = np.clip((original / waves - low) / (high - low), 0, 1)
    return (1 / (smooth + (1 - smooth) / factor)).astype(np.float32)


def _yarn(settings: Mapping[str, Any], factor: float) -> dict[str, Any]:
    if settings.get("truncate", True) is not True:
        raise _unknown("positions that are scaled by yarn without whole bounds")

    def growth(share: float) -> float:
        return 1 + 0.1 * share * math.log(factor) if factor > 1 else 1.0

    size = growth(1.0)
    if settings.get("mscale") and settings.get("mscale_all_dim"):
        size = growth(_number(settings, "mscale")) / growth(_number(settings, "mscale_all_dim"))
    return {
        "rope.scaling.type": "yarn", "rope.scaling.factor": factor,
        "rope.scaling.attn_factor": _number(settings, "attention_factor", size) / growth(1.0),
        "rope.scaling.yarn_beta_fast": _number(settings, "beta_fast", 32.0),
        "rope.scaling.yarn_beta_slow": _number(settings, "beta_slow", 1.0),
    }  # fmt: skip
