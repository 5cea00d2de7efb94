"""Tiny random models of the causal types that transformers registers: the architecture, no weights from anywhere.

The registry itself is walked, so that a type which comes with a new version is tried without a change here.
Sizes go by the names that configurations have for them (`SIZES`); what a type needs beyond that is in `TYPES`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, GenerationConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from draftwood.errors import UnknownNameError, UnsupportedModelError

VOCAB = 64
WINDOW = 8
LAYERS = 4
HIDDEN = 64
HEADS = 4
LARGEST = 3_000_000
"""Parameters; a type with more has a size of a name that is not in `SIZES`."""


def _all(size: Any, *names: str) -> dict[str, Any]:
    return dict.fromkeys(names, size)


SIZES: dict[str, Any] = {
    **_all(VOCAB, "vocab_size", "vocab_size_per_layer_input"),
    **_all(None, "eos_token_id", "bos_token_id", "pad_token_id"),
    **_all(0.4, "initializer_range", "init_std"),  # large, so that random texts are far from ties
    **_all(False, "tie_word_embeddings"),  # tied, a random model repeats its input
    **_all(True, "is_decoder", "use_sliding_window"),
    **_all(HIDDEN, "hidden_size", "n_embd", "d_model", "emb_dim", "embedding_size"),
    **_all(LAYERS, "num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers"),
    **_all(HEADS, "num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    **_all(HEADS, "decoder_attention_heads", "encoder_attention_heads"),
    **_all(2, "num_key_value_heads", "num_kv_heads"),
    **_all(HIDDEN // HEADS, "head_dim", "query_pre_attn_scalar", "attention_head_size"),
    **_all(64, "intermediate_size", "ffn_dim", "decoder_ffn_dim", "encoder_ffn_dim", "dff", "feed_forward_size"),
    **_all(32, "moe_intermediate_size", "shared_expert_intermediate_size", "shared_experts_intermediate_size"),
    **_all(32, "shared_intermediate_size", "expert_ffn_hidden_size"),
    **_all(4, "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    **_all(2, "num_experts_per_tok", "moe_topk", "moe_k", "zero_expert_num"),
    **_all(1, "n_shared_experts", "topk_group", "first_k_dense_replace", "num_dense_layers", "max_window_layers"),
    **_all(2, "n_group", "n_groups", "mamba_n_groups", "mamba_ngroups", "n_mamba_heads", "num_kv_shared_layers"),
    **_all(16, "kv_lora_rank", "q_lora_rank", "o_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    **_all(16, "hidden_size_per_layer_input", "linear_key_head_dim", "linear_value_head_dim", "linear_head_dim"),
    **_all(16, "mamba_d_head", "mamba_head_dim", "mamba_chunk_size", "chunk_size", "index_topk"),
    **_all(16, "index_n_heads"),  # fewer, and many keys tie at a score of zero
    **_all(32, "index_head_dim"),
    **_all(2, "linear_num_key_heads"),
    **_all(HEADS, "linear_num_value_heads", "linear_num_heads", "mamba_dt_rank", "time_step_rank"),
    **_all(8, "mamba_d_state", "state_size", "ssm_state_size", "mamba_n_heads", "mamba_num_heads"),
    **_all(8, "laurel_rank", "rotary_dim"),
    **_all(2 * HIDDEN, "mamba_d_ssm"),
    **_all(WINDOW, "sliding_window", "sliding_window_size", "window_size", "attention_window_size"),
    **_all(WINDOW, "attention_chunk_size"),
    **_all(2 * WINDOW, "local_attention"),  # halved by the type that has it
    **_all(512, "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_target_positions"),
    **_all(512, "context_length"),
}
"""Setting of a configuration -> its size here; used where the configuration has it."""

_EVERY_SECOND = ["sliding_attention", "full_attention"] * 2
_CALM = {"initializer_range": 0.1}  # otherwise rounding grows from layer to layer, or a text is constant
_CALM_STD = {"init_std": 0.1}
_WILD = {"initializer_range": 1.0}  # otherwise the text is constant
_PADDED = _CALM | {"pad_token_id": 0}  # positions count from it
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}

TYPES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        ("bert", "bert-generation", "big_bird", "electra", "ernie", "megatron-bert", "rembert"), _CALM
    ),
    **dict.fromkeys(("roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "camembert"), _PADDED),
    **dict.fromkeys(("hrm_text", "nemotron_h", "zamba2"), _CALM),
    **dict.fromkeys(("flex_olmo", "llama4_text", "persimmon"), _WILD),
    **dict.fromkeys(("blenderbot-small", "marian", "plbart", "mvp", "bart"), _CALM_STD),
    "bamba": {"attn_layer_indices": [1, 3]},
    "cohere_compass_text": {
        "layer_types": _EVERY_SECOND,
        "rope_parameters": {"full_attention": _ROPE | {"mrope_section": [2, 3, 3]}, "sliding_attention": None},
    },
    "cpmant": {"dim_ff": 64, "dim_head": 16, "prompt_length": 4},
    "cwm": {"bos_token_id": 0},
    "data2vec-text": _PADDED,
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 64},
    },
    "deepseek_v4": {"num_key_value_heads": 1},
    "dots3_note_text": _all(HEADS, "num_key_value_heads", "swa_num_attention_heads", "swa_num_key_value_heads")
    | _all(16, "swa_q_lora_rank", "swa_kv_lora_rank", "swa_qk_nope_head_dim", "swa_v_head_dim")
    | {"swa_head_dim": 32},
    "gemma3n_text": {
        "layer_types": _EVERY_SECOND,
        "intermediate_size": [64] * LAYERS,
        "activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0],
    },
    "gemma4_text": {"global_head_dim": 32},
    "gemma4_unified_text": {"global_head_dim": 32, "num_kv_shared_layers": 0},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "longcat_flash": {"ffn_hidden_size": 64},
    "mamba2": {"num_heads": 8},
    "modernbert-decoder": _all(0, "pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"),
    "prophetnet": {"pad_token_id": 0},
    "qwen4_exp_text": {
        "layer_types": ["linear_attention", "indexed_attention"] * 2,
        "indexer_n_heads": 16,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 16,
        "indexer_compress_ratio": 4,
        "hc_count": 2,
        "hc_lowrank": 8,
        "ple_layer_ids": [1],
        "heads_per_ngram": 2,
        "ngram_vocab_size_base": 64,
        "split_ngram_parts": 1,
        "eos_token_id": 0,
    },
    "roc_bert": _CALM
    | {"enable_pronunciation": False, "enable_shape": False}
    | _all(VOCAB, "pronunciation_vocab_size", "shape_vocab_size"),
    "roformer": _WILD,
    "xmod": _PADDED | {"default_language": "en_XX"},
    "zaya": {"num_experts_per_tok": 1},
}
"""Model type -> settings that it needs beside or instead of `SIZES`."""

WRITERS = {"gemma3": "gemma3_text", "gemma4": "gemma4_text", "got_ocr2": "qwen2"}
"""Types that read pictures too -> the type of the part that writes."""

_PICTURES = {
    **_all(32, "hidden_size", "intermediate_size"),
    **_all(2, "num_attention_heads", "num_key_value_heads"),
    **_all(16, "head_dim", "global_head_dim"),
    **_all(1, "num_hidden_layers"),
    **_all(14, "patch_size"),
    **_all(28, "image_size"),
}

_LOADED_AS = "is loaded as {}, the part of it that writes"
_NOT_ALONE = "reads pictures or sound, and no small sizes are given here for the parts that do"
_FOR_ANOTHER = "drafts for another model and reads that one's hidden states"
_SOUND = "writes sound, in several streams at once"

LEFT_OUT: dict[str, str] = {
    **{
        kind: _LOADED_AS.format(part)
        for kind, part in {
            "dots3_note": "dots3_note_text",
            "emu3": "a type like llama",
            "llama4": "llama4_text",
            "mllama": "a type like llama with cross-attention",
            "qwen3_5": "qwen3_5_text",
            "qwen3_5_moe": "qwen3_5_moe_text",
            "qwen4_exp": "qwen4_exp_text",
        }.items()
    },
    **dict.fromkeys(("fuyu", "gemma3n", "gemma4_unified", "git"), _NOT_ALONE),
    **dict.fromkeys(("moss_transcribe_diarize", "phi4_multimodal"), _NOT_ALONE),
    **dict.fromkeys(("gemma4_assistant", "gemma4_unified_assistant"), _FOR_ANOTHER),
    **dict.fromkeys(("musicgen", "musicgen_melody"), _SOUND),
    "blt": "reads bytes through a model of its own that cuts them into patches",
    "reformer": "keeps buckets of hashes, and no cache that grows by tokens",
    "xlm": "keeps a cache of its own kind (`cache=`)",
    "xlstm": "keeps states of its own kind (`cache_params=`, no positions)",
}
"""Registered types that `tiny` does not build, each with the reason."""


def causal_types() -> list[str]:
    """Every type that transformers registers for causal language models and `tiny` builds, in order of names."""
    return sorted(set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - set(LEFT_OUT))


def tiny(model_type: str, seed: int = 0, **overrides: Any) -> Any:
    """Make a small model of this type with random weights, in float32 and eval mode.

    It has a vocabulary of 64, windows of 8 where the type has windows, every kind of layer that the type has, and
    no end of text. Takes some tens of milliseconds.

    Parameters
    ----------
    model_type
        As in the model's configuration: ``"llama"``.
    seed
        Of the weights. The global random state of torch is left as it was.
    overrides
        Settings of the configuration.

    Raises
    ------
    UnknownNameError
        If transformers registers no such type.
    UnsupportedModelError
        For a type that cannot be made small (see `LEFT_OUT`), with the reason.
    """
    if model_type in LEFT_OUT:
        raise UnsupportedModelError(f"there is no tiny {model_type}: it {LEFT_OUT[model_type]}")
    if model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise UnknownNameError("model type", model_type, causal_types())
    kind = CONFIG_MAPPING[model_type]
    config = kind(**_settings(model_type) | overrides)
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING[kind]
    with torch.device("meta"):  # nothing is allocated
        parameters = sum(p.numel() for p in model_class(config).parameters())
    if parameters > LARGEST:
        raise UnsupportedModelError(
            f"a tiny {model_type} would have {parameters:,} parameters: give its sizes in TYPES, "
            "or the reason for leaving it out in LEFT_OUT"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(config).float().eval()
    model.generation_config = GenerationConfig()  # the type's own ends the text or forbids tokens
    return model


def _settings(model_type: str) -> dict[str, Any]:
    kind = CONFIG_MAPPING[model_type]
    if model_type in WRITERS:
        return _with_pictures(kind, WRITERS[model_type])
    known = inspect.signature(kind.__init__).parameters
    found = {name: size for name, size in SIZES.items() if name in known}
    if "kv_lora_rank" in known:  # latent attention: keys and values of all heads come from one vector
        found["num_key_value_heads"] = HEADS
    for name in ("layer_types", "mlp_layer_types", "layers_block_type"):
        usual = getattr(kind(), name, None) if name in known else None
        if usual and len(set(usual)) > 1:
            found[name] = _alternating(usual)
    return found | TYPES.get(model_type, {})


def _with_pictures(kind: Any, writer: str) -> dict[str, Any]:
    marks = [name for name in inspect.signature(kind.__init__).parameters if "token_i" in name]
    text = _settings(writer) | {"pad_token_id": 0}
    return {"text_config": text, "vision_config": _PICTURES, "tie_word_embeddings": False} | _all(
        VOCAB - 1, *marks
    )


def _alternating(kinds: Iterable[str]) -> list[str]:
    """Every kind that occurs, in turn."""
    distinct = list(dict.fromkeys(kinds))
    return [distinct[i % len(distinct)] for i in range(max(LAYERS, len(distinct)))]
