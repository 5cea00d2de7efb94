"""Time and agreement of a model's weights in 4 and 8 bits, against the model itself, on this machine.

    python benchmarks/quantized_self.py [MODEL] [THREADS]

Prints the time of a pass behind 300 tokens as a share of the model's own, which run by turns, and how often the
greedy choice along the model's own answers is the same.
"""

from __future__ import annotations

import sys
from statistics import median
from time import perf_counter
from typing import Any

import torch

import draftwood
from draftwood.api.prompts import as_ids
from draftwood.engines.transformers.quantized import QuantizedTarget
from draftwood.engines.transformers.shared import shared_target
from draftwood.tasks import prompts
from draftwood.tree import TokenTree

WIDTHS, CONTEXT, ROUNDS = (1, 2, 4, 8, 16), 300, 41
KINDS = ("chat", "summary", "creative")
VARIANTS = ((4, 32), (4, 64), (8, 32))


def seconds(target: Any, session: Any, ids: list[int], rows: int) -> float:
    """Time of one pass over a chain of so many rows."""
    tree = TokenTree.build(ids[1:rows])
    began = perf_counter()
    (scores,) = target.score([(session, ids[0], tree)])
    scores.argmax(rows - 1)
    return perf_counter() - began


def shares(own: Any, copy: Any, ids: list[int]) -> list[str]:
    """Median time of a pass over ``copy`` as a share of one over ``own``, per width."""
    pair = [(target, target.open([ids[:CONTEXT]], reserve=64)[0][0]) for target in (own, copy)]
    found = []
    for rows in WIDTHS:
        times = [[seconds(*one, ids, rows) for one in pair] for _ in range(ROUNDS)]
        found.append(f"{median(ours / theirs for theirs, ours in times):.2f}")
    for _, session in pair:
        session.close()
    return found


def answers(model: Any, tokenizer: Any) -> list[tuple[list[int], list[int]]]:
    """The model's own greedy answers: ids of prompt and answer."""
    found = []
    for prompt in (prompt for kind in KINDS for prompt in prompts(kind, 4)):
        content: Any = prompt.text or list(prompt.messages)
        if prompt.text is None and not tokenizer.chat_template:  # a base model goes on with the question
            content = prompt.messages[-1]["content"]
        ids = as_ids(content, tokenizer)
        found.append((ids, draftwood.generate(model, ids, max_new_tokens=100).ids))
    return found


def scores_along(target: Any, texts: list[tuple[list[int], list[int]]]) -> torch.Tensor:
    """Log-probabilities [tokens, vocab] behind every token of the answers."""
    rows = []
    for prompt, answer in texts:
        ((session, _),) = target.open([prompt], reserve=len(answer))
        (scores,) = target.score([(session, answer[0], TokenTree.build(answer[1:]))])
        rows.append(torch.stack([scores.raw(row) for row in range(len(answer))]))
        session.close()
    return torch.cat(rows).log_softmax(-1)


def main(name: str = "smollm2", threads: str = "1") -> None:
    """Print one line per variant."""
    torch.set_num_threads(int(threads))
    model, tokenizer = draftwood.load(name)
    own, texts = shared_target(model), answers(model, tokenizer)
    whole = [token for prompt, answer in texts for token in (*prompt, *answer)]
    exact = scores_along(own, texts)
    print(f"{name}, {threads} threads, {torch.backends.cpu.get_cpu_capability()}, {len(exact)} tokens")
    for bits, group in VARIANTS:
        began = perf_counter()
        copy = QuantizedTarget(model, like=own, bits=bits, group=group)
        made = perf_counter() - began
        ours = scores_along(copy, texts)
        same = (ours.argmax(-1) == exact.argmax(-1)).float().mean()
        divergence = (exact.exp() * (exact - ours)).sum(-1).mean()
        print(
            f"{bits} bits, group {group}: time at {WIDTHS} rows {shares(own, copy, whole)}, "
            f"same choice {same:.4f}, KL {divergence:.5f}, {copy.nbytes / 1e6:.0f} MB, made in {made:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
