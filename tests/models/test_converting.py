"""A tiny GGUF file becomes an ordinary transformers folder with exactly its values."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from tests.engines.tiny_gguf import written
from transformers import AutoTokenizer

from draftwood.local.catalogue import CATALOGUE
from draftwood.models.convert import STEPS, _read_weights, convert
from draftwood.models.load import load

WIDTH, HEADS, WORDS = 64, 2, 300
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"


def write_tokenizer(writer: gguf.GGUFWriter) -> None:
    """Three special tokens, the 256 bytes as GPT-2 spells them, and a pair of spaces."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = [*special, *bytes_to_unicode().values(), "ĠĠ"]
    tokens += [f"<unused{number}>" for number in range(WORDS - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(special) + [1] * (WORDS - len(special)))
    writer.add_token_merges(["Ġ Ġ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)


def write_gguf(path: Path) -> dict[str, np.ndarray]:
    """Write a Llama of one layer; returns the values that a reader must see."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(WORDS)
    write_tokenizer(writer)
    noise = np.random.default_rng(0)
    block = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
    values = {}
    for name in ["token_embd", *(f"blk.0.{part}" for part in block)]:
        rows = WORDS if name == "token_embd" else WIDTH
        raw = gguf.quantize(noise.normal(size=(rows, WIDTH)).astype(np.float32), gguf.GGMLQuantizationType.Q4_1)
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
        values[name] = gguf.dequantize(raw, gguf.GGMLQuantizationType.Q4_1)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        values[name] = noise.normal(size=WIDTH).astype(np.float32)
        writer.add_tensor(f"{name}.weight", values[name])
    written(writer, path)
    return values


@pytest.fixture(scope="module")
def converted(tmp_path_factory) -> tuple[Path, dict[str, np.ndarray]]:
    folder = tmp_path_factory.mktemp("converted")
    values = write_gguf(folder / "tiny.gguf")
    steps: list[int] = []
    convert(replace(CATALOGUE["smollm2"], gguf="tiny.gguf"), folder, steps.append)
    assert steps == list(range(1, STEPS + 1))
    return folder, values


def test_the_values_are_those_of_the_gguf_file(converted):
    folder, values = converted
    model, _ = load(folder, device="cpu")
    layer = model.model.layers[0]
    pairs = {
        "token_embd": model.model.embed_tokens,
        "blk.0.attn_v": layer.self_attn.v_proj,
        "blk.0.attn_output": layer.self_attn.o_proj,
        "blk.0.ffn_gate": layer.mlp.gate_proj,
        "blk.0.ffn_up": layer.mlp.up_proj,
        "blk.0.ffn_down": layer.mlp.down_proj,
        "blk.0.attn_norm": layer.input_layernorm,
        "blk.0.ffn_norm": layer.post_attention_layernorm,
        "output_norm": model.model.norm,
    }
    for name, module in pairs.items():
        assert torch.equal(module.weight, torch.from_numpy(values[name])), name
    for name, module in (("attn_q", layer.self_attn.q_proj), ("attn_k", layer.self_attn.k_proj)):
        # GGUF keeps the two halves of each head interleaved.
        halves = torch.from_numpy(values[f"blk.0.{name}"]).view(HEADS, WIDTH // HEADS // 2, 2, WIDTH)
        assert torch.equal(module.weight, halves.transpose(1, 2).reshape(WIDTH, WIDTH)), name


def test_the_folder_is_an_ordinary_one(converted):
    folder, _ = converted
    model, tokenizer = load(folder, device="cpu")
    assert not hasattr(model.config, "quantization_config")
    assert model.generation_config.eos_token_id == 2
    assert tokenizer.eos_token == "<|im_end|>"
    said = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert said.endswith("<|im_end|>")
    assert (folder / "model.safetensors").stat().st_mode == (folder / "config.json").stat().st_mode


def test_digits_are_parted_first_as_the_file_asks(converted):
    folder, _ = converted
    pair = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids("ĠĠ")
    ids = load(folder, device="cpu")[1]("  7")["input_ids"]
    assert ids[0] == pair
    assert len(ids) == 2


def test_what_transformers_said_is_shown_where_it_fails(converted, monkeypatch, capsys):
    def failing(*_, **__):
        print("tensor 7 is of an unknown kind", file=sys.stderr)
        raise RuntimeError("odd")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", failing)
    with pytest.raises(RuntimeError, match="odd"):
        _read_weights(converted[0], "tiny.gguf")
    assert capsys.readouterr().err == "tensor 7 is of an unknown kind\n"
