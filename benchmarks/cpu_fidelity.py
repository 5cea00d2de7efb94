"""How near the scores of engines for a GGUF file are to float32 of the same weights: KL per token, other choices.

python benchmarks/cpu_fidelity.py            # smollm2's file, 5,000 tokens of recorded prompts and of our tasks
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

import draftwood
from draftwood.contracts import Watch
from draftwood.models import load
from draftwood.tasks import prompts

KINDS = ("code-edit", "grammar", "summary", "web-qa", "chat", "structured", "agent")
TOKENS, LENGTH = 5000, 500


def texts(tokenizer: Any) -> Iterator[list[int]]:
    """Yield texts of up to `LENGTH` tokens, `TOKENS` in all."""
    left = TOKENS
    found = [prompts(kind) for kind in KINDS]
    for row in range(max(map(len, found))):
        for kind in found:
            if row < len(kind) and left > 0:
                text = "\n".join(message["content"] for message in kind[row].messages)
                ids = tokenizer(text)["input_ids"][: min(LENGTH, left)]
                left -= len(ids)
                if ids:
                    yield ids


def scores_of(target: Any, ids: list[int]) -> np.ndarray:
    """Return the scores of all rows of a text, float32[tokens, vocabulary]."""
    rows = []
    watch = Watch(lambda positions, scores: rows.extend(scores.raw(i) for i in range(len(positions))))
    ((session, _),) = target.open([ids], watch=[watch])
    session.close()
    return np.array(rows)


def logs(scores: np.ndarray) -> np.ndarray:
    scores = scores.astype(np.float64)
    scores -= scores.max(axis=1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def main() -> None:
    import torch

    model, _ = load("smollm2", engine="transformers")
    target, tokenizer = load("smollm2", engine="cpu")
    arms = {
        "cpu": target,
        "llama.cpp exact": load("smollm2", engine="llama.cpp", exact=True)[0],
        "llama.cpp fast": load("smollm2", engine="llama.cpp", exact=False)[0],
    }
    divergence: dict[str, list[float]] = {name: [] for name in arms}
    same: dict[str, list[bool]] = {name: [] for name in arms}
    for ids in texts(tokenizer):
        with torch.inference_mode():
            true = model(torch.tensor([ids])).logits[0].numpy()
        wanted = logs(true)
        for name, arm in arms.items():
            found = scores_of(arm, ids)
            divergence[name] += (np.exp(wanted) * (wanted - logs(found))).sum(axis=1).tolist()
            same[name] += (found.argmax(axis=1) == true.argmax(axis=1)).tolist()
    for name in arms:
        kl = np.array(divergence[name])
        row = {
            "arm": name, "tokens": len(kl), "mean KL": kl.mean(), "median KL": float(np.median(kl)),
            "99 %": float(np.quantile(kl, 0.99)), "same best token": float(np.mean(same[name])),
        }  # fmt: skip
        json.dump(row, sys.stdout)
        print()


if __name__ == "__main__":
    print(f"draftwood {draftwood.__version__}", file=sys.stderr)
    main()
