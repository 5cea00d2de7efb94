"""Write a GGUF file of random weights in the shape of a model that people run: its passes take as long.

    python benchmarks/shapes.py qwen3.5-4b 4b.gguf

Types are those of files called Q4_K_M, experts of gpt-oss are MXFP4; blocks are random bytes with small scales.
Names, metadata and the number of tokens are as converters write them, sizes as the models' configurations say.
Weights are made while they are written: memory never holds them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

_AT_ONCE = 1 << 26  # bytes of weights that are made at once
_HALVES = {  # where a block has float16 scales, and what they are times the root of a row's inputs
    Kind.Q4_K: ((0, 1 / 258), (2, 7.5 / 258)), Kind.Q5_K: ((0, 1 / 527), (2, 15.5 / 527)),
    Kind.Q6_K: ((208, 1 / 1369),), Kind.Q8_0: ((0, 1 / 74),),
}  # fmt: skip
_EXPONENT = 119  # of every block of MXFP4
_KINDS = {
    "output": Kind.Q6_K, "per_layer_token_embd": Kind.Q6_K, "attn_qkv": Kind.Q5_K,
    "per_layer_model_proj": Kind.BF16, **dict.fromkeys(("ssm_alpha", "ssm_beta", "inp_gate", "proj"), Kind.Q8_0),
    **dict.fromkeys(("ffn_gate_inp", "ssm_conv1d", "shortconv.conv"), Kind.F32),
}  # fmt: skip
"""Of matrices; others are Q4_K, or Q8_0 where a row is no whole number of its blocks."""
_MORE_BITS = ("attn_v", "ffn_down", "ffn_down_exps")  # are Q6_K in some layers
_VECTORS = {"bias": 0.0, "ssm_a": -1.0, "attn_sinks.weight": 0.0}
"""Numbers of vectors whose names end so; others are ones."""


class RandomWeights:
    """A matrix, or one of each expert, that is made while `gguf.GGUFWriter` writes it."""

    dtype = np.dtype(np.uint8)

    def __init__(self, shape: tuple[int, ...], kind: Kind) -> None:
        self.kind, self._inputs = kind, shape[-1]
        block, self._size = gguf.GGML_QUANT_SIZES[kind]
        self.shape = (*shape[:-1], shape[-1] // block * self._size)
        self.nbytes = prod(self.shape)

    def tofile(self, file: Any) -> None:
        rng, most = np.random.default_rng(self.nbytes), _AT_ONCE // self._size * self._size
        for start in range(0, self.nbytes, most):
            self._made(rng, min(most, self.nbytes - start) // self._size).tofile(file)

    def _made(self, rng: np.random.Generator, blocks: int) -> Any:
        if self.kind in (Kind.F32, Kind.BF16):
            floats = rng.normal(0, self._inputs**-0.5, blocks).astype(np.float32)
            return floats if self.kind == Kind.F32 else floats.view(np.uint16)[1::2]
        size = blocks * self._size
        words = rng.integers(0, 1 << 64, -(-size // 8), np.uint64)
        found = words.view(np.uint8)[:size].reshape(blocks, self._size)
        if self.kind == Kind.MXFP4:
            found[:, 0] = _EXPONENT
        for at, scale in _HALVES.get(self.kind, ()):
            found[:, at : at + 2] = np.array([scale * self._inputs**-0.5], np.float16).view(np.uint8)
        return found


class Model:
    """What a file will hold: metadata, and tensors."""

    def __init__(
        self, architecture: str, vocabulary: int, width: int, layers: int, *, tied: bool = True,
        last_norm: str = "output_norm", kinds: dict[str, Kind] | None = None,
    ) -> None:  # fmt: skip
        self.architecture, self.vocabulary, self.width, self.layers = architecture, vocabulary, width, layers
        self.settings: dict[str, Any] = {
            "block_count": layers, "context_length": 32768, "embedding_length": width, "vocab_size": vocabulary
        }  # fmt: skip
        self._kinds = _KINDS | ({"token_embd": Kind.Q6_K} if tied else {}) | (kinds or {})
        self.tensors: dict[str, Any] = {}
        self.add("token_embd", vocabulary, width)
        self.add(last_norm, width)
        if not tied:
            self.add("output", vocabulary, width)

    def add(self, name: str, *shape: int, layer: int | None = None) -> None:
        """Add a tensor; its name ends with ``.weight`` unless it says something else."""
        whole = name if layer is None else f"blk.{layer}.{name}"
        whole = whole if name == "ssm_a" or name.endswith(".bias") else f"{whole}.weight"
        if len(shape) == 1 or name.endswith(".bias"):
            value = next((value for end, value in _VECTORS.items() if whole.endswith(end)), 1.0)
            self.tensors[whole] = np.full(shape, value, np.float32)
            return
        eighth = self.layers // 8
        more = layer is not None and (
            not eighth <= layer < 7 * self.layers // 8 or (layer - eighth) % 3 == 2
        )  # fmt: skip
        kind = self._kinds.get(name, Kind.Q6_K if more and name in _MORE_BITS else Kind.Q4_K)
        if shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]:
            kind = Kind.Q8_0
        self.tensors[whole] = RandomWeights(shape, kind)

    def attention(
        self, layer: int, heads: int, keys: int, size: int, *, head_norm: bool = True, gate: int = 1
    ) -> None:
        """Add attention; ``gate`` 2: with a gate beside each query."""
        for name, rows in (("attn_q", gate * heads * size), ("attn_k", keys * size), ("attn_v", keys * size)):
            self.add(name, rows, self.width, layer=layer)
        self.add("attn_output", self.width, heads * size, layer=layer)
        for name in ("attn_q_norm", "attn_k_norm") if head_norm else ():
            self.add(name, size, layer=layer)

    def gated_unit(self, layer: int, inner: int, *experts: int, ending: str = "") -> None:
        """Add a gated unit, or one of each of so many experts."""
        for name in ("ffn_gate", "ffn_up"):
            self.add(name + ending, *experts, inner, self.width, layer=layer)
        self.add("ffn_down" + ending, *experts, self.width, inner, layer=layer)

    def norms(self, layer: int, *names: str) -> None:
        for name in names:
            self.add(name, self.width, layer=layer)

    def write(self, path: Path) -> None:
        writer = gguf.GGUFWriter(path, self.architecture)
        for name, value in self.settings.items():
            say(writer, f"{self.architecture}.{name}", value)
        for name, value in _vocabulary(self.architecture, self.vocabulary).items():
            say(writer, f"tokenizer.ggml.{name}", value)
        for name, tensor in self.tensors.items():
            writer.add_tensor(name, tensor, raw_dtype=getattr(tensor, "kind", None))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def say(writer: gguf.GGUFWriter, name: str, value: Any) -> None:
    """Add one value of the metadata."""
    kinds = {bool: "bool", int: "uint32", float: "float32", str: "string", list: "array"}
    getattr(writer, f"add_{kinds[type(value)]}")(name, value)


def _heads(heads: int, keys: int | list[int], size: int, epsilon: float, inner: int | list[int]) -> dict[str, Any]:
    """Return metadata that most families have."""
    return {
        "attention.head_count": heads, "attention.head_count_kv": keys, "attention.key_length": size,
        "attention.value_length": size, "attention.layer_norm_rms_epsilon": epsilon, "feed_forward_length": inner,
    }  # fmt: skip


_SPLITS = {"qwen35": "qwen35", "lfm2": "lfm2", "lfm2moe": "lfm2", "gpt-oss": "gpt-4o"}


def _vocabulary(architecture: str, size: int) -> dict[str, Any]:
    """Return metadata of a vocabulary that splits no real text, but has as many tokens."""
    pre = _SPLITS.get(architecture)
    first = (
        ["<s>", "</s>", *_byte_letters(), "th"] if pre else ["<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    )
    types = [3, 3, *[1 if pre else 6] * 256]
    if not pre:
        first += ["t", "h", "th"]
    tokens = [*first, *(f"t{i}" for i in range(size - len(first)))]
    found = {
        "model": "gpt2" if pre else architecture, "tokens": tokens, "bos_token_id": 0, "eos_token_id": 1,
        "token_type": [*types, *[1] * (size - len(types))], "merges": ["t h"],
    }  # fmt: skip
    return found | ({"pre": pre} if pre else {"scores": [0.0] * size})


def _byte_letters() -> list[str]:
    """Return the characters that stand for bytes in GPT-2's vocabulary."""
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in shown else next(others)) for byte in range(256)]


def llama(width: int, inner: int, heads: int, keys: int, layers: int) -> Model:
    model, size = Model("llama", 32000, width, layers, tied=False), width // heads
    model.settings |= _heads(heads, keys, size, 1e-5, inner)
    for layer in range(layers):
        model.norms(layer, "attn_norm", "ffn_norm")
        model.attention(layer, heads, keys, size, head_norm=False)
        model.gated_unit(layer, inner)
    return model


def qwen35(
    width: int, layers: int, inner: int, heads: int, keys: int, values: int, *, drafts: bool = False
) -> Model:
    """Qwen3.5 with ``values`` heads of values in its delta nets; ``drafts``: with its block of MTP."""
    model = Model("qwen35", 248320, width, layers)
    model.settings |= _heads(heads, keys, 256, 1e-6, inner) | {
        "rope.freq_base": 1e7, "rope.dimension_count": 64, "rope.dimension_sections": [11, 11, 10, 0],
        "ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 16, "ssm.time_step_rank": values,
        "ssm.inner_size": values * 128, "full_attention_interval": 4,
    }  # fmt: skip
    if drafts:
        model.settings |= {"block_count": layers + 1, "nextn_predict_layers": 1}
    for layer in range(layers + drafts):
        model.norms(layer, "attn_norm", "post_attention_norm")
        model.gated_unit(layer, inner)
        if layer == layers or layer % 4 == 3:
            model.attention(layer, heads, keys, 256, gate=2)
            continue
        mixed = (32 + values) * 128
        for name, *shape in (
            ("attn_qkv", mixed, width), ("attn_gate", values * 128, width), ("ssm_alpha", values, width),
            ("ssm_beta", values, width), ("ssm_conv1d", mixed, 4), ("ssm_a", values), ("ssm_dt.bias", values),
            ("ssm_norm", 128), ("ssm_out", width, values * 128),
        ):  # fmt: skip
            model.add(name, *shape, layer=layer)
    if drafts:
        model.norms(layers, "nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm")
        model.add("nextn.eh_proj", width, 2 * width, layer=layers)
    return model


def gemma4(width: int, layers: int, inner: int, keys: int, every: int, shared: int, *, wide: int = 1) -> Model:
    """Gemma 4 with embeddings per layer; the last ``shared`` layers have no keys, their units are wider."""
    model, parts = Model("gemma4", 262144, width, layers), 256
    local = [layer % every != every - 1 for layer in range(layers)]
    own = layers - shared
    inners = [inner * (wide if layer >= own else 1) for layer in range(layers)]
    model.settings |= _heads(8, keys, 512, 1e-6, inners if wide > 1 else inner) | {
        "attention.key_length_swa": 256, "attention.value_length_swa": 256, "attention.sliding_window": 512,
        "attention.sliding_window_pattern": local, "attention.shared_kv_layers": shared,
        "rope.dimension_count": 512, "rope.freq_base": 1e6, "rope.dimension_count_swa": 256,
        "rope.freq_base_swa": 1e4, "embedding_length_per_layer_input": parts, "final_logit_softcapping": 30.0,
    }  # fmt: skip
    model.tensors["rope_freqs.weight"] = np.array([1.0] * 64 + [1e30] * 192, np.float32)
    model.add("per_layer_token_embd", model.vocabulary, layers * parts)
    model.add("per_layer_model_proj", layers * parts, width)
    model.add("per_layer_proj_norm", parts)
    for layer in range(layers):
        model.norms(layer, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm")
        model.attention(layer, 8, keys, 256 if local[layer] else 512)
        model.tensors[f"blk.{layer}.attn_q_norm.weight"] /= 16  # Gemma 4 divides no scores of attention
        model.gated_unit(layer, inners[layer])
        for name, *shape in (("inp_gate", parts, width), ("proj", width, parts), ("layer_output_scale", 1)):
            model.add(name, *shape, layer=layer)
        for name in ("attn_k", "attn_v", "attn_k_norm") if layer >= own else ():
            del model.tensors[f"blk.{layer}.{name}.weight"]
    return model


def lfm2(vocabulary: int, attends: tuple[int, ...], layers: int, inner: int, experts: int = 0) -> Model:
    """LFM2 of width 2048; with experts, of 1792 each and from the third layer on."""
    model = Model("lfm2moe" if experts else "lfm2", vocabulary, 2048, layers, last_norm="token_embd_norm")
    keys = [8 if layer in attends else 0 for layer in range(layers)]
    model.settings |= _heads(32, keys, 64, 1e-5, inner) | {"rope.freq_base": 1e6, "shortconv.l_cache": 3}
    if experts:
        model.settings |= {
            "expert_count": experts, "expert_used_count": 4, "expert_feed_forward_length": 1792,
            "leading_dense_block_count": 2, "expert_gating_func": 2,
        }  # fmt: skip
    for layer in range(layers):
        model.norms(layer, "attn_norm", "ffn_norm")
        if keys[layer]:
            model.attention(layer, 32, 8, 64)
        else:
            for name, *shape in (("in_proj", 6144, 2048), ("conv", 2048, 3), ("out_proj", 2048, 2048)):
                model.add(f"shortconv.{name}", *shape, layer=layer)
        if not experts or layer < 2:
            model.gated_unit(layer, inner)
        else:
            model.add("ffn_gate_inp", experts, 2048, layer=layer)
            model.add("exp_probs_b.bias", experts, layer=layer)
            model.gated_unit(layer, 1792, experts, ending="_exps")
    return model


def gpt_oss(layers: int, experts: int) -> Model:
    width = 2880
    kinds = dict.fromkeys(("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"), Kind.MXFP4)
    model = Model("gpt-oss", 201088, width, layers, tied=False, kinds={**kinds, "attn_output": Kind.Q8_0})
    model.settings |= _heads(64, 8, 64, 1e-5, width) | {
        "attention.sliding_window": 128, "expert_feed_forward_length": width, "expert_count": experts,
        "expert_used_count": 4, "rope.freq_base": 150000.0, "rope.scaling.type": "yarn",
        "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 4096,
        "rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_beta_slow": 1.0,
    }  # fmt: skip
    for layer in range(layers):
        model.norms(layer, "attn_norm", "post_attention_norm", "attn_output.bias")
        model.attention(layer, 64, 8, 64, head_norm=False)
        model.gated_unit(layer, width, experts, ending="_exps")
        for name, *shape in (
            ("attn_q.bias", 4096), ("attn_k.bias", 512), ("attn_v.bias", 512), ("attn_sinks", 64),
            ("ffn_gate_inp", experts, width), ("ffn_gate_inp.bias", experts),
            *((f"ffn_{part}_exps.bias", experts, width) for part in ("gate", "up", "down")),
        ):  # fmt: skip
            model.add(name, *shape, layer=layer)
    return model


SHAPES: dict[str, Callable[[], Model]] = {
    "1.1b": partial(llama, 2048, 5632, 32, 4, 22),
    "7b": partial(llama, 4096, 11008, 32, 32, 32),
    "qwen3.5-0.8b": partial(qwen35, 1024, 24, 3584, 8, 2, 16),
    "qwen3.5-4b": partial(qwen35, 2560, 32, 9216, 16, 4, 32),
    "qwen3.5-0.8b-mtp": partial(qwen35, 1024, 24, 3584, 8, 2, 16, drafts=True),
    "qwen3.5-4b-mtp": partial(qwen35, 2560, 32, 9216, 16, 4, 32, drafts=True),
    "gemma-4-e2b": partial(gemma4, 1536, 35, 6144, 1, 5, 20, wide=2),
    "gemma-4-e4b": partial(gemma4, 2560, 42, 10240, 2, 6, 18),
    "lfm2.5-1.2b": partial(lfm2, 65536, (2, 5, 8, 10, 12, 14), 16, 8192),
    "lfm2.5-8b-a1b": partial(lfm2, 128000, (2, 6, 10, 14, 18, 21), 24, 7168, 32),
    "gpt-oss-20b": partial(gpt_oss, 24, 32),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("path", type=Path)
    args = parser.parse_args()
    SHAPES[args.shape]().write(args.path)


if __name__ == "__main__":
    main()
