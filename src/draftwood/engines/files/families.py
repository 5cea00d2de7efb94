"""The families of models that the CPU engine runs: one row each, for GGUF files and for folders of the hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """What the models of one architecture have in common."""

    architecture: str  # as GGUF names it
    # By the ``model_type`` of a config.json: the settings that it may leave out, as transformers fills them in.
    hub: Mapping[str, Settings] = field(default_factory=dict, repr=False)
    mixers: tuple[str, ...] = ("attention",)  # blocks that may be the first one of a layer
    units: tuple[str, ...] = ("gated_unit",)  # blocks that may be the second one
    ends: tuple[str, ...] = ()  # blocks behind these, of all layers
    single: bool = False  # whether a layer is one block alone, a mixer or a unit
    # Which numbers of a head rotate as a pair, in the file's order: neighbours, or i and i + half.
    pairs: Literal["neighbours", "halves"] = "halves"
    turns_alike: bool = False  # whether they do in folders, too; else they lie ``rotary / 2`` apart there
    # Of gated units; clamped is gpt-oss's. Units with squared ReLU have no gate.
    gate: Literal["silu", "gelu", "clamped", "squared"] = "silu"
    # Of queries and keys: of each head, of each head after it has turned, of the whole row, or none.
    head_norm: Literal["", "head", "turned", "row"] = ""
    # Whether values have a norm without weights. Layers without a window may then have the keys' product in place
    # of their own.
    value_norm: bool = False
    norms: Literal["before", "after", "both"] = "before"  # where norms of a block stand
    unit_norm: str = "ffn_norm"  # the tensor of the norm before a layer's second block
    last_norm: str = "output_norm"  # the tensor of the norm after the last layer
    adds_one: bool = False  # whether transformers' weights of norms are what is added to 1
    root_embedding: bool = False  # whether embeddings are multiplied by the root of the width
    every: int = 1  # n: each n-th layer sees the whole text, the others a window; 0: all have a window
    # Values of numbers that a file leaves out, where llama.cpp has its own for this family. None or 0: refused.
    missing: Mapping[str, float | None] = field(default_factory=dict)
    local: bool = False  # whether layers with a window have rotary frequencies of their own, never scaled
    partial: bool = False  # whether folders may say that only the first numbers of a head rotate
    gated: bool = False  # whether each head's queries in attn_q are followed by gates of what attention finds
    tiled: bool = False  # whether files have heads of values that share a head of keys far apart: k0 k1 k0 k1
    still: int = 0  # n: each n-th layer has no rotary positions; 0: all have them
    # Whether, in models with windows, layers that see the whole text have no rotary positions.
    still_without_window: bool = False
    yarn_multiplier: bool = False  # whether rope.scaling.yarn_log_multiplier counts
    # What makes shares of the scores of experts; said: the file's expert_gating_func does.
    gating: Literal["softmax", "sigmoid", "said"] = "softmax"
    # Whether shares of the chosen experts are divided by their sum, where no expert_weights_norm says so.
    normalised: bool = True
    share_least: float = 1e-20  # what is added to the sum that shares are divided by
    sinks: bool = False  # whether each head of attention has the score of one more position, without values
    # Whether transformers keeps matrices of experts transposed, and the outputs of gate and up in turns.
    turned: bool = False


_GEMMA: Settings = {"head_dim": 256, "tie_word_embeddings": True}
_GEMMA2 = {**_GEMMA, "num_key_value_heads": 4, "sliding_window": 4096, "query_pre_attn_scalar": 256}
_GEMMA4: Settings = {
    **_GEMMA,
    "num_key_value_heads": 4,
    "global_head_dim": 512,
    "num_global_key_value_heads": None,
    "sliding_window": 512,
    "rope_theta": 1e6,
    "attention_k_eq_v": False,
    "num_kv_shared_layers": 0,
    "use_double_wide_mlp": False,
    "enable_moe_block": False,
}
_QWEN: Settings = {
    "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28, "num_key_value_heads": 32
}  # fmt: skip
_LFM: Settings = {
    "norm_eps": 1e-5, "rope_theta": 1e6, "num_key_value_heads": 8, "conv_L_cache": 3, "conv_bias": False,
    "tie_word_embeddings": True,
}  # fmt: skip
_ERNIE: Settings = {
    "rms_norm_eps": 1e-5, "rope_theta": 5e5, "num_key_value_heads": 2, "head_dim": 128, "tie_word_embeddings": True
}  # fmt: skip
_DELTA: Settings = {
    "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "partial_rotary_factor": 0.25,
    "full_attention_interval": 4,
}  # fmt: skip
_DELTA_EXPERTS: Settings = {
    "num_key_value_heads": 2, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512
}  # fmt: skip
_DEEPSEEK: Settings = {
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "norm_topk_prob": True, "rope_interleave": True
}  # fmt: skip
_GRANITE_MOE: Settings = {
    "attention_multiplier": 1.0, "logits_scaling": 1.0, "num_local_experts": 8, "num_experts_per_tok": 2
}  # fmt: skip
_FALCON: Settings = {
    "rms_norm_eps": 1e-5, "num_key_value_heads": 8, "mamba_d_ssm": 1024, "mamba_n_heads": 128, "mamba_n_groups": 1,
    "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_rms_norm": False,
    "mamba_norm_before_gate": True, "attention_bias": False, "mlp_bias": False, "projectors_bias": False,
    "embedding_multiplier": 1.0, "lm_head_multiplier": 1.0, "attention_in_multiplier": 1.0,
    "attention_out_multiplier": 1.0, "key_multiplier": 1.0, "ssm_in_multiplier": 1.0, "ssm_out_multiplier": 1.0,
    "ssm_multipliers": None, "mlp_multipliers": None,
}  # fmt: skip
_NEMOTRON = Family(
    "nemotron_h",
    {
        "nemotron_h": {
            "layers_block_type": None, "hybrid_override_pattern": None, "layer_norm_epsilon": 1e-5,
            "mlp_hidden_act": "relu2", "mamba_hidden_act": "silu", "intermediate_size": 21504,
            "max_position_embeddings": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
            "head_dim": 128, "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8,
            "ssm_state_size": 128, "conv_kernel": 4, "n_routed_experts": 8, "num_experts_per_tok": 2,
            "moe_intermediate_size": 7688, "moe_latent_size": None, "n_shared_experts": 1,
            "routed_scaling_factor": 1.0, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
        },
    },
    mixers=("attention", "mamba"), units=("gated_unit", "experts"), single=True, gate="squared",
    unit_norm="attn_norm", still=1, gating="sigmoid", normalised=False, missing={"expert_feed_forward_length": 0},
)  # fmt: skip
_ROWS = (
    Family(
        "llama",
        {
            "llama": {}, "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
            "mixtral": {
                "num_key_value_heads": 8, "rope_theta": 1e6, "rms_norm_eps": 1e-5, "num_experts_per_tok": 2,
                "num_local_experts": 8,
            },
        },
        units=("gated_unit", "experts"), pairs="neighbours",
    ),
    Family("qwen2", {"qwen2": _QWEN}),
    Family("qwen3", {"qwen3": {**_QWEN, "head_dim": 128}}, head_norm="head"),
    Family(
        "qwen3moe",
        {
            "qwen3_moe": {
                "use_sliding_window": False, "sliding_window": 4096, "num_key_value_heads": 4,
                "norm_topk_prob": False, "num_experts": 128, "num_experts_per_tok": 8,
                "moe_intermediate_size": 768,
            },
        },
        units=("experts",), head_norm="head", missing={"expert_feed_forward_length": 0},
    ),
    Family(
        "qwen2moe",
        {
            "qwen2_moe": {
                "use_sliding_window": False, "sliding_window": 4096, "num_key_value_heads": 16,
                "norm_topk_prob": False, "num_experts": 60, "num_experts_per_tok": 4,
                "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
            },
        },
        units=("experts",), normalised=False, missing={"expert_feed_forward_length": 0},
    ),
    Family(
        "gemma", {"gemma": {**_GEMMA, "num_key_value_heads": 16}}, gate="gelu", adds_one=True, root_embedding=True
    ),
    Family(
        "gemma2",
        {"gemma2": {**_GEMMA2, "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0}},
        gate="gelu", norms="both", adds_one=True, root_embedding=True, every=2,
        missing={
            "attention.sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        },
    ),
    Family(
        "gemma3",
        {
            "gemma3_text": {
                **_GEMMA2, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6
            },
        },
        gate="gelu", head_norm="head", norms="both", adds_one=True, root_embedding=True, every=6, local=True,
        missing={"rope.freq_base_swa": 10000.0},
    ),
    Family(
        "gemma4",
        {
            "gemma4_text": {**_GEMMA4, "hidden_size_per_layer_input": 256},
            "gemma4_unified_text": {**_GEMMA4, "sliding_window": 1024, "hidden_size_per_layer_input": 0},
        },
        units=("gated_unit", "dense_and_experts"), ends=("layer_input",),
        gate="gelu", head_norm="head", value_norm=True, norms="both", root_embedding=True,
        every=6, local=True,
        missing={
            "rope.freq_base_swa": 10000.0, "attention.scale": 1.0, "final_logit_softcapping": 30.0,
        },
    ),
    Family(
        "phi3", {"phi3": {"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096}}, every=0, partial=True
    ),
    Family(
        "smollm3",
        {
            "smollm3": {
                "rope_theta": 2e6, "tie_word_embeddings": True, "use_sliding_window": False,
                "num_key_value_heads": 4,
            },
        },
        pairs="neighbours", still=4,
    ),
    Family(
        "granite",
        {
            "granite": {"attention_multiplier": 1.0, "logits_scaling": 1.0},
        },
        pairs="neighbours", missing={"logit_scale": None},
    ),
    Family(
        "granitemoe",
        {"granitemoe": _GRANITE_MOE, "granitemoeshared": {**_GRANITE_MOE, "shared_intermediate_size": 0}},
        units=("experts",), pairs="neighbours", missing={"logit_scale": None},
    ),
    Family(
        "granite_swa",
        {
            "granite_swa": {
                "attention_multiplier": 1.0, "logits_scaling": 1.0, "rms_norm_eps": 1e-5,
                "num_key_value_heads": 4, "sliding_window": 128, "tie_word_embeddings": True,
                "layer_rope_theta": None,
            },
            "granitemoe_swa": {
                **_GRANITE_MOE, "sliding_window": 128, "layer_rope_theta": None, "shared_intermediate_size": 0
            },
        },
        units=("gated_unit", "experts"), pairs="neighbours", sinks=True,
        missing={
            "attention.sliding_window": None, "attention.sliding_window_pattern": None, "logit_scale": None,
        },
    ),
    Family(
        "granitehybrid",
        {
            "granitemoehybrid": {
                **_GRANITE_MOE, "layer_types": None, "shared_intermediate_size": 1024,
                "position_embedding_type": None, "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256,
                "mamba_d_conv": 4, "mamba_expand": 2,
            },
        },
        mixers=("attention", "mamba"), units=("gated_unit", "experts"), pairs="neighbours",
    ),
    _NEMOTRON, replace(_NEMOTRON, architecture="nemotron_h_moe", hub={}),
    Family(
        "falcon-h1", {"falcon_h1": _FALCON}, mixers=("attention_and_mamba",), missing={"ssm.normed": None}
    ),
    Family(
        "olmo2",
        {
            "olmo2": {"rms_norm_eps": 1e-5},
            "olmo3": {
                "rms_norm_eps": 1e-5, "rope_theta": 5e5, "rope_local_base_freq": 5e5, "sliding_window": 4096
            },
        },
        head_norm="row", norms="after", every=4, local=True,
    ),
    Family("ernie4_5", {"ernie4_5": _ERNIE}, pairs="neighbours", turns_alike=True),
    Family(
        "ernie4_5-moe",
        {
            "ernie4_5_moe": {
                **_ERNIE, "num_key_value_heads": 4, "head_dim": None, "moe_num_experts": 64, "moe_k": 6,
                "moe_num_shared_experts": 2, "moe_intermediate_size": 1536, "moe_layer_start_index": 1,
                "moe_layer_end_index": -1, "moe_layer_interval": 1,
            },
        },
        units=("gated_unit", "experts"), pairs="neighbours", turns_alike=True,
        missing={
            "expert_feed_forward_length": 0, "leading_dense_block_count": None, "interleave_moe_layer_step": None,
        },
    ),
    Family(
        "deepseek2",
        {
            "glm4_moe_lite": {
                **_DEEPSEEK, "rms_norm_eps": 1e-5, "num_experts_per_tok": 4, "kv_lora_rank": 512,
                "n_group": 1, "topk_group": 1, "v_head_dim": 256, "qk_nope_head_dim": 192, "q_lora_rank": 768,
                "n_routed_experts": 64, "n_shared_experts": 1, "moe_intermediate_size": 1536,
                "routed_scaling_factor": 1.8, "mlp_layer_types": None,
            },
            "deepseek_v3": {
                **_DEEPSEEK, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "v_head_dim": 128,
                "qk_nope_head_dim": 128, "q_lora_rank": 1536, "n_routed_experts": 256, "n_shared_experts": 1,
                "moe_intermediate_size": 2048, "routed_scaling_factor": 2.5, "first_k_dense_replace": 3,
            },
            "deepseek_v2": {
                **_DEEPSEEK, "num_experts_per_tok": None, "n_group": None, "topk_group": None, "v_head_dim": 128,
                "qk_nope_head_dim": 128, "q_lora_rank": 1536, "n_routed_experts": 64, "n_shared_experts": 2,
                "moe_intermediate_size": 1407, "routed_scaling_factor": 1.0, "first_k_dense_replace": 0,
                "norm_topk_prob": False, "topk_method": "greedy",
            },
        },
        mixers=("latent_attention",), units=("gated_unit", "experts"), pairs="neighbours", turns_alike=True,
        gating="said", normalised=False,
        missing={"expert_feed_forward_length": 0, "attention.kv_lora_rank": None},
    ),
    Family(
        "exaone4",
        {"exaone4": {"rms_norm_eps": 1e-5, "num_key_value_heads": 32, "sliding_window": 4096}},
        head_norm="head", norms="after", every=4, still_without_window=True,
    ),
    Family(
        "hunyuan-dense", {"hunyuan_v1_dense": {"rms_norm_eps": 1e-5, "num_key_value_heads": 32}},
        head_norm="turned",
    ),
    Family(
        "mistral3",
        {
            "ministral3": {
                "rms_norm_eps": 1e-5, "num_key_value_heads": 8, "head_dim": 128,
                "rope_parameters": {
                    "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0,
                    "original_max_position_embeddings": 16384, "mscale": 1.0, "mscale_all_dim": 1.0,
                    "llama_4_scaling_beta": 0.1,
                },
            },
        },
        pairs="neighbours", yarn_multiplier=True,
    ),
    Family(
        "qwen3vl",
        {"qwen3_vl_text": {"rope_theta": 5e5, "num_key_value_heads": 32, "head_dim": 128}}, head_norm="head",
    ),
    Family(
        "qwen3vlmoe",
        {
            "qwen3_vl_moe_text": {
                "rope_theta": 5e5, "num_key_value_heads": 16, "num_experts": 60, "num_experts_per_tok": 4,
                "moe_intermediate_size": 1408,
            },
        },
        units=("experts",), head_norm="head", missing={"expert_feed_forward_length": 0},
    ),
    Family(
        "lfm2",
        {
            "lfm2": {
                **_LFM, "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0,
                "block_multiple_of": 256, "block_ff_dim": None,
            },
        },
        mixers=("attention", "short_convolution"), head_norm="head", last_norm="token_embd_norm",
    ),
    Family(
        "lfm2moe",
        {
            "lfm2_moe": {
                **_LFM, "num_dense_layers": 2, "num_experts": 32, "num_experts_per_tok": 4,
                "moe_intermediate_size": 1792, "routed_scaling_factor": 1.0, "norm_topk_prob": True,
            },
        },
        mixers=("attention", "short_convolution"), units=("gated_unit", "experts"), head_norm="head",
        last_norm="token_embd_norm", gating="sigmoid",
        share_least=1e-6,  # as in transformers; llama.cpp has another one
        missing={"expert_feed_forward_length": 0, "leading_dense_block_count": None, "expert_gating_func": None},
    ),
    Family(
        "gpt-oss",
        {
            "gpt_oss": {
                "rms_norm_eps": 1e-5, "rope_theta": 150000.0, "head_dim": 64, "num_attention_heads": 64,
                "num_key_value_heads": 8, "sliding_window": 128, "num_local_experts": 128,
                "num_experts_per_tok": 4,
                "rope_parameters": {
                    "rope_type": "yarn", "factor": 32.0, "truncate": False,
                    "original_max_position_embeddings": 4096,
                },
            },
        },
        units=("experts",), gate="clamped", unit_norm="post_attention_norm", every=2, sinks=True, turned=True,
        # The models were trained with bounds of yarn that are not rounded; no key of their files says so.
        missing={"attention.sliding_window": None, "rope.scaling.yarn_truncate": False},
    ),
    Family(
        "qwen35", {"qwen3_5_text": {**_DELTA, "num_key_value_heads": 4}},
        mixers=("attention", "delta_net"), head_norm="head", unit_norm="post_attention_norm", adds_one=True,
        partial=True, gated=True, tiled=True,
    ),
    Family(
        "qwen35moe",
        {"qwen3_5_moe_text": {**_DELTA, **_DELTA_EXPERTS, "num_experts": 256, "num_experts_per_tok": 8}},
        mixers=("attention", "delta_net"), units=("experts",), head_norm="head", unit_norm="post_attention_norm",
        adds_one=True, partial=True, gated=True, tiled=True, missing={"expert_feed_forward_length": 0},
    ),
    Family(
        "qwen3next",
        {
            "qwen3_next": {
                **_DELTA, **_DELTA_EXPERTS, "num_experts": 512, "num_experts_per_tok": 10, "norm_topk_prob": True,
            },
        },
        mixers=("attention", "delta_net"), units=("experts",), head_norm="head", unit_norm="post_attention_norm",
        adds_one=True, partial=True, gated=True, missing={"expert_feed_forward_length": 0},
    ),
)  # fmt: skip
FAMILIES = {family.architecture: family for family in _ROWS}
"""By ``general.architecture`` of a GGUF file."""
HUB_FAMILIES = {kind: family for family in _ROWS for kind in family.hub}
"""By ``model_type`` of a config.json."""
GATINGS = {"softmax": 1, "sigmoid": 2}
"""GGUF's numbers of what makes shares of the scores of experts."""
