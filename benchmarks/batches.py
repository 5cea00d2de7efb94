"""Batches: several texts in one pass, beside transformers' plain batched ``generate``, interleaved in one process.

    python benchmarks/batches.py [-o rows.jsonl] [--batches 1 2 4 8 16] [--tokens 64] [--rounds 3] [--dtype D]

Every text is written to the same length (no end token), so that a batch stays full. Seconds are those of decoding,
reading the prompts excluded; ``per_row_us`` is what our loop takes per row and step outside of the pass. Texts are
compared with those of transformers on each prompt alone.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from transformers import StoppingCriteria

import draftwood
from draftwood.api.setup import Setup
from draftwood.contracts import Sampling
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.measure.bench.table import geometric_mean
from draftwood.measure.prompt_files import task_jobs
from draftwood.measure.records.provenance import provenance
from draftwood.models.importing import quiet_transformers

TASKS = ("code-edit", "grammar", "summary", "web-qa", "chat")
THEIRS, PLAIN = "transformers", "none"


class Clock(StoppingCriteria):
    """Notes when each token of a batch was there; never stops."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:  # noqa: ARG002
        self.times.append(perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def theirs(model: Any, prompts: Sequence[Sequence[int]], tokens: int) -> dict[str, Any]:
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + list(p) for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    clock = Clock()
    with quiet_transformers():
        out = model.generate(
            ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False, eos_token_id=None, pad_token_id=0,
            stopping_criteria=[clock],
        )  # fmt: skip
    return {"decode_s": clock.times[-1] - clock.times[0], "ids": out[:, longest:].tolist()}


def ours(setup: Setup, prompts: Sequence[Sequence[int]], tokens: int) -> dict[str, Any]:
    requests = [Request(p, tokens, Sampling()) for p in prompts]
    ids: list[list[int]] = [[] for _ in prompts]
    steps = []
    with setup.open(requests) as sequences:
        emissions = decode_sequences(setup.target, setup.planner, sequences)
        for _ in prompts:
            first = next(emissions)
            ids[first.row] += first.tokens
        started = last = perf_counter()
        for emission in emissions:
            last = perf_counter()
            ids[emission.row] += emission.tokens
            steps.append(emission.step)
    apart = sum(s.draft_s + s.verify_s + s.keep_s + s.learn_s + s.plan_s / len(prompts) for s in steps if s)
    return {
        "decode_s": last - started,
        "ids": ids,
        "steps": len(steps),
        "per_row_us": 1e6 * apart / len(steps),
    }


def prompts_of(setup: Setup, count: int) -> list[list[int]]:
    """Prompts of five kinds in turn."""
    kinds = [task_jobs(task) for task in TASKS]
    jobs = [kinds[i % len(kinds)][i // len(kinds)] for i in range(count)]
    return [list(job.request(setup).prompt) for job in jobs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--drafts", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="draft nodes per row")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    model, tokenizer = draftwood.load("smollm2", dtype=args.dtype)
    setups = {PLAIN: Setup(model, tokenizer, "none", "fixed:0")}
    setups |= {f"suffix fixed:{n}": Setup(model, tokenizer, "suffix", f"fixed:{n}") for n in args.drafts}
    prompts = prompts_of(setups[PLAIN], max(args.batches))
    alone = [theirs(model, [p], args.tokens)["ids"][0] for p in prompts]
    rows: list[dict[str, Any]] = [{"type": "header", **provenance(model="smollm2", dtype=args.dtype)}]
    for batch in args.batches:
        for number in range(args.rounds):
            arms = [THEIRS, *setups]
            random.Random(number).shuffle(arms)
            for arm in arms:
                some = prompts[:batch]
                run = theirs(model, some, args.tokens) if arm == THEIRS else ours(setups[arm], some, args.tokens)
                same = sum(a == b for a, b in zip(run.pop("ids"), alone, strict=False))
                rows.append(
                    {"type": "run", "batch": batch, "round": number, "arm": arm, "same_texts": same, **run}
                )
                if args.output:
                    args.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
        show(batch, args.tokens, [row for row in rows if row.get("batch") == batch])


def show(batch: int, tokens: int, runs: Sequence[dict[str, Any]]) -> None:
    arms = list(dict.fromkeys(run["arm"] for run in sorted(runs, key=lambda r: r["arm"] != THEIRS)))
    by_round = {(run["arm"], run["round"]): run["decode_s"] for run in runs}
    rounds = range(1 + max(run["round"] for run in runs))
    print(f"batch {batch}")
    for arm in arms:
        mine = [run for run in runs if run["arm"] == arm]
        seconds = statistics.median(run["decode_s"] for run in mine)
        ratios = {base: [by_round[base, r] / by_round[arm, r] for r in rounds] for base in (THEIRS, PLAIN)}
        said = "  ".join(
            f"{geometric_mean(found):.2f} x {base} ({min(found):.2f}-{max(found):.2f})"
            for base, found in ratios.items()
        )
        per_row = [run["per_row_us"] for run in mine if "per_row_us" in run]
        apart = f"  {statistics.median(per_row):4.0f} us per row and step" if per_row else ""
        speed = batch * (tokens - 1) / seconds
        print(
            f"  {arm:16} {speed:7.1f} tokens/s  {said}  {mine[0]['same_texts']}/{batch} texts the same{apart}",
            flush=True,
        )


if __name__ == "__main__":
    main()
