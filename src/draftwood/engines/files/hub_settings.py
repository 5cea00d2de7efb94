"""What the config.json of a model of transformers says, under the keys of GGUF's metadata (see `metadata`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.files.families import GATINGS, HUB_FAMILIES, Family
from draftwood.engines.files.metadata import MOST_LAYERS, MOST_WIDTH
from draftwood.engines.files.shapes import Multipliers
from draftwood.errors import ModelError, UnsupportedModelError

Factors = dict[str, NDArray[np.float32]]


class HubSettings(NamedTuple):
    """What a config.json says: ``factors`` are of rotary positions, by name; ``tied``: embeddings score, too."""

    family: Family
    metadata: dict[str, Any]
    factors: Factors
    tied: bool


_SIZES = {
    "hidden_size": "embedding_length", "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count", "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon", "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length", "num_dense_layers": "leading_dense_block_count",
    "moe_layer_start_index": "leading_dense_block_count", "moe_k": "expert_used_count",
    "top_k_experts": "expert_used_count",
    "moe_num_shared_experts": "expert_shared_count", "moe_layer_interval": "interleave_moe_layer_step",
    "n_shared_experts": "expert_shared_count", "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count", "first_k_dense_replace": "leading_dense_block_count",
    "kv_lora_rank": "attention.kv_lora_rank", "q_lora_rank": "attention.q_lora_rank",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "shared_intermediate_size": "expert_shared_feed_forward_length",
    "hidden_size_per_layer_input": "embedding_length_per_layer_input",
    "num_kv_shared_layers": "attention.shared_kv_layers",
    "routed_scaling_factor": "expert_weights_scale", "conv_L_cache": "shortconv.l_cache",
    "linear_conv_kernel_dim": "ssm.conv_kernel", "linear_key_head_dim": "ssm.state_size",
    "mamba_d_conv": "ssm.conv_kernel", "mamba_d_state": "ssm.state_size", "mamba_n_groups": "ssm.group_count",
    "mamba_n_heads": "ssm.time_step_rank", "mamba_inner": "ssm.inner_size",
    "ssm_state_size": "ssm.state_size", "n_groups": "ssm.group_count", "conv_kernel": "ssm.conv_kernel",
    "mamba_num_heads": "ssm.time_step_rank", "moe_latent_size": "moe_latent_size",
    "linear_num_key_heads": "ssm.group_count", "linear_num_value_heads": "ssm.time_step_rank",
    "embedding_multiplier": "embedding_scale", "residual_multiplier": "residual_scale",
    "attention_multiplier": "attention.scale", "logits_scaling": "logit_scale",
    "multipliers": "multipliers", "mamba_rms_norm": "ssm.normed",
    "attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping",
}  # fmt: skip
"""Settings that GGUF has under another name; those without a value are left out."""
_ONLY: dict[str, tuple[Any, ...]] = {
    "quantization_config": (None,),
    "use_bidirectional_attention": (None, False, "vision"),  # only among tokens of a picture
    "decoder_sparse_step": (1,), "rope_interleave": (True,), "mlp_only_layers": (None, []),
    "no_rope_layer_interval": (4,), "clip_qkv": (None,), "conv_bias": (None, False), "swiglu_alpha": (1.702,),
    "swiglu_limit": (7.0,), "moe_norm_min": (1e-12,),
    "mamba_conv_bias": (None, True), "mamba_proj_bias": (None, False),
    "use_conv_bias": (None, True), "mamba_hidden_act": (None, "silu"),
    "time_step_limit": (None, [0.0, math.inf], (0.0, math.inf), [0.0, {"__float__": "Infinity"}]),
    "attn_output_gate": (None, True), "output_gate_type": (None, "swish", "silu"),
}  # fmt: skip
"""Settings that change what a pass computes, and the values of them that this engine knows."""
_ACTS = {"silu": "silu", "gelu": "gelu_pytorch_tanh", "clamped": "silu", "squared": "relu2"}


def text_settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a config.json says of the model of texts, where it is one part of several."""
    text = config.get("text_config")
    if not isinstance(text, Mapping):
        return config
    whole = {name: config[name] for name in ("tie_word_embeddings", "quantization_config") if name in config}
    return {**text, **whole}


def settings_of(given: Mapping[str, Any]) -> HubSettings:
    """Return what a config.json says, as metadata.

    Raises `UnsupportedModelError` for what this engine does not run, `ModelError` for settings that make no sense.
    """
    given = text_settings(given)
    family = HUB_FAMILIES.get(str(given.get("model_type")))
    if family is None:
        raise _unknown(f"models of type {given.get('model_type')!s:.40}")
    try:
        return _settings(given, family)
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise ModelError(f"the config.json has settings of a wrong type ({error}): get it again") from error


def _settings(given: Mapping[str, Any], family: Family) -> HubSettings:
    defaults = family.hub[given["model_type"]]
    config = {"rms_norm_eps": 1e-6, "rope_theta": 1e4, "tie_word_embeddings": False, **defaults, **given}
    own = {name: config[name] for name in defaults}  # transformers reads these where the type has them alone
    if family.single:
        config |= _of_nemotron(config)
    layers = int(_number(config, "num_hidden_layers", most=MOST_LAYERS))
    if "short_convolution" in family.mixers:
        config |= _of_lfm2(config, own, layers)
    if "position_embedding_type" in own:
        config |= _of_granite(config, layers)
    if "latent_attention" in family.mixers:
        config |= _of_deepseek(config, layers)
    if "attention_and_mamba" in family.mixers:
        config |= _of_falcon(config)
    quantised = config.get("quantization_config")
    if family.turned and quantised and quantised.get("quant_method") == "mxfp4":
        config["quantization_config"] = None  # the tensors say it, too
    recurrent = _delta_nets(config, layers) if "delta_net" in family.mixers else {}
    config |= dict.fromkeys(("layer_types", "sliding_window")) if recurrent else {}
    differing = _of_gemma4(config, layers) if family.architecture == "gemma4" else {}
    config |= differing
    for name, values in _ONLY.items():
        if name in config and config[name] not in values:
            raise _unknown(f"models with {name} {config[name]!r:.40}")
    usual = _ACTS[family.gate]
    act = config.get("hidden_activation") or config.get("hidden_act") or usual
    if act != usual:
        raise _unknown(f"{config['model_type']} with the activation {act!r:.40}")
    found: dict[str, Any] = {
        "attn_logit_softcapping": 0.0,
        "final_logit_softcapping": 0.0,
    }  # as where they are null
    found |= {theirs: config[ours] for ours, theirs in _SIZES.items() if config.get(ours) is not None}
    found |= _mixture(config, own, family, layers)
    if "query_pre_attn_scalar" in config:
        found["attention.scale"] = _number(config, "query_pre_attn_scalar") ** -0.5
    width = int(_number(config, "hidden_size", most=MOST_WIDTH))
    still = config.get("no_rope_layers")
    if still is not None and list(still) != [int((i + 1) % 4 != 0) for i in range(layers)]:
        raise _unknown("models in which other layers than every fourth have no rotary positions")
    usual_head = width // int(_number(config, "num_attention_heads"))
    head = int(_number(config, "head_dim", usual_head, MOST_WIDTH))
    if head != (config.get("head_dim") or head):
        raise ModelError(f"the config.json says head_dim is {config['head_dim']}: get it again")
    for kind, size in (("", head), ("_swa", differing.get("local_head_dim"))):
        if size is not None:
            found |= {f"attention.{name}_length{kind}": size for name in ("key", "value")}
    if "latent_attention" in family.mixers:
        found["attention.key_length_mla"] = head + config["qk_nope_head_dim"]
        found["attention.value_length_mla"] = config["v_head_dim"]
    found |= _windows(config, own, family, layers) | recurrent
    if own.get("position_embedding_type", "rope") != "rope":
        found["rope.scaling.finetuned"] = False  # as files of granite say that no layer has rotary positions
    if config.get("layer_rope_theta") is not None:
        found["attention.rope_pattern"] = [base != 0 for base in config["layer_rope_theta"]]
        config |= _base_of_layers(config)
    rope, factors = _rope(config, family, head)
    metadata = {f"{family.architecture}.{name}": value for name, value in (found | rope).items()}
    metadata["general.architecture"] = family.architecture
    return HubSettings(family, metadata, factors, bool(config["tie_word_embeddings"]))


def _of_lfm2(config: Mapping[str, Any], own: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """Return settings under the names that other types have for them; layers without attention have no keys."""
    named, some = config.get("layer_types"), config.get("full_attn_idxs")
    if named is None:
        named = ["full_attention" if some is None or i in some else "conv" for i in range(layers)]
    _check_types(named, "full_attention", "conv")
    inner = own.get("block_ff_dim") or config["intermediate_size"]
    if own.get("block_auto_adjust_ff_dim"):
        step = own["block_multiple_of"]
        inner = -(-int(own["block_ffn_dim_multiplier"] * int(2 * inner / 3)) // step) * step
    heads = own["num_key_value_heads"]
    return {
        "rms_norm_eps": config["norm_eps"], "intermediate_size": inner,
        "layer_types": None, "sliding_window": None,
        "num_key_value_heads": [heads if one == "full_attention" else 0 for one in named],
        "tie_word_embeddings": config.get("tie_embedding", config["tie_word_embeddings"]),
    }  # fmt: skip


_LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
_OF_EXPERTS = (
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "moe_latent_size",
    "n_shared_experts",
)


def _of_nemotron(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under the names that other types have for them; a layer has 0 of what it does not have."""
    named = config["layers_block_type"] or [
        _LETTERS.get(one, one) for one in config["hybrid_override_pattern"] or ""
    ]
    named = [{"mamba": "linear_attention", "attention": "full_attention"}.get(one, one) for one in named]
    _check_types(named, *_LETTERS.values())
    if {"mlp", "moe"} <= set(named):
        raise _unknown("models of mixtures in which some units have no experts")
    has_experts = "moe" in named
    heads = config["num_key_value_heads"] or config["num_attention_heads"]
    inner = config["moe_intermediate_size" if has_experts else "intermediate_size"]
    return {
        "num_hidden_layers": len(named), "layer_types": None, "sliding_window": None,
        "rms_norm_eps": config["layer_norm_epsilon"], "hidden_act": config["mlp_hidden_act"],
        "num_key_value_heads": [heads * (one == "full_attention") for one in named],
        "intermediate_size": [inner * (one in ("mlp", "moe")) for one in named],
        "mamba_inner": config["mamba_num_heads"] * config["mamba_head_dim"],
        **({} if has_experts else dict.fromkeys(_OF_EXPERTS)),
    }  # fmt: skip


def _of_deepseek(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """Return settings under the names that other types have for them; only a part of each head rotates."""
    found = {"head_dim": config["qk_rope_head_dim"], "gating": "sigmoid"}
    if "mlp_layer_types" in config:
        named = config["mlp_layer_types"] or ["dense", *["sparse"] * (layers - 1)]
        dense = named.count("dense")
        if named != ["dense"] * dense + ["sparse"] * (layers - dense):
            raise _unknown(f"models with mlp_layer_types {named!r:.60}")
        found["first_k_dense_replace"] = dense
    if config["model_type"] == "deepseek_v2":
        found["gating"] = "softmax"
        if config["topk_method"] == "greedy":
            found |= {"n_group": None, "topk_group": None}
    return found


def _mixture(config: Mapping[str, Any], own: Mapping[str, Any], family: Family, layers: int) -> dict[str, Any]:
    names = ("num_local_experts", "num_experts", "moe_num_experts", "n_routed_experts")
    counts = [config[name] for name in names if config.get(name) is not None]
    if not counts:
        return {}
    if own.get("moe_layer_end_index", -1) not in (-1, layers - 1):
        raise _unknown("mixtures whose last layers have no experts")
    found = {"expert_count": counts[0], "expert_gating_func": GATINGS[config.get("gating", family.gating)]}
    if "norm_topk_prob" in own:
        found["expert_weights_norm"] = own["norm_topk_prob"]
    return found


def _delta_nets(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """Return metadata of delta nets: which layers have one, and the sizes that files have and settings imply."""
    named, every = config.get("layer_types"), config["full_attention_interval"]
    if named is None:
        named = [("linear_attention", "full_attention")[(i + 1) % every == 0] for i in range(layers)]
    _check_types(named, "full_attention", "linear_attention")
    return {
        "attention.recurrent_layers": [one == "linear_attention" for one in named],
        "ssm.inner_size": config["linear_num_value_heads"] * config["linear_value_head_dim"],
    }


def _of_granite(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """Return settings under the names that other types have for them; recurrent layers have no keys."""
    named = config["layer_types"] or ["linear_attention"] * layers
    _check_types(named, "full_attention", "attention", "linear_attention", "mamba")
    heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    found = {
        "layer_types": None, "sliding_window": None,
        "num_key_value_heads": [0 if one in ("linear_attention", "mamba") else heads for one in named],
        "mamba_inner": config["mamba_expand"] * config["hidden_size"],
    }  # fmt: skip
    if config["num_local_experts"]:
        return found
    return found | {
        "intermediate_size": config["shared_intermediate_size"], "shared_intermediate_size": None,
        "num_local_experts": None, "num_experts_per_tok": None,
    }  # fmt: skip


def _of_falcon(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under the names that other types have for them, and what a pass multiplies.

    What attention reads is multiplied, and so are queries, keys and values. Scores get it twice.
    """
    for name in ("attention_bias", "mlp_bias", "projectors_bias"):
        if config[name]:
            raise _unknown(f"models with {name} {config[name]!r:.40}")
    if config["mamba_rms_norm"] and config["mamba_norm_before_gate"]:
        raise _unknown("states whose norm comes before their gates")
    before, after, keys, into, out, scores = (
        _number(config, f"{name}_multiplier", 1.0)
        for name in ("attention_in", "attention_out", "key", "ssm_in", "ssm_out", "lm_head")
    )
    z, *mixed, step = (into * one for one in _numbers(config, "ssm_multipliers", 5))
    gate, unit = _numbers(config, "mlp_multipliers", 2)
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    inner = config["mamba_d_ssm"]
    return {
        "layer_types": None, "logits_scaling": 1 / scores, "attention_multiplier": before**2 * keys * size**-0.5,
        "mamba_inner": config["mamba_expand"] * config["hidden_size"] if inner is None else inner,
        "multipliers": Multipliers(before * after, out, gate, unit, z, (mixed[0], mixed[1], mixed[2]), step),
    }  # fmt: skip


def _numbers(config: Mapping[str, Any], name: str, count: int) -> list[float]:
    """Return a list of so many numbers, all 1 where there is none; raises as `_number`."""
    found = [1.0] * count if config[name] is None else list(config[name])
    if len(found) != count:
        raise ModelError(f"the config.json says {name} is {found!r:.40}: get it again")
    return [_number({name: one}, name) for one in found]


_ROPE4 = {
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}  # fmt: skip


def _of_gemma4(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """Return settings under the names that other types have for them; layers with a window have other sizes."""
    local, full = "sliding_attention", "full_attention"
    named = config.get("layer_types") or [full if (i + 1) % 6 == 0 else local for i in range(layers)]
    named = [*named[: layers - 1], full]  # whatever is said of the last one
    _check_types(named, full, local)
    sizes = [_heads_of_layer(config, layer, is_full=name == full) for layer, name in enumerate(named)]
    found = {
        kind: {size for (size, _), name in zip(sizes, named, strict=True) if name == kind}
        for kind in (local, full)
    }
    if max(map(len, found.values())) > 1:
        raise _unknown("layers of one type whose heads differ in size")
    wide = config["num_kv_shared_layers"] if config["use_double_wide_mlp"] else 0
    return {
        "layer_types": named, "num_key_value_heads": [keys for _, keys in sizes],
        "head_dim": sizes[-1][0], "local_head_dim": next(iter(found[local]), None),
        "intermediate_size": [config["intermediate_size"] * (1 + (i >= layers - wide)) for i in range(layers)],
        "rope_parameters": config.get("rope_parameters") or _ROPE4,
        **({} if config["enable_moe_block"] else {"num_experts": None}),
    }  # fmt: skip


def _heads_of_layer(config: Mapping[str, Any], layer: int, *, is_full: bool) -> tuple[Any, Any]:
    """Return the size of a layer's heads and how many of keys there are, in both ways that gemma4 says them."""
    usual = {"head_dim": config["head_dim"], "num_key_value_heads": config["num_key_value_heads"]}
    each, mine = config.get("per_layer_config"), dict[str, Any]()
    if each is not None:
        mine = each.get(str(layer), each.get(layer, {}))
    elif is_full:
        fewer = config["num_global_key_value_heads"] if config["attention_k_eq_v"] else None
        mine = {"head_dim": config["global_head_dim"]} | ({} if fewer is None else {"num_key_value_heads": fewer})
    if mine.keys() - usual:
        raise _unknown(f"layers that differ in {sorted(mine.keys() - usual)}")
    usual |= mine
    return usual["head_dim"], usual["num_key_value_heads"]


def _check_types(named: Any, *known: str) -> None:
    if set(named) - {*known}:
        raise _unknown(f"layers of the types {sorted(set(map(str, named)))}")


def _unknown(what: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"the CPU engine does not run {what}: take the engine transformers")


def _number(settings: Mapping[str, Any], name: str, default: float | None = None, most: float = 1e18) -> float:
    found = settings.get(name, default)
    found = default if found is None else found
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found <= most:
        raise ModelError(f"the config.json says {name} is {found!r:.40}: get it again")
    return float(found)


def _windows(config: Mapping[str, Any], own: Mapping[str, Any], family: Family, layers: int) -> dict[str, Any]:
    """Return the window, and which layers have it."""
    window, named = config.get("sliding_window"), config.get("layer_types")
    if window is None or not own.get("use_sliding_window", True):
        return {"attention.sliding_window": 0, "attention.sliding_window_pattern": 1}
    if named is None and family.architecture in ("smollm3", "qwen2moe", "granite_swa", "exaone4"):
        raise _unknown(f"{family.architecture} with a window and without layer_types")
    if named is not None:
        _check_types(named, "full_attention", "sliding_attention")
        here: Any = [name == "sliding_attention" for name in named]
    elif "max_window_layers" in own:
        here = [i >= own["max_window_layers"] for i in range(layers)]
    else:
        every = family.every if family.every > 1 else 0  # with 1, files without a pattern have no windows at all
        here = own.get("sliding_window_pattern", every)
    return {"attention.sliding_window": window, "attention.sliding_window_pattern": here}


def _base_of_layers(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which the base of all layers with rotary positions is that of the model."""
    bases = {base for base in config["layer_rope_theta"] if base}
    if len(bases) > 1:
        raise _unknown("models whose layers have rotary positions of several bases")
    if not bases:
        return {}
    base = {"rope_theta": bases.pop()}
    return base | {"rope_parameters": {**(config.get("rope_parameters") or {}), **base}}


_LONG = ("longrope", "su")  # names of one way to scale positions


def _rope(config: Mapping[str, Any], family: Family, head: int) -> tuple[dict[str, Any], Factors]:
    """Return metadata and factors of rotary positions, from any form in which transformers has written them."""
    usual = family.hub[config["model_type"]].get("rope_parameters", {})
    said = config.get("rope_scaling") or config.get("rope_parameters") or usual
    local: Mapping[str, Any] = {"rope_theta": config.get("rope_local_base_freq")}
    if "full_attention" in said or "sliding_attention" in said:
        local = {**local, **(said.get("sliding_attention") or {})}
        said = said.get("full_attention") or {}
    if local.get("rope_type", "default") != "default":
        raise _unknown(f"positions of layers with a window that are scaled by {local['rope_type']!r:.40}")
    settings = {name: config.get(name) for name in ("rope_theta", "partial_rotary_factor")}
    settings |= {name: value for name, value in said.items() if value is not None}
    type_ = settings.get("rope_type", settings.get("type", "default"))
    share = _number(settings, "partial_rotary_factor", 1.0)
    rotary = head if type_ == "proportional" else int(head * share)
    if rotary != head and not family.partial:
        # In other types transformers turns whole heads where positions are not scaled, and fails where they are.
        if type_ != "default":
            raise _unknown(f"{family.architecture} with scaled positions of a part of each head")
        rotary = head
    found: dict[str, Any] = {"rope.freq_base": _number(settings, "rope_theta"), "rope.dimension_count": rotary}
    if local.get("rope_theta") is not None:
        found["rope.freq_base_swa"] = _number(local, "rope_theta")
    if type_ == "dynamic" and settings.get("alpha") and family.architecture == "hunyuan-dense":
        found["rope.freq_base"] *= _number(settings, "alpha") ** (head / (head - 2))
        return found, {}
    if type_ == "default":
        return found, {}
    if type_ == "proportional":  # the first pairs turn, at the speeds that they have among all
        places = np.arange(head // 2) < int(share * head // 2)
        return found, {"rope_freqs": np.where(places, _number(settings, "factor", 1.0), 1e30).astype(np.float32)}
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
        if family.yarn_multiplier:
            found["attention.temperature_scale"] = _number(settings, "llama_4_scaling_beta")
        found |= _yarn(settings, factor)
        if "latent_attention" in family.mixers and settings.get("mscale_all_dim"):
            # There the file's number is a tenth, and cosines do not grow by themselves.
            found["rope.scaling.yarn_log_multiplier"] = 0.1 * _number(settings, "mscale_all_dim")
            found["rope.scaling.attn_factor"] *= 1 + 0.1 * math.log(factor) if factor > 1 else 1.0
        return found, {}
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
        "rope.scaling.yarn_truncate": settings.get("truncate", True),
    }  # fmt: skip
