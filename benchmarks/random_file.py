"""Writes a GGUF file of random weights in the shape of a llama of 1.1 or 7 billion parameters, types as in Q4_K_M.

    python benchmarks/random_file.py 1.1b random-1.1b.gguf

Its texts are noise; its passes take as long as those of a real model.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

SHAPES = {  # width, inner, heads, heads of keys, layers
    "1.1b": (2048, 5632, 32, 4, 22),
    "7b": (4096, 11008, 32, 32, 32),
}
VOCABULARY = 32000


def blocks(rng: np.random.Generator, rows: int, columns: int, kind: Kind) -> np.ndarray:
    """Return random blocks, uint8[rows, bytes], whose scales are small."""
    size = 144 if kind == Kind.Q4_K else 210
    found = rng.integers(0, 256, (rows, columns // 256, size), dtype=np.uint8)
    scales = rng.uniform(1e-5, 3e-5, (rows, columns // 256, 2)).astype(np.float16).view(np.uint8)
    if kind == Kind.Q4_K:
        found[..., :4] = scales
    else:
        found[..., -2:] = scales[..., :2]
    return found.reshape(rows, -1)


def main() -> None:
    name, path = sys.argv[1], Path(sys.argv[2])
    width, inner, heads, keys, layers = SHAPES[name]
    rng, writer = np.random.default_rng(0), gguf.GGUFWriter(path, "llama")
    writer.add_block_count(layers)
    writer.add_context_length(4096)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(keys)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *(f"t{i}" for i in range(3, VOCABULARY))])
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([2, 3, 3, *[1] * (VOCABULARY - 3)])

    def add(tensor: str, rows: int, columns: int, kind: Kind) -> None:
        writer.add_tensor(tensor, blocks(rng, rows, columns, kind), raw_dtype=kind)

    add("token_embd.weight", VOCABULARY, width, Kind.Q4_K)
    add("output.weight", VOCABULARY, width, Kind.Q6_K)
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    for i in range(layers):
        more = Kind.Q6_K if i < layers // 8 or i >= 7 * layers // 8 or (i - layers // 8) % 3 == 2 else Kind.Q4_K
        size = width // heads
        for part, rows, columns, kind in (
            ("attn_q", width, width, Kind.Q4_K), ("attn_k", keys * size, width, Kind.Q4_K),
            ("attn_v", keys * size, width, more), ("attn_output", width, width, Kind.Q4_K),
            ("ffn_gate", inner, width, Kind.Q4_K), ("ffn_up", inner, width, Kind.Q4_K),
            ("ffn_down", width, inner, more),
        ):  # fmt: skip
            add(f"blk.{i}.{part}.weight", rows, columns, kind)
        for part in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{i}.{part}.weight", np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
