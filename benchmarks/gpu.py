"""t(n) on a GPU: the pass of a random Llama of a given shape, beside what reading its weights takes.

    python benchmarks/gpu.py --shape 8b -o profile-8b.jsonl
    python benchmarks/gpu.py --shape smollm2 -o profile-smollm2.jsonl

Random weights cost what trained ones do. The rows are a cost curve: ``draftwood simulate ANSWERS --profile ROWS``
plays recorded answers through the loop at this price (a forced replay: the text is the recorded one, the time is
this machine's). ``--device cpu --shape tiny`` tries the script out.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from draftwood.engines.transformers.shared import shared_target
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import header
from draftwood.tree import TokenTree

SHAPES: dict[str, dict[str, int]] = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 512},
    "smollm2": {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
                "num_key_value_heads": 3, "vocab_size": 49_152},
    "8b": {"hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 8, "vocab_size": 128_256},
}  # fmt: skip


def build(shape: str, device: str) -> Any:
    config = LlamaConfig(**SHAPES[shape], max_position_embeddings=8192, tie_word_embeddings=shape != "8b")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)


def synchronised(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="8b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    model = build(args.shape, args.device)
    target: Any = shared_target(model)
    rng, vocab = np.random.default_rng(0), SHAPES[args.shape]["vocab_size"]
    ((session, _),) = target.open([rng.integers(0, vocab, args.context).tolist()], reserve=256)
    size = sum(p.nbytes for p in model.parameters())
    known = {"model": f"random {args.shape}", "dtype": "bfloat16", "device": args.device}
    rows: list[dict[str, Any]] = [header("profile", known, provenance(**known))]
    chains = {
        n: TokenTree.build(rng.integers(0, vocab, n - 1)) if n > 1 else TokenTree.empty() for n in args.widths
    }
    times: dict[int, list[float]] = {n: [] for n in args.widths}
    for number in range(args.rounds + 3):
        for n in args.widths:
            started = synchronised(args.device)
            (scores,) = target.score([(session, 1, chains[n])])
            scores.argmax(0)
            seconds = synchronised(args.device) - started
            if number >= 3:  # graphs are captured first
                times[n].append(seconds)
    for n in args.widths:
        median = statistics.median(times[n])
        print(f"n = {n:3}: {1e3 * median:7.2f} ms, {size / median / 1e12:5.2f} TB/s of weights", flush=True)
        first, _, third = statistics.quantiles(times[n], n=4)
        line = {"row": "pass", "context": args.context, "n": n, "rounds": args.rounds}
        rows.append(line | {"median_s": median, "q1_s": first, "q3_s": third})
    if args.output:
        args.output.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
