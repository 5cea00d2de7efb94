"""Tiny random models of every family that the CPU engine runs, as transformers has them and as GGUF files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType, GGUFWriter, quants
from transformers import AttentionInterface, AttentionMaskInterface, PretrainedConfig
from transformers.masking_utils import eager_mask

from draftwood.engines.cpu.code.cells import MOST_KEY, MOST_VALUE
from draftwood.engines.files.formats import FORMATS, GROUP
from draftwood.engines.files.gguf_types import dequantised, read_blocks
from tests.engines.cpu.small_models import small_rows
from tests.engines.tiny_gguf import write_vocabulary, written

VOCAB, WINDOW, LONGEST = 150, 24, 512
WIDTH = 256  # a block of the k-quants
SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": LONGEST,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
PARTIAL = PLAIN | {"partial_rotary_factor": 0.75}
LONG = {
    "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 128,
    "short_factor": np.linspace(1, 1.5, 32).tolist(), "long_factor": np.linspace(1, 12, 32).tolist(),
}  # fmt: skip


@dataclass(frozen=True)
class Tiny:
    """One family: transformers' names of its model and settings, and what its GGUF files say beyond the sizes."""

    kind: str
    architecture: str
    settings: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    neighbours: bool = False  # whether the file has the numbers that turn together side by side
    scalings: dict[str, Any] = field(default_factory=dict)

    @property
    def adds_one(self) -> bool:
        return self.kind in ("Gemma", "Gemma2", "Gemma3") or self.kind.startswith(("Qwen3_5", "Qwen3Next"))

    @property
    def turned(self) -> bool:
        """Whether transformers keeps matrices of experts transposed, gate and up in turns."""
        return self.kind == "GptOss"


def _scaling(kind: str, factor: float, original: int | None = None) -> dict[str, Any]:
    found = {"rope.scaling.type": kind, "rope.scaling.factor": factor}
    return found if original is None else found | {"rope.scaling.original_context_length": original}


_GEMMA = {"head_dim": 96, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 96}
_WINDOW = {"attention.sliding_window": WINDOW}
_EXPERTS = {"expert_count": 6}

_GRANITE = {
    "embedding_multiplier": 6.0, "residual_multiplier": 0.3, "attention_multiplier": 0.05, "logits_scaling": 4.0
}  # fmt: skip
_OF_GRANITE = {"embedding_scale": 6.0, "residual_scale": 0.3, "attention.scale": 0.05, "logit_scale": 4.0}

TINY = {
    "llama": Tiny("Llama", "llama", neighbours=True),
    "llama3": Tiny("Llama", "llama", {"rope_parameters": LLAMA3}, neighbours=True),
    "llama-linear": Tiny("Llama", "llama", {"rope_parameters": LINEAR}, _scaling("linear", 4.0), neighbours=True),
    "llama-yarn": Tiny("Llama", "llama", {"rope_parameters": YARN}, _scaling("yarn", 4.0, 128), neighbours=True),
    "llama-tied": Tiny("Llama", "llama", {"tie_word_embeddings": True, "head_dim": 48}, neighbours=True),
    "mistral": Tiny("Mistral", "llama", {"sliding_window": None, "head_dim": 32}, neighbours=True),
    "qwen2": Tiny("Qwen2", "qwen2"),
    "qwen2-yarn": Tiny("Qwen2", "qwen2", {"rope_parameters": YARN}, _scaling("yarn", 4.0, 128)),
    "qwen3": Tiny("Qwen3", "qwen3", {"head_dim": 96}),
    "gemma": Tiny("Gemma", "gemma", {"head_dim": 96, "tie_word_embeddings": True}),
    "gemma2": Tiny(
        "Gemma2", "gemma2",
        _GEMMA
        | {
            "sliding_window": WINDOW, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0,
            "tie_word_embeddings": True,
        },
        _WINDOW | {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0},
    ),
    "gemma3": Tiny(
        "Gemma3", "gemma3",
        _GEMMA
        | {
            "sliding_window": WINDOW,
            "num_hidden_layers": 7,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                "sliding_attention": PLAIN,
            },
        },
        _WINDOW | _scaling("linear", 8.0) | {"rope.freq_base": 1e6},
    ),
    "phi3": Tiny("Phi3", "phi3", {"sliding_window": WINDOW, "rope_parameters": PARTIAL}, _WINDOW),
    "phi3-long": Tiny(
        "Phi3", "phi3", {"rope_parameters": LONG, "original_max_position_embeddings": 128},
        {
            "rope.scaling.original_context_length": 128,
            "rope.scaling.attn_factor": (1 + np.log(4) / np.log(128)) ** 0.5,
        },
    ),
    "smollm3": Tiny("SmolLM3", "smollm3", {"num_hidden_layers": 5}, neighbours=True),
    "granite": Tiny(
        "Granite", "granite",
        _GRANITE, _OF_GRANITE, neighbours=True,
    ),
    "olmo2": Tiny("Olmo2", "olmo2"),
    "olmo3": Tiny(
        "Olmo3", "olmo2",
        {
            "num_hidden_layers": 5, "sliding_window": WINDOW,
            "rope_parameters": {"full_attention": YARN, "sliding_attention": PLAIN},
        },
        _WINDOW | _scaling("yarn", 4.0, 128),
    ),
    "qwen3moe": Tiny(
        "Qwen3Moe", "qwen3moe",
        {
            "head_dim": 64, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
            "norm_topk_prob": True,
        },
        _EXPERTS | {"expert_feed_forward_length": 256},
    ),
    "mixtral": Tiny(
        "Mixtral", "llama", {"num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": None}, _EXPERTS,
        neighbours=True,
    ),
}  # fmt: skip
_CONVOLVED = {
    "num_hidden_layers": 6, "layer_types": [("conv", "full_attention")[i in (2, 4)] for i in range(6)],
    "tie_word_embeddings": True,
}  # fmt: skip
_OF_CONVOLVED = {
    "attention.head_count_kv": [0, 0, 2, 0, 2, 0], "shortconv.l_cache": 3, "attention.key_length": None,
    "attention.value_length": None, "rope.dimension_count": None,
}  # fmt: skip
TINY |= {
    "lfm2": Tiny(
        "Lfm2", "lfm2", _CONVOLVED | {"intermediate_size": 380, "block_multiple_of": 64},
        _OF_CONVOLVED | {"feed_forward_length": 256},
    ),
    "lfm2moe": Tiny(
        "Lfm2Moe", "lfm2moe",
        _CONVOLVED
        | {
            "num_dense_layers": 2, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 128,
            "routed_scaling_factor": 1.0,
        },
        _OF_CONVOLVED
        | _EXPERTS
        | {"expert_feed_forward_length": 128, "leading_dense_block_count": 2, "expert_gating_func": 2},
    ),
}  # fmt: skip
TINY |= {
    "qwen2moe": Tiny(
        "Qwen2Moe", "qwen2moe",
        {
            "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
            "shared_expert_intermediate_size": 160,
        },
        _EXPERTS | {"expert_feed_forward_length": 96, "expert_shared_feed_forward_length": 160},
    ),
    "qwen3vl": Tiny(
        "Qwen3VL", "qwen3vl", {"head_dim": 32},
        {"rope.dimension_sections": [6, 5, 5, 0], "n_deepstack_layers": 1},
    ),
    "qwen3vlmoe": Tiny(
        "Qwen3VLMoe", "qwen3vlmoe",
        {"head_dim": 32, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 96},
        _EXPERTS
        | {
            "expert_feed_forward_length": 96, "rope.dimension_sections": [6, 5, 5, 0], "n_deepstack_layers": 1
        },
    ),
    "exaone4": Tiny(
        "Exaone4", "exaone4", {"num_hidden_layers": 5, "sliding_window": WINDOW, "rope_parameters": LLAMA3},
        _WINDOW,
    ),
    "exaone4-small": Tiny(
        "Exaone4", "exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 3}
    ),
    "hunyuan-dense": Tiny("HunYuanDenseV1", "hunyuan-dense", {"head_dim": 32}),
    "mistral3": Tiny(
        "Ministral3", "mistral3",
        {
            "head_dim": 32,
            "rope_parameters": YARN
            | {
                "original_max_position_embeddings": 64, "mscale": 1.0, "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.3,
            },
        },
        _scaling("yarn", 4.0, 64) | {"rope.scaling.yarn_log_multiplier": 1.0, "attention.temperature_scale": 0.3},
        neighbours=True,
    ),
    "ernie4_5": Tiny("Ernie4_5", "ernie4_5", {"head_dim": 32, "use_bias": False}),
    "ernie4_5-moe": Tiny(
        "Ernie4_5_Moe", "ernie4_5-moe",
        {
            "moe_num_experts": 6, "moe_k": 2, "moe_num_shared_experts": 2, "moe_intermediate_size": 96,
            "moe_layer_start_index": 1, "moe_layer_end_index": 2,
        },
        _EXPERTS
        | {
            "expert_feed_forward_length": 96, "expert_shared_count": 2, "expert_shared_feed_forward_length": 192,
            "leading_dense_block_count": 1, "interleave_moe_layer_step": 1,
        },
    ),
}  # fmt: skip
_ALTERNATING = [("linear_attention", "full_attention")[i % 2] for i in range(4)]
TINY |= {
    "qwen35": Tiny(
        "Qwen3_5", "qwen35",
        {
            "num_hidden_layers": 4, "layer_types": _ALTERNATING, "head_dim": 96,
            "linear_num_key_heads": 2, "linear_num_value_heads": 6,
            "rope_parameters": PLAIN | {"partial_rotary_factor": 0.25},
        },
        {
            "full_attention_interval": 2, "ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 2,
            "ssm.time_step_rank": 6, "ssm.inner_size": 768, "rope.dimension_sections": [4, 4, 4, 0],
        },
    ),
}  # fmt: skip
_DELTA_EXPERTS = {
    "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "shared_expert_intermediate_size": 160
}  # fmt: skip
_OF_DELTA_EXPERTS = _EXPERTS | {"expert_feed_forward_length": 96, "expert_shared_feed_forward_length": 160}
TINY |= {
    name: Tiny(
        kind, name, TINY["qwen35"].settings | _DELTA_EXPERTS, TINY["qwen35"].keys | _OF_DELTA_EXPERTS,
    )
    for kind, name in (("Qwen3_5Moe", "qwen35moe"), ("Qwen3Next", "qwen3next"))
}  # fmt: skip
_LAYERS4 = ["sliding_attention", "sliding_attention", "full_attention"]
_GEMMA4 = {
    "num_hidden_layers": 3, "layer_types": _LAYERS4, "head_dim": 32, "global_head_dim": 64,
    "sliding_window": WINDOW, "hidden_size_per_layer_input": 0,
    "final_logit_softcapping": 3.0, "tie_word_embeddings": True,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
        "sliding_attention": PLAIN,
    },
}  # fmt: skip
_OF_GEMMA4 = _WINDOW | {
    "attention.sliding_window_pattern": [True, True, False], "attention.key_length": 64,
    "attention.value_length": 64, "attention.key_length_swa": 32, "attention.value_length_swa": 32,
    "rope.dimension_count": 64, "rope.dimension_count_swa": 32, "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4,
    "final_logit_softcapping": 3.0, "attention.shared_kv_layers": 0, "embedding_length_per_layer_input": 0,
}  # fmt: skip
TINY |= {
    "gemma4": Tiny(
        "Gemma4", "gemma4", _GEMMA4 | {"attention_k_eq_v": True, "num_global_key_value_heads": 1},
        _OF_GEMMA4 | {"attention.head_count_kv": [2, 2, 1]},
    ),
    "gemma4-mixture": Tiny(
        "Gemma4", "gemma4",
        _GEMMA4
        | {
            "attention_k_eq_v": True, "num_global_key_value_heads": 1, "enable_moe_block": True, "num_experts": 6,
            "top_k_experts": 2, "moe_intermediate_size": 96,
        },
        _OF_GEMMA4
        | _EXPERTS
        | {"attention.head_count_kv": [2, 2, 1], "expert_feed_forward_length": 96},
    ),
    "gemma4-small": Tiny(
        "Gemma4", "gemma4",
        _GEMMA4
        | {
            "num_hidden_layers": 6, "layer_types": 2 * _LAYERS4, "num_kv_shared_layers": 3,
            "use_double_wide_mlp": True, "hidden_size_per_layer_input": 32,
        },
        _OF_GEMMA4
        | {
            "attention.sliding_window_pattern": [True, True, False] * 2, "attention.shared_kv_layers": 3,
            "embedding_length_per_layer_input": 32, "feed_forward_length": [256] * 3 + [512] * 3,
        },
    ),
}  # fmt: skip


TINY["granite-4"] = Tiny(
    "GraniteMoeHybrid", "granite",
    _GRANITE
    | {
        "layer_types": ["full_attention"] * 3, "num_local_experts": 0, "shared_intermediate_size": 192,
        "position_embedding_type": "rope", "num_experts_per_tok": 0,
    },
    _OF_GRANITE | {"feed_forward_length": 192, "expert_used_count": None},
    neighbours=True,
)  # fmt: skip
_SWA = [i % 4 != 0 for i in range(5)]
TINY["granite_swa"] = Tiny(
    "GraniteSWA", "granite_swa",
    _GRANITE
    | {
        "num_hidden_layers": 5, "sliding_window": WINDOW, "tie_word_embeddings": True,
        "layer_rope_theta": [10000.0 * here for here in _SWA],
    },
    _OF_GRANITE
    | _WINDOW
    | {"attention.sliding_window_pattern": _SWA, "attention.rope_pattern": _SWA},
    neighbours=True,
)  # fmt: skip
_GRANITE_MOE = _GRANITE | {
    "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 96, "shared_intermediate_size": 160
}  # fmt: skip
_OF_GRANITE_MOE = _OF_GRANITE | _EXPERTS | {"expert_shared_feed_forward_length": 160}
TINY["granitemoe"] = Tiny("GraniteMoeShared", "granitemoe", _GRANITE_MOE, _OF_GRANITE_MOE, neighbours=True)
TINY["granitemoe_swa"] = Tiny(
    "GraniteMoeSWA", "granite_swa",
    _GRANITE_MOE
    | {
        "sliding_window": WINDOW, "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        "layer_rope_theta": [0, 10000.0, 10000.0],
    },
    _OF_GRANITE_MOE
    | _WINDOW
    | {
        "attention.sliding_window_pattern": [False, True, True], "attention.rope_pattern": [False, True, True],
    },
    neighbours=True,
)  # fmt: skip
_OF_MAMBA = {
    "ssm.conv_kernel": 4, "ssm.state_size": 48, "ssm.group_count": 2, "ssm.time_step_rank": 8,
    "ssm.inner_size": 512, "attention.key_length": None, "attention.value_length": None,
}  # fmt: skip
TINY["granitehybrid"] = Tiny(
    "GraniteMoeHybrid", "granitehybrid",
    _GRANITE
    | {
        "num_hidden_layers": 4, "layer_types": _ALTERNATING, "shared_intermediate_size": 256,
        "num_local_experts": 0, "mamba_n_heads": 8, "mamba_n_groups": 2, "mamba_d_state": 48, "mamba_expand": 2,
        "tie_word_embeddings": True,
    },
    _OF_GRANITE
    | _OF_MAMBA
    | {
        "attention.head_count_kv": [0, 2, 0, 2], "rope.scaling.finetuned": False, "expert_used_count": None
    },
    neighbours=True,
)  # fmt: skip
_FALCON = {
    "mamba_d_ssm": 512, "mamba_n_heads": 8, "mamba_n_groups": 2, "mamba_d_state": 48, "head_dim": 32,
    "mamba_norm_before_gate": False, "embedding_multiplier": 4.0, "lm_head_multiplier": 0.5,
    "attention_in_multiplier": 2.0, "attention_out_multiplier": 0.5, "key_multiplier": 0.25,
    "ssm_in_multiplier": 2.0, "ssm_out_multiplier": 0.5, "ssm_multipliers": [0.5, 0.25, 2.0, 1.0, 0.5],
    "mlp_multipliers": [2.0, 0.25],
}  # fmt: skip
"""With powers of 2: files have weights that were multiplied, and must have the same types of few bits."""
_OF_FALCON = _OF_MAMBA | {"attention.key_length": 32, "attention.value_length": 32}
TINY["falcon-h1"] = Tiny("FalconH1", "falcon-h1", _FALCON, _OF_FALCON)
TINY["falcon-h1-norm"] = Tiny("FalconH1", "falcon-h1", _FALCON | {"mamba_rms_norm": True}, _OF_FALCON)
TINY["granitehybrid-experts"] = Tiny(
    "GraniteMoeHybrid", "granitehybrid",
    TINY["granitehybrid"].settings | {"num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 96},
    {key: value for key, value in TINY["granitehybrid"].keys.items() if key != "expert_used_count"}
    | _EXPERTS
    | {"expert_shared_feed_forward_length": 256},
    neighbours=True,
)  # fmt: skip


_KINDS_OF_NEMOTRON = ["linear_attention", "unit", "full_attention", "unit", "linear_attention"]
_NEMOTRON: dict[str, Any] = {
    "head_dim": 32, "mamba_num_heads": 8, "mamba_head_dim": 64, "n_groups": 2, "ssm_state_size": 48,
    "layer_norm_epsilon": 1e-5, "num_hidden_layers": 5,
}  # fmt: skip
_OF_NEMOTRON = _OF_MAMBA | {
    "attention.head_count_kv": [0, 0, 2, 0, 0], "attention.key_length": 32, "attention.value_length": 32,
    "attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 24, "rope.scaling.finetuned": False,
}  # fmt: skip


def _of_nemotron(unit: str) -> dict[str, Any]:
    return _NEMOTRON | {"layers_block_type": [unit if one == "unit" else one for one in _KINDS_OF_NEMOTRON]}


TINY["nemotron_h"] = Tiny(
    "NemotronH",
    "nemotron_h",
    _of_nemotron("mlp") | {"intermediate_size": 320},
    _OF_NEMOTRON | {"feed_forward_length": [0, 320, 0, 320, 0], "expert_used_count": None},
)
_NEMOTRON_EXPERTS = {
    "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
    "moe_shared_expert_intermediate_size": 160, "routed_scaling_factor": 2.5,
}  # fmt: skip
_OF_NEMOTRON_EXPERTS = _EXPERTS | {
    "feed_forward_length": [0, 96, 0, 96, 0], "expert_feed_forward_length": 96, "expert_shared_count": 1,
    "expert_shared_feed_forward_length": 160, "expert_weights_norm": True, "expert_weights_scale": 2.5,
    "expert_group_count": 1,
}  # fmt: skip
TINY |= {
    "nemotron_h_moe": Tiny(
        "NemotronH", "nemotron_h_moe", _of_nemotron("moe") | _NEMOTRON_EXPERTS,
        _OF_NEMOTRON | _OF_NEMOTRON_EXPERTS,
    ),
    "nemotron_h_moe-latent": Tiny(
        "NemotronH", "nemotron_h_moe", _of_nemotron("moe") | _NEMOTRON_EXPERTS | {"moe_latent_size": 64},
        _OF_NEMOTRON | _OF_NEMOTRON_EXPERTS | {"moe_latent_size": 64},
    ),
}  # fmt: skip


_OF_GPT_OSS = YARN | {"rope_theta": 150000.0, "truncate": False}
TINY["gpt-oss"] = Tiny(
    "GptOss", "gpt-oss",
    {
        "head_dim": 64, "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": WINDOW,
        "rope_parameters": _OF_GPT_OSS,
    },
    _WINDOW | _EXPERTS | _scaling("yarn", 4.0, 128)
)  # fmt: skip


_LATENT = {
    "num_key_value_heads": 4, "q_lora_rank": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16, "v_head_dim": 48, "n_routed_experts": 6, "num_experts_per_tok": 2,
    "moe_intermediate_size": 96, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip
_OF_LATENT = _EXPERTS | {
    "attention.head_count_kv": 1, "attention.key_length": 80, "attention.value_length": 64,
    "attention.key_length_mla": 48, "attention.value_length_mla": 48, "attention.q_lora_rank": 64,
    "attention.kv_lora_rank": 64, "rope.dimension_count": 16, "expert_feed_forward_length": 96,
    "expert_shared_count": 1, "leading_dense_block_count": 1, "expert_gating_func": 2, "expert_weights_norm": True,
}  # fmt: skip
_OLD_LATENT = {
    "attention.key_length_mla": None, "attention.value_length_mla": None, "attention.key_length": 48,
    "attention.value_length": 48, "attention.head_count_kv": 4,
}  # fmt: skip
_DEEP = {"mscale": 0.707, "mscale_all_dim": 0.707}
TINY |= {
    "glm4-flash": Tiny(
        "Glm4MoeLite", "deepseek2", _LATENT | {"routed_scaling_factor": 1.8},
        _OF_LATENT | {"expert_weights_scale": 1.8},
    ),
    "deepseek3": Tiny(
        "DeepseekV3", "deepseek2",
        _LATENT
        | {
            "n_group": 3, "topk_group": 2, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5,
            "rope_parameters": YARN | _DEEP,
        },
        _OF_LATENT
        | _scaling("yarn", 4.0, 128)
        | {
            "rope.scaling.yarn_log_multiplier": 0.0707, "expert_weights_scale": 2.5, "expert_group_count": 3,
            "expert_group_used_count": 2,
        },
    ),
    "deepseek2-old": Tiny(
        "DeepseekV2", "deepseek2",
        _LATENT | {"q_lora_rank": None, "first_k_dense_replace": 1, "norm_topk_prob": False},
        _OF_LATENT
        | _OLD_LATENT
        | {"expert_gating_func": 1, "expert_weights_norm": False, "attention.q_lora_rank": None},
    ),
}  # fmt: skip
_EYES = {
    "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "num_position_embeddings": 4,
    "deepstack_visual_indexes": [0],
}  # fmt: skip
"""Of a model that sees pictures, too; these parts are not read."""


def config_of(name: str, **settings: Any) -> PretrainedConfig:
    tiny = TINY[name]
    nested = ("Gemma3", "Gemma4", "Qwen3_5", "Qwen3_5Moe")
    kind = f"{tiny.kind}TextConfig" if tiny.kind in nested else f"{tiny.kind}Config"
    settings = SHAPE | tiny.settings | settings
    if tiny.kind == "Gemma4":
        settings["vocab_size_per_layer_input"] = settings["vocab_size"]
    if tiny.kind.startswith("Qwen3VL"):  # there the model of texts is one part of several
        eyes = _EYES | {"out_hidden_size": settings["hidden_size"]}
        settings = {"text_config": settings, "vision_config": eyes, "tie_word_embeddings": False}
    config = getattr(transformers, kind)(**settings)
    config.allow_global_per_layer_attribute_access = True  # the sizes of most layers are wanted
    return config


def build(name: str, seed: int = 0, **settings: Any) -> Any:
    """Return a model with random weights, norms and biases too, whose cache is rounded as ours is."""
    torch.manual_seed(seed)
    tiny, config = TINY[name], config_of(name, **settings)
    config._attn_implementation = "coded_cache" if tiny.architecture != "deepseek2" else "coded_latents"
    task = "ConditionalGeneration" if tiny.kind.startswith("Qwen3VL") else "CausalLM"
    model = getattr(transformers, f"{tiny.kind}For{task}")(config).eval()
    for module_name, module in model.named_modules():
        if module_name.endswith("kv_a_layernorm"):
            module.register_forward_hook(lambda module, _inputs, found: setattr(module, "latents", found))
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("correction_bias"):
                parameter.normal_(0, 0.1)
            elif parameter_name.endswith(("bias", "A_log")):
                parameter.normal_(0, 0.5)
            elif parameter.ndim > 1:
                parameter.normal_(0, parameter.shape[-1] ** -0.5)
                if tiny.turned and parameter_name.endswith("gate_up_proj"):
                    parameter *= 6  # so that some numbers are beyond 7, where they are cut
            else:
                parameter.uniform_(-0.5 if tiny.adds_one else 0.5, 0.5 if tiny.adds_one else 1.5)
            if tiny.kind == "Gemma4" and parameter_name.endswith("q_norm.weight"):
                parameter /= 8  # which others divide scores of attention by: the root of a head's size
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith(("expert_bias", "correction_bias")):
                buffer.normal_(0, 0.2)
            if buffer_name.endswith("layer_scalar"):
                buffer.uniform_(0.5, 1.5)
    return model


def coded(numbers: Any, most: int) -> Any:
    """Return numbers [..., n] rounded as in cells: see `tests.oracles.cpu_attention.coded`."""
    groups = torch.nn.functional.pad(numbers, (0, -numbers.shape[-1] % 32)).unflatten(-1, (-1, 32))
    largest = abs(groups).amax(-1, keepdim=True) * (1 / most)
    scale = ((largest.view(torch.int32) + 0xFFFF) & -0x10000).view(torch.float32)
    found = torch.where(scale > 0, torch.round(groups / scale) * scale, 0)
    return found.flatten(-2)[..., : numbers.shape[-1]]


def _coded_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None,
    softcap: float | None = None, s_aux: Any = None, **kwargs: Any,
) -> tuple[Any, None]:  # fmt: skip
    """Attention over rounded queries, keys and values; ``s_aux`` are sinks."""
    groups = query.shape[1] // key.shape[1]
    key, value = (
        coded(one, most).repeat_interleave(groups, 1) for one, most in ((key, MOST_KEY), (value, MOST_VALUE))
    )
    query = coded(query * (query.shape[-1] ** -0.5 if scaling is None else scaling), MOST_KEY)
    scores = query @ key.transpose(2, 3)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores + attention_mask
    if s_aux is not None:
        sinks = s_aux.reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat((scores, sinks), -1)
    weights = torch.softmax(scores, dim=-1)[..., : key.shape[2]]
    return (weights @ value).transpose(1, 2).contiguous(), None


def _latent_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Any, None]:  # fmt: skip
    """Attention over values that are of rounded latents, which lie in cells behind the numbers that rotate."""
    turning = key[:, 0, :, module.qk_nope_head_dim :]
    both = torch.cat((turning, module.kv_a_layernorm.latents), dim=-1)
    latents = coded(both, MOST_VALUE)[..., turning.shape[-1] :]
    value = module.kv_b_proj(latents).unflatten(-1, (key.shape[1], -1)).transpose(1, 2)[..., -module.v_head_dim :]
    weights = torch.softmax(query @ key.transpose(2, 3) * scaling + attention_mask, dim=-1)
    return (weights @ value).transpose(1, 2).contiguous(), None


AttentionInterface.register("coded_latents", _latent_attention)
AttentionMaskInterface.register("coded_latents", eager_mask)
AttentionInterface.register("coded_cache", _coded_attention)
AttentionMaskInterface.register("coded_cache", eager_mask)


def scores_of(model: Any, ids: list[int]) -> np.ndarray:
    """Return the scores of every position, float32[tokens, vocabulary]."""
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float().numpy()


_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate": "ffn_gate_inp",
    "self_attn.out_proj": "attn_output", "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm", "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm", "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b", "operator_norm": "attn_norm", "ffn_norm": "ffn_norm",
    "conv.in_proj": "shortconv.in_proj", "conv.conv": "shortconv.conv", "conv.out_proj": "shortconv.out_proj",
    **{f"feed_forward.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
    "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down",
    "feed_forward.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp",
    "block_sparse_moe.router": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    **{
        f"mlp.{unit}.{part}_proj": f"ffn_{part}_shexp"
        for unit in ("shared_expert", "shared_experts")
        for part in ("gate", "up", "down")
    },
    "mlp.fc1_latent_proj": "ffn_latent_down", "mlp.fc2_latent_proj": "ffn_latent_up",
    "router.proj": "ffn_gate_inp", "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    **{f"post_feedforward_layernorm_{i}": f"post_ffw_norm_{i}" for i in (1, 2)},
    "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm",
}  # fmt: skip
_AFTER = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
_ENDS = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "model.embedding_norm": "token_embd_norm",
    "model.final_layernorm": "output_norm", "lm_head": "output",
    "model.embed_tokens_per_layer": "per_layer_token_embd",
    "model.per_layer_model_projection": "per_layer_model_proj",
    "model.per_layer_projection_norm": "per_layer_proj_norm",
}  # fmt: skip


def tensors_of(name: str, model: Any) -> dict[str, np.ndarray]:
    """Return the tensors of a GGUF file, by their names there."""
    tiny, config = TINY[name], model.config.get_text_config()
    names = _NAMES | (_AFTER if tiny.kind.startswith(("Gemma2", "Gemma3", "Gemma4", "Olmo", "Exaone4")) else {})
    if tiny.kind.startswith(("GptOss", "Qwen3_5", "Qwen3Next")):
        names = names | {"post_attention_layernorm": "post_attention_norm"}
    found: dict[str, np.ndarray] = {}
    for full, value in model.state_dict().items():
        if full == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if full.startswith("model.visual."):
            continue
        full = full.replace("model.language_model.", "model.")
        if tiny.kind == "NemotronH":
            full = _of_mixer(full, config)
        tensor = value.float().numpy()
        tensor = tensor * _multiplier(full, config) if tiny.kind == "FalconH1" else tensor
        if tiny.adds_one and full.endswith("norm.weight") and "linear_attn" not in full:
            tensor = tensor + 1
        if not full.startswith("model.layers."):
            part, ending = full.rsplit(".", 1)
            found[f"{_ENDS[part]}.{ending}"] = tensor
            continue
        _, _, number, rest = full.split(".", 3)
        start = f"blk.{number}."
        if rest == "self_attn.sinks":
            found[f"{start}attn_sinks.weight"] = tensor
        elif tiny.turned and ".experts." in rest:
            found |= _of_turned(start, rest.rpartition(".")[2], tensor)
        elif rest == "experts.gate_up_proj":
            found[f"{start}ffn_gate_up_exps.weight"] = tensor
        elif rest == "experts.down_proj":
            found[f"{start}ffn_down_exps.weight"] = tensor
        elif rest.endswith(".experts.gate_up_proj"):
            found[f"{start}ffn_gate_exps.weight"], found[f"{start}ffn_up_exps.weight"] = np.split(
                tensor, 2, axis=1
            )
        elif rest == "self_attn.kv_b_proj.weight" and tiny.keys["attention.key_length_mla"]:
            both = tensor.reshape(config.num_attention_heads, -1, config.kv_lora_rank)
            keys, values = np.split(both, [config.qk_nope_head_dim], axis=1)
            found |= {f"{start}attn_k_b.weight": keys.swapaxes(1, 2), f"{start}attn_v_b.weight": values}
        elif rest.endswith((".experts.down_proj", ".experts.up_proj")):
            found[f"{start}ffn_{rest.split('.')[-1].removesuffix('_proj')}_exps.weight"] = tensor
        elif rest.startswith("shared_mlp."):
            found |= _of_shared(tiny, start, rest, tensor)
        elif rest.endswith(("feed_forward.expert_bias", "e_score_correction_bias")):
            found[f"{start}exp_probs_b.bias"] = tensor.ravel()
        elif rest == "mlp.shared_expert_gate.weight":
            found[f"{start}ffn_gate_inp_shexp.weight"] = tensor[0]
        elif rest in ("router.scale", "router.per_expert_scale"):
            found[f"{start}ffn_{'gate_inp' if rest == 'router.scale' else 'down_exps'}.scale"] = tensor
        elif rest == "pre_ff_layernorm.weight":
            found[f"{start}ffn_norm"] = tensor
        elif rest == "layer_scalar":
            found[f"{start}layer_output_scale.weight"] = tensor
        elif rest.startswith("mamba."):
            mamba_name, tensor = _of_mamba(
                rest.removeprefix("mamba."), tensor, getattr(config, "mamba_n_groups", 0) or config.n_groups
            )
            found[start + mamba_name] = tensor
        elif rest == "conv.conv.weight":
            found[f"{start}shortconv.conv.weight"] = tensor[:, 0]
        elif rest.startswith("linear_attn."):
            parts = _of_delta_net(rest.removeprefix("linear_attn."), tensor, config)
            found |= {f"{start}{delta_name}": part for delta_name, part in parts.items()}
        else:
            part, ending = rest.rsplit(".", 1)
            heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(names[part])
            found[f"{start}{names[part]}.{ending}"] = (
                _beside(tensor, heads) if tiny.neighbours and heads else tensor
            )
    return found | _factors(config)


def _multiplier(name: str, config: PretrainedConfig) -> Any:
    """Return what a tensor of Falcon-H1 is multiplied by in files, perhaps row by row."""
    if name.endswith("mamba.in_proj.weight"):
        shared = config.mamba_n_groups * config.mamba_d_state
        sizes = [config.mamba_d_ssm] * 2 + [shared] * 2 + [config.mamba_n_heads]
        return config.ssm_in_multiplier * np.repeat(np.float32(config.ssm_multipliers), sizes)[:, None]
    before = config.attention_in_multiplier
    factors = {
        "embed_tokens": config.embedding_multiplier, "lm_head": config.lm_head_multiplier,
        "q_proj": before, "k_proj": before * config.key_multiplier, "v_proj": before,
        "o_proj": config.attention_out_multiplier, "out_proj": config.ssm_out_multiplier,
        "gate_proj": config.mlp_multipliers[0], "down_proj": config.mlp_multipliers[1],
    }  # fmt: skip
    return np.float32(factors.get(name.split(".")[-2], 1))


def _of_mixer(name: str, config: PretrainedConfig) -> str:
    """Return the name that a tensor of nemotron_h has in other families."""
    if not name.startswith("model.layers."):
        return name.replace("model.embeddings", "model.embed_tokens").replace("norm_f", "norm")
    *_, number, rest = name.split(".", 3)
    kind = config.layers_block_type[int(number)]
    block = {"linear_attention": "mamba", "full_attention": "self_attn"}.get(kind, "mlp")
    rest = "input_layernorm.weight" if rest == "norm.weight" else rest.replace("mixer.", f"{block}.")
    return f"model.layers.{number}.{rest}"


def _of_turned(start: str, name: str, tensor: np.ndarray) -> dict[str, np.ndarray]:
    """Return tensors of experts from transposed matrices, or biases, in which gate and up take turns."""
    part, _, bias = name.partition("_proj")
    tensor, ending = (tensor, "bias") if bias else (tensor.swapaxes(1, 2), "weight")
    if part == "down":
        return {f"{start}ffn_down_exps.{ending}": tensor}
    return {f"{start}ffn_{one}_exps.{ending}": tensor[:, i::2] for i, one in enumerate(("gate", "up"))}


_DELTA_NAMES = {
    "in_proj_qkv.weight": "attn_qkv.weight", "in_proj_z.weight": "attn_gate.weight",
    "in_proj_b.weight": "ssm_beta.weight", "in_proj_a.weight": "ssm_alpha.weight",
    "conv1d.weight": "ssm_conv1d.weight", "dt_bias": "ssm_dt.bias", "A_log": "ssm_a",
    "norm.weight": "ssm_norm.weight", "out_proj.weight": "ssm_out.weight", "in_proj_ba.weight": "ssm_ba.weight",
}  # fmt: skip


def _of_delta_net(part: str, tensor: np.ndarray, config: PretrainedConfig) -> dict[str, np.ndarray]:
    """Return a delta net's tensors in a file.

    The converter puts heads of values that share a head of keys (k0 k0 k1 k1) so far apart that head h has the
    keys h modulo their number (k0 k1 k0 k1); not in qwen3next, where it cuts a tensor that has, of each head of
    keys, queries, keys, values and gates.
    """
    if part == "in_proj_qkvz.weight":
        rows = tensor.reshape(config.linear_num_key_heads, -1, tensor.shape[1])
        size = config.linear_key_head_dim
        *mixed, gates = np.split(rows, [size, 2 * size, (rows.shape[1] + 2 * size) // 2], axis=1)
        mixed = [one.reshape(-1, tensor.shape[1]) for one in mixed]
        return {"attn_qkv.weight": np.concatenate(mixed), "attn_gate.weight": gates.reshape(-1, tensor.shape[1])}
    keys, heads = config.linear_num_key_heads, config.linear_num_value_heads
    first = 2 * keys * config.linear_key_head_dim
    if part == "A_log":
        tensor = -np.exp(tensor.astype(np.float64)).astype(np.float32)
    elif part == "conv1d.weight":
        tensor = tensor[:, 0]
    if config.model_type == "qwen3_next":
        pass
    elif part in ("in_proj_qkv.weight", "conv1d.weight"):
        tensor = np.concatenate((tensor[:first], tiled(tensor[first:], keys, heads)))
    elif part == "out_proj.weight":
        tensor = np.ascontiguousarray(tiled(tensor.T, keys, heads).T)
    elif part != "norm.weight":
        tensor = tiled(tensor, keys, heads)
    return {_DELTA_NAMES[part]: np.ascontiguousarray(tensor)}


_MAMBA_NAMES = {
    "in_proj.weight": "ssm_in.weight", "conv1d.weight": "ssm_conv1d.weight", "conv1d.bias": "ssm_conv1d.bias",
    "dt_bias": "ssm_dt.bias", "A_log": "ssm_a", "D": "ssm_d", "norm.weight": "ssm_norm.weight",
    "out_proj.weight": "ssm_out.weight",
}  # fmt: skip


def _of_mamba(part: str, tensor: np.ndarray, groups: int) -> tuple[str, np.ndarray]:
    """Return the name of a tensor of Mamba-2 in a file, and what the converter makes of it."""
    if part == "A_log":
        tensor = -np.exp(tensor.astype(np.float64)).astype(np.float32)
    if part in ("A_log", "D"):
        tensor = tensor[:, None]
    elif part == "conv1d.weight":
        tensor = tensor[:, 0]
    elif part == "norm.weight":
        tensor = tensor.reshape(groups, -1)
    return _MAMBA_NAMES[part], tensor


def tiled(values: np.ndarray, keys: int, heads: int) -> np.ndarray:
    """Put rows of heads (k0 k0 k1 k1) in the other order (k0 k1 k0 k1); with ``heads // keys`` keys, back."""
    parts = values.reshape(keys, heads // keys, -1, *values.shape[1:])
    return np.ascontiguousarray(parts.swapaxes(0, 1)).reshape(values.shape)


def _of_shared(tiny: Tiny, start: str, rest: str, tensor: np.ndarray) -> dict[str, np.ndarray]:
    """Return tensors of granite's shared expert, which is the unit of models without experts."""
    end = "_shexp.weight" if tiny.settings["num_local_experts"] else ".weight"
    if "output_linear" in rest:
        return {f"{start}ffn_down{end}": tensor}
    if tiny.architecture == "granite_swa":
        return {f"{start}ffn_up{end}": tensor}
    return {
        f"{start}ffn_{part}{end}": half for part, half in zip(("gate", "up"), np.split(tensor, 2), strict=True)
    }


def _beside(tensor: np.ndarray, heads: int) -> np.ndarray:
    """Lay the rows that turn together side by side, as the converter does for some families."""
    return tensor.reshape(heads, 2, -1, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)


def _factors(config: PretrainedConfig) -> dict[str, np.ndarray]:
    rope = getattr(config, "rope_parameters", {})
    if rope.get("full_attention", {}).get("rope_type") == "proportional":  # gemma4: only the first pairs turn
        half = config.per_layer_config[config.num_hidden_layers - 1].head_dim // 2
        return {"rope_freqs.weight": np.where(np.arange(half) < half // 4, 1, 1e30).astype(np.float32)}
    if rope.get("rope_type") == "longrope":
        return {
            f"rope_factors_{which}.weight": np.array(rope[f"{which}_factor"], np.float32)
            for which in ("long", "short")
        }
    if rope.get("rope_type") != "llama3":
        return {}
    size = config.hidden_size // config.num_attention_heads
    waves = 2 * np.pi * rope["rope_theta"] ** (np.arange(0, size, 2) / size)
    turns = rope["original_max_position_embeddings"] / waves
    smooth = (turns - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
    smooth = np.clip(smooth, 0, 1)
    return {"rope_freqs.weight": (1 / (smooth + (1 - smooth) / rope["factor"])).astype(np.float32)}


_IN_FLOATS = ("gate_inp", "conv.conv", "ssm_conv1d", "ssm_a", "ssm_d", "ssm_norm")


def write(
    path: Path, name: str, tensors: dict[str, np.ndarray], config: PretrainedConfig,
    kind: str | Callable[[str], str] = "F32", keys: dict[str, Any] | None = None,
    *, vocabulary: bool = False,
) -> Path:  # fmt: skip
    """Write a GGUF file; ``kind`` is the type of matrices, ``keys`` are added to what the file says.

    A ``vocabulary``, which llama.cpp needs and we do not, has `tiny_gguf.VOCAB` tokens.
    """
    tiny = TINY[name]
    writer = GGUFWriter(path, tiny.architecture)
    for key, value in (sizes_of(config) | tiny.keys | (keys or {})).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string, list: writer.add_array}
        if value is not None:
            add.get(type(value), writer.add_float32)(f"{tiny.architecture}.{key}", value)
    if vocabulary:
        write_vocabulary(writer, None)
    for tensor_name, tensor in tensors.items():
        chosen = fitting(kind if isinstance(kind, str) else kind(tensor_name), tensor.shape[-1])
        small = tensor.ndim == 1 or any(one in tensor_name for one in _IN_FLOATS)
        if tensor_name.endswith(".bias") or (small and chosen not in ("F16", "BF16")):
            chosen = "F32"
        _add(writer, tensor_name, tensor, chosen)
    return written(writer, path)


_USED = ("num_experts_per_tok", "moe_k", "top_k_experts")  # names of one number


def metadata_of(name: str, odd: dict[str, Any]) -> dict[str, Any]:
    """Return what a file says of a tiny model, but for ``odd`` numbers; None: the file leaves it out."""
    tiny = TINY[name]
    given = sizes_of(config_of(name)) | tiny.keys | odd
    said = {f"{tiny.architecture}.{key}": value for key, value in given.items() if value is not None}
    return said | {"general.architecture": tiny.architecture}


def sizes_of(config: PretrainedConfig) -> dict[str, Any]:
    config = config.get_text_config()
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = getattr(config, "rope_parameters", {})
    names = ("norm_eps", "layer_norm_epsilon", "rms_norm_eps")
    eps = float(next(getattr(config, name) for name in names if hasattr(config, name)))
    return {
        "vocab_size": config.vocab_size, "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size, "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size, "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads, "attention.key_length": head,
        "attention.value_length": head, "attention.layer_norm_rms_epsilon": eps,
        "rope.dimension_count": int(head * rope.get("partial_rotary_factor", 1)),
        "rope.freq_base": float(rope.get("rope_theta", 10000.0)),
        "expert_used_count": next((used for name in _USED if (used := getattr(config, name, None))), None),
        "expert_feed_forward_length": config.intermediate_size if config.model_type == "gpt_oss" else None,
    }  # fmt: skip


def fitting(kind: str, inputs: int) -> str:
    """Return the type, or one of smaller blocks where the inputs are no whole blocks, as llama.cpp does."""
    return "Q8_0" if kind in FORMATS and inputs % (GROUP * FORMATS[kind].groups) else kind


def raw(tensor: np.ndarray, kind: str) -> np.ndarray:
    """Return a tensor's bytes in a type of GGUF."""
    if kind in ("Q4_K", "Q6_K"):  # which gguf reads, but cannot write
        return simple_k(tensor, kind)
    if kind.startswith("IQ") or kind == "NVFP4":  # neither: other weights, which depend on these
        rows, inputs = prod(tensor.shape[:-1]), tensor.shape[-1]
        return small_rows(kind, rows, inputs, crc32(tensor.tobytes())).reshape(*tensor.shape[:-1], -1)
    return quants.quantize(tensor, GGMLQuantizationType[kind])


def simple_k(tensor: np.ndarray, kind: str) -> np.ndarray:
    """Quantise the plainest way: one scale per block of 256."""
    blocks = tensor.reshape(-1, 256)
    out = np.zeros((len(blocks), 144 if kind == "Q4_K" else 210), np.uint8)
    if kind == "Q4_K":
        least = blocks.min(1, keepdims=True)
        scale = (
            ((blocks.max(1, keepdims=True) - least) / 15 / 32).astype(np.float16),
            (-least / 32).astype(np.float16),
        )
        wide = [one.astype(np.float32) for one in scale]
        codes = np.clip(np.rint((blocks + 32 * wide[1]) / (32 * wide[0])), 0, 15).astype(np.uint8)
        out[:, 0:2], out[:, 2:4] = scale[0].view(np.uint8), scale[1].view(np.uint8)
        out[:, 4:12] = 0xA0  # all sixteen factors are 32: the upper two of their six bits lie in front
        halves = codes.reshape(-1, 4, 2, 32)
        out[:, 16:] = (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(-1, 128)
    else:
        scale = (np.abs(blocks).max(1, keepdims=True) / 31 / 32).astype(np.float16)
        codes = np.clip(np.rint(blocks / (32 * scale.astype(np.float32))) + 32, 0, 63).astype(np.uint8)
        parts = codes.reshape(-1, 2, 4, 32)
        low, high = parts & 15, parts >> 4
        out[:, :128] = np.stack((low[:, :, 0] | low[:, :, 2] << 4, low[:, :, 1] | low[:, :, 3] << 4), 2).reshape(
            -1, 128
        )
        out[:, 128:192] = (high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6).reshape(
            -1, 64
        )
        out[:, 192:208], out[:, 208:210] = 32, scale.view(np.uint8)
    return out.reshape(*tensor.shape[:-1], -1)


def _add(writer: GGUFWriter, name: str, tensor: np.ndarray, kind: str) -> None:
    if kind == "F32":
        writer.add_tensor(name, np.ascontiguousarray(tensor))
    elif kind == "F16":
        writer.add_tensor(name, tensor.astype(np.float16))
    else:
        writer.add_tensor(name, raw(tensor, kind), raw_dtype=GGMLQuantizationType[kind])


def rounded(tensor: np.ndarray, kind: str) -> np.ndarray:
    """Return the weights that a file of this type holds, as float32."""
    if kind == "F32":
        return tensor
    if kind == "F16":
        return tensor.astype(np.float16).astype(np.float32)
    if kind == "BF16":
        return quants.dequantize(raw(tensor, kind), GGMLQuantizationType.BF16).reshape(tensor.shape)
    bytes_ = raw(tensor, kind)
    flat = dequantised(read_blocks(kind, bytes_.reshape(-1, bytes_.shape[-1])), FORMATS[kind])
    return flat.reshape(tensor.shape)
