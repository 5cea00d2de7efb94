"""Tiny random GGUF files for llama.cpp: the architecture and a tokenizer of bytes, no weights from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType, quants

WIDTH = 64  # quantised weights come in blocks of 32
LAYERS = 2
HEADS, KV_HEADS = 4, 2
HEAD = WIDTH // HEADS
FEED = 128
EXPERTS = 4
WINDOW = 8
LONGEST = 4096  # tokens
STATE, INNER, CONVOLVED = 16, 2 * WIDTH, 4  # of mamba; lfm2 convolves one less
RANK, SCANS = 32, 8  # of mamba's and jamba's steps; heads of mamba2
FULL = 2 * HEAD  # of gemma4: size of heads in layers that see the whole text
OWN = 16 * 2  # of gemma4: a token's own numbers for each layer
GEMMA4 = (False, True, False, True)  # which layers see the whole text; the last two share keys
TURNING, RANK_OF_LATENTS = 16, 32  # of deepseek2: numbers that rotate; others of a query or value, too
DELTA, DELTA_KEYS, DELTA_HEADS = 128, 1, 3  # size and heads of qwen35's states
DELTA_NETS = ("qwen35", "qwen35moe", "qwen3next")  # all but the first have experts
SCANNED = ("mamba2", "granitehybrid", "nemotron_h", "falcon-h1")  # with Mamba-2, the last one beside attention
# Of which the first layer keeps a state, the second one keys and values.
HYBRID = ("lfm2", "jamba", "granitehybrid", *DELTA_NETS)
NEMOTRON = ("mamba2", "attention", "unit")  # what layers are: one of these alone

SPECIAL = ("<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>")
END = SPECIAL.index("</s>")
VOCAB = 320  # special tokens, the 256 bytes, pieces of text
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}<|assistant|>"

EXACT = ("Q8_0", "Q4_0", "Q4_1")
"""Types for which llama.cpp's products do not depend on the number of rows."""
TYPES = ("F32", "F16", *EXACT)


def written(writer: GGUFWriter, path: Path) -> Path:
    """Write a file with all that was added to its writer; returns its path."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_gguf(
    path: Path,
    *,
    family: str = "llama",
    kind: str = "F32",
    seed: int = 0,
    vocabulary: bool = True,
    template: str | None = TEMPLATE,
    more: Sequence[tuple[str, Any]] = (),
) -> Path:
    """Write a model of ``family``: llama, gemma3, gemma4, lfm2, gpt-oss, deepseek2, mamba, jamba, or of
    `SCANNED` or `DELTA_NETS`.

    ``kind`` is the type of matrices, ``more`` further metadata: whole numbers, others, truth values and texts.
    """
    writer = GGUFWriter(path, family)
    writer.add_file_type(LlamaFileType["ALL_F32" if kind == "F32" else f"MOSTLY_{kind}"])
    _write_sizes(writer, family)
    add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    for key, value in more:
        (writer.add_int32 if value == -1 else add[type(value)])(key, value)
    if vocabulary:
        write_vocabulary(writer, template)
    else:
        writer.add_tokenizer_model("no_vocab")
    rng = np.random.default_rng(seed)
    for name, tensor in _tensors(family, rng).items():
        _write_tensor(writer, name, tensor, GGMLQuantizationType[kind])
    return written(writer, path)


def _write_sizes(writer: GGUFWriter, family: str) -> None:
    writer.add_vocab_size(VOCAB)
    writer.add_context_length(LONGEST)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count({"gemma4": len(GEMMA4), "nemotron_h": len(NEMOTRON)}.get(family, LAYERS))
    writer.add_layer_norm_rms_eps(1e-5)
    if family in ("mamba", "jamba", *SCANNED):
        writer.add_ssm_conv_kernel(CONVOLVED)
        writer.add_ssm_inner_size(INNER)
        writer.add_ssm_state_size(STATE)
        writer.add_ssm_time_step_rank(SCANS if family in SCANNED else RANK)
    if family in SCANNED:
        writer.add_ssm_group_count(1)
    if family in ("mamba", "mamba2"):
        writer.add_feed_forward_length(0)
        writer.add_head_count(0)
        return
    is_single = family == "nemotron_h"
    writer.add_feed_forward_length([FEED * (kind == "unit") for kind in NEMOTRON] if is_single else FEED)
    writer.add_head_count(HEADS)
    if family == "deepseek2":
        _write_deepseek2(writer)
        return
    if is_single:
        writer.add_head_count_kv([KV_HEADS * (kind == "attention") for kind in NEMOTRON])
        writer.add_layer_norm_eps(1e-5)
    else:
        writer.add_head_count_kv([0, KV_HEADS] if family in HYBRID else KV_HEADS)
    size = FULL if family == "gemma4" else HEAD
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_rope_dimension_count(size)
    if family in ("gemma3", "gpt-oss"):
        writer.add_sliding_window(WINDOW)
    if family in ("gpt-oss", *DELTA_NETS[1:]):
        writer.add_expert_count(EXPERTS)
        writer.add_expert_used_count(2)
        writer.add_expert_feed_forward_length(FEED)
    if family == "gemma4":
        _write_gemma4(writer)
    if family == "lfm2":
        writer.add_shortconv_l_cache(CONVOLVED - 1)
    if family in DELTA_NETS[1:]:
        writer.add_expert_shared_feed_forward_length(FEED)
    if family in DELTA_NETS:
        writer.add_full_attention_interval(LAYERS)
        writer.add_rope_dimension_sections([3, 3, 2, 0])
        writer.add_ssm_conv_kernel(CONVOLVED)
        writer.add_ssm_state_size(DELTA)
        writer.add_ssm_group_count(DELTA_KEYS)
        writer.add_ssm_time_step_rank(DELTA_HEADS)
        writer.add_ssm_inner_size(DELTA_HEADS * DELTA)


def _write_deepseek2(writer: GGUFWriter) -> None:
    both = RANK_OF_LATENTS + TURNING
    for key, value in {
        "attention.head_count_kv": 1, "attention.key_length": both, "attention.value_length": RANK_OF_LATENTS,
        "attention.key_length_mla": both, "attention.value_length_mla": RANK_OF_LATENTS,
        "attention.q_lora_rank": RANK_OF_LATENTS, "attention.kv_lora_rank": RANK_OF_LATENTS,
        "rope.dimension_count": TURNING, "leading_dense_block_count": 1, "expert_count": EXPERTS,
        "expert_used_count": 2, "expert_feed_forward_length": FEED, "expert_shared_count": 1,
        "expert_gating_func": 2, "expert_group_count": 2, "expert_group_used_count": 1,
    }.items():  # fmt: skip
        writer.add_uint32(f"deepseek2.{key}", value)
    writer.add_expert_weights_norm(True)
    writer.add_expert_weights_scale(1.5)


def _write_gemma4(writer: GGUFWriter) -> None:
    writer.add_array("gemma4.attention.sliding_window_pattern", [not full for full in GEMMA4])
    for key, value in {
        "attention.sliding_window": WINDOW, "attention.shared_kv_layers": 2, "attention.key_length_swa": HEAD,
        "attention.value_length_swa": HEAD, "rope.dimension_count_swa": HEAD,
        "embedding_length_per_layer_input": OWN,
    }.items():  # fmt: skip
        writer.add_uint32(f"gemma4.{key}", value)
    writer.add_array("tokenizer.ggml.suppress_tokens", [7, 300])


def write_vocabulary(writer: GGUFWriter, template: str | None) -> None:
    """Pieces of SentencePiece, with a token for each byte."""
    tokens = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁a", "a", "b", "ab"]
    tokens += [f"▁w{number}" for number in range(VOCAB - len(tokens))]
    kinds = [TokenType.UNKNOWN, *[TokenType.CONTROL] * (len(SPECIAL) - 1), *[TokenType.BYTE] * 256]
    kinds += [TokenType.NORMAL] * (VOCAB - len(kinds))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(number) for number in range(VOCAB)])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(SPECIAL.index("<s>"))
    writer.add_eos_token_id(END)
    writer.add_add_bos_token(True)
    if template is not None:
        writer.add_chat_template(template)


def _tensors(family: str, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Weights so large that scores lie far apart, with attention that does not multiply what it rounds."""

    def matrix(rows: int, columns: int) -> np.ndarray[Any, Any]:
        return rng.normal(0, 2 / np.sqrt(columns), (rows, columns)).astype(np.float32)

    def norm(width: int = WIDTH) -> np.ndarray[Any, Any]:
        return rng.uniform(0.5, 1.5, width).astype(np.float32)

    last = "token_embd_norm" if family == "lfm2" else "output_norm"
    found = {"token_embd": matrix(VOCAB, WIDTH), last: norm(), "output": matrix(VOCAB, WIDTH)}
    if family == "gemma4":
        found |= _gemma4(matrix, norm)
    if family == "nemotron_h":
        found |= _nemotron(matrix, norm, rng)
    for number in range(0 if family in ("gemma4", "nemotron_h") else LAYERS):
        states = {
            "lfm2": "convolution", "jamba": "scan", "granitehybrid": "scan2", **dict.fromkeys(DELTA_NETS, "delta")
        }  # fmt: skip
        kind = states.get(family, family) if not number else family
        layer = _layer("qwen35" if kind in DELTA_NETS else kind, matrix, norm, rng)
        if family == "deepseek2" and number:
            layer = _with_experts(layer, matrix) | {"exp_probs_b.bias": norm(EXPERTS) / 4}
            del layer["ffn_gate_inp_shexp"]
        if family in DELTA_NETS[1:]:
            layer = _with_experts(layer, matrix)
        found |= {f"blk.{number}.{name}": tensor for name, tensor in layer.items()}
    bare = ("ssm_a", "ssm_d", *["ffn_norm"] * (family == "falcon-h1"))
    return {name if name.endswith(bare) else _weight(name): tensor for name, tensor in found.items()}


def _gemma4(matrix: Any, norm: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Layers whose full attention takes keys for values, and the last two of which share keys, and are wider."""
    found = {
        "rope_freqs": np.array([1.0] * 4 + [1e30] * (FULL // 2 - 4), np.float32),
        "per_layer_token_embd": matrix(VOCAB, len(GEMMA4) * OWN),
        "per_layer_model_proj": matrix(len(GEMMA4) * OWN, WIDTH), "per_layer_proj_norm": norm(OWN),
    }  # fmt: skip
    for number, full in enumerate(GEMMA4):
        size, shares = FULL if full else HEAD, number >= 2
        layer = {
            name: norm() for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm")
        }
        layer |= {
            "attn_q": matrix(HEADS * size, WIDTH), "attn_output": matrix(WIDTH, HEADS * size),
            "attn_q_norm": norm(size) / 2, "ffn_gate": matrix(FEED, WIDTH), "ffn_up": matrix(FEED, WIDTH),
            "ffn_down": matrix(WIDTH, FEED), "inp_gate": matrix(OWN, WIDTH), "proj": matrix(WIDTH, OWN),
            "layer_output_scale": norm(1),
        }  # fmt: skip
        if not shares:
            layer |= {"attn_k": matrix(KV_HEADS * size, WIDTH), "attn_k_norm": norm(size) / 2}
        if not shares and not full:
            layer["attn_v"] = matrix(KV_HEADS * size, WIDTH)
        found |= {f"blk.{number}.{name}": tensor for name, tensor in layer.items()}
    return found


def _nemotron(matrix: Any, norm: Any, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    attention = {name: one for name, one in _layer("llama", matrix, norm, rng).items() if "attn" in name}
    unit = {"attn_norm": norm(), "ffn_up": matrix(FEED, WIDTH), "ffn_down": matrix(WIDTH, FEED) / 2}
    layers = {"mamba2": _scan("mamba2", matrix, norm, rng), "attention": attention, "unit": unit}
    return {
        f"blk.{number}.{name}": one for number, kind in enumerate(NEMOTRON) for name, one in layers[kind].items()
    }


def _weight(name: str) -> str:
    return name if name.endswith(".bias") else f"{name}.weight"


def _layer(family: str, matrix: Any, norm: Any, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    if family.startswith("mamba"):
        return _scan(family, matrix, norm, rng)
    feed = {
        "post_attention_norm" if family in ("delta", "qwen35") else "ffn_norm": norm(),
        "ffn_gate": matrix(FEED, WIDTH),
        "ffn_up": matrix(FEED, WIDTH),
        "ffn_down": matrix(WIDTH, FEED),
    }
    if family == "scan":
        norms = {"ssm_dt_norm": norm(RANK), "ssm_b_norm": norm(STATE), "ssm_c_norm": norm(STATE)}
        return feed | _scan("mamba", matrix, norm, rng) | norms
    if family == "scan2":
        return feed | _scan("mamba2", matrix, norm, rng)
    if family == "convolution":
        return feed | {
            "attn_norm": norm(),
            "shortconv.conv": rng.normal(0, 0.5, (WIDTH, CONVOLVED - 1)).astype(np.float32),
            "shortconv.in_proj": matrix(3 * WIDTH, WIDTH),
            "shortconv.out_proj": matrix(WIDTH, WIDTH),
        }
    if family == "delta":
        return feed | _delta(matrix, norm, rng)
    if family == "deepseek2":
        return feed | _latent(matrix, norm)
    layer = feed | {
        "attn_norm": norm(),
        "attn_q": matrix(WIDTH * (2 if family == "qwen35" else 1), WIDTH) / 2,
        "attn_k": matrix(KV_HEADS * HEAD, WIDTH) / 2,
        "attn_v": matrix(KV_HEADS * HEAD, WIDTH),
        "attn_output": matrix(WIDTH, WIDTH),
    }
    if family in ("gemma3", "lfm2", "qwen35"):
        layer |= {name: norm(HEAD) for name in ("attn_q_norm", "attn_k_norm")}
    if family == "gemma3":
        layer |= {name: norm() for name in ("post_attention_norm", "post_ffw_norm")}
    if family == "falcon-h1":
        layer |= {name: one for name, one in _scan("mamba2", matrix, norm, rng).items() if name != "ssm_norm"}
    if family == "gpt-oss":
        layer = {name: tensor for name, tensor in layer.items() if name not in feed} | _of_gpt_oss(
            matrix, norm, rng
        )
    return layer


def _delta(matrix: Any, norm: Any, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """A gated delta net."""
    values = DELTA_HEADS * DELTA
    channels = 2 * DELTA_KEYS * DELTA + values
    return {
        "attn_norm": norm(), "attn_qkv": matrix(channels, WIDTH), "attn_gate": matrix(values, WIDTH),
        "ssm_alpha": matrix(DELTA_HEADS, WIDTH), "ssm_beta": matrix(DELTA_HEADS, WIDTH),
        "ssm_conv1d": rng.normal(0, 0.5, (channels, CONVOLVED)).astype(np.float32),
        "ssm_dt.bias": norm(DELTA_HEADS) - 1, "ssm_a": -norm(DELTA_HEADS) / 8, "ssm_norm": norm(DELTA),
        "ssm_out": matrix(WIDTH, values),
    }  # fmt: skip


def _latent(matrix: Any, norm: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Latent attention; scores are small, as those of trained models are."""
    rank, outputs = RANK_OF_LATENTS, (RANK_OF_LATENTS + TURNING) * HEADS
    return {
        "attn_norm": norm(), "attn_q_a": matrix(rank, WIDTH), "attn_q_a_norm": norm(rank) / 2,
        "attn_q_b": matrix(outputs, rank) / 2, "attn_kv_a_mqa": matrix(rank + TURNING, WIDTH) / 2,
        "attn_kv_a_norm": norm(rank), "attn_output": matrix(WIDTH, HEADS * rank),
        **{f"attn_{name}_b": np.stack([matrix(rank, rank) for _ in range(HEADS)]) for name in "kv"},
    }  # fmt: skip


def _with_experts(layer: dict[str, np.ndarray[Any, Any]], matrix: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return a layer whose feed-forward unit is the expert that all tokens have, beside others."""
    names = "ffn_gate", "ffn_up", "ffn_down"
    found = {f"{name}_shexp" if name in names else name: tensor for name, tensor in layer.items()}
    found |= {f"{name}_exps": np.stack([matrix(*layer[name].shape) for _ in range(EXPERTS)]) for name in names}
    return found | {"ffn_gate_inp": matrix(EXPERTS, WIDTH), "ffn_gate_inp_shexp": matrix(1, WIDTH)[0]}


def _of_gpt_oss(matrix: Any, norm: Any, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Sinks, biases and experts of a layer."""
    layer = {
        "post_attention_norm": norm(), "attn_sinks": norm(HEADS), "ffn_gate_inp": matrix(EXPERTS, WIDTH),
        "ffn_gate_inp.bias": norm(EXPERTS),
    }  # fmt: skip
    sizes = {"attn_q": WIDTH, "attn_k": KV_HEADS * HEAD, "attn_v": KV_HEADS * HEAD, "attn_output": WIDTH}
    layer |= {f"{name}.bias": rng.normal(0, 0.5, size).astype(np.float32) for name, size in sizes.items()}
    for part, outputs, inputs in (("gate", FEED, WIDTH), ("up", FEED, WIDTH), ("down", WIDTH, FEED)):
        layer[f"ffn_{part}_exps"] = np.stack([2 * matrix(outputs, inputs) for _ in range(EXPERTS)])
        layer[f"ffn_{part}_exps.bias"] = rng.normal(0, 0.5, (EXPERTS, outputs)).astype(np.float32)
    return layer


def _scan(family: str, matrix: Any, norm: Any, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """A layer of mamba or mamba2."""
    first = family == "mamba"
    columns = INNER if first else INNER + 2 * STATE  # that are convolved
    layer = {
        "attn_norm": norm(),
        "ssm_in": matrix(2 * INNER if first else INNER + columns + SCANS, WIDTH),
        "ssm_conv1d": rng.normal(0, 0.5, (columns, CONVOLVED)).astype(np.float32),
        "ssm_conv1d.bias": norm(columns),
        "ssm_dt.bias": norm(INNER if first else SCANS) - 2,
        "ssm_a": -rng.uniform(0.5, 2, (INNER, STATE) if first else (SCANS, 1)).astype(np.float32),
        "ssm_d": norm(INNER) if first else norm(SCANS)[:, None],
        "ssm_out": matrix(WIDTH, INNER),
    }
    if first:
        return layer | {"ssm_x": matrix(RANK + 2 * STATE, INNER) / 4, "ssm_dt": matrix(INNER, RANK) / 4}
    return layer | {"ssm_norm": norm(INNER)[None]}


def _write_tensor(writer: GGUFWriter, name: str, tensor: Any, kind: GGMLQuantizationType) -> None:
    small = name.split(".")[-2]
    if tensor.ndim == 1 or "conv" in small or "gate_inp" in small or len(tensor) == 1 or tensor.shape[-1] % 32:
        kind = GGMLQuantizationType.F32
    if name.endswith(".bias"):
        kind = GGMLQuantizationType.F32
    if kind == GGMLQuantizationType.F32:
        writer.add_tensor(name, tensor)
    elif kind == GGMLQuantizationType.F16:
        writer.add_tensor(name, tensor.astype(np.float16))
    else:
        writer.add_tensor(name, quants.quantize(tensor, kind), raw_dtype=kind)
