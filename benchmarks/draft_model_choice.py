"""Switching among drafters with models, and cascades, on smollm2: plain, each set alone, and the choice, in turns.

Usage: python benchmarks/draft_model_choice.py [--prompts 3] [--tokens 96] [--rounds 2] [--cascades]

Each prompt is answered by every arm, one after the other; the order rotates from prompt to prompt. Printed are
tokens per second of each arm over those of plain decoding: the geometric mean over prompts per kind and over
kinds, round by round, since choices are learnt. Seconds are the process's own, on one thread, so that what else
runs on the machine counts little; those of reading the prompt are taken off.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import exp, log
from time import process_time
from typing import Any

import draftwood
from draftwood import tasks
from draftwood.drafters.cascade.drafter import CascadeDrafter
from draftwood.drafters.draft_model.drafter import DraftModelDrafter
from draftwood.drafters.load import load

KINDS = ("code-edit", "summary", "creative")
SHALLOW, COPY = "early-exit:layers=20", "quantized-self"
Arm = tuple[Any, str]  # drafters, planner


def choices() -> dict[str, Arm]:
    """Return the arms that compare switching with fixed sets."""
    sets = ["ngram", COPY, SHALLOW, f"ngram+{COPY}", f"ngram+{SHALLOW}", f"ngram+{COPY}+{SHALLOW}"]
    found: dict[str, Arm] = {"plain": ("none", "goodput"), **{one: (one, "goodput") for one in sets}}
    return found | {f"{sets[-1]}, switching": (sets[-1], "goodput+switching")}


def cascades(model: Any) -> dict[str, Arm]:
    """Return the arms that compare a draft model with the same one that has drafters of its own."""
    from draftwood.engines.transformers.self_draft import quantized_self
    from draftwood.engines.transformers.shared import shared_target

    small = quantized_self(shared_target(model), model, 4)
    return {
        "plain": ("none", "goodput"),
        "draft-model": (DraftModelDrafter(target=small), "goodput"),
        "cascade of ngram": (CascadeDrafter(target=small, drafters=load("ngram")), "goodput"),
        "ngram+draft-model": ((*load("ngram"), DraftModelDrafter(target=small)), "goodput"),
        "ngram+cascade of ngram": (
            (*load("ngram"), CascadeDrafter(target=small, drafters=load("ngram"))),
            "goodput",
        ),
    }


def answered(model: Any, tokenizer: Any, prompt: Any, arm: Arm, tokens: int) -> tuple[list[int], float]:
    """Return an answer and the seconds of this process that it took."""
    drafters, planner = arm
    started = process_time()
    answer = draftwood.generate(
        model, prompt.content, tokenizer=tokenizer, drafters=drafters, planner=planner, max_new_tokens=tokens
    )
    return answer.ids, process_time() - started


def measure(
    model: Any, tokenizer: Any, arms: Mapping[str, Arm], prompts: Sequence[Any], tokens: int, first: int
) -> dict[str, list[float]]:
    """Return the logarithm of each arm's speed over plain, prompt by prompt."""
    found: dict[str, list[float]] = defaultdict(list)
    names = list(arms)
    for number, prompt in enumerate(prompts, first):
        speed, texts = {}, set()
        at = number % len(names)
        _, reading = answered(model, tokenizer, prompt, ("none", "goodput"), 1)
        for name in names[at:] + names[:at]:
            ids, seconds = answered(model, tokenizer, prompt, arms[name], tokens)
            speed[name] = (len(ids) - 1) / (seconds - reading)
            texts.add(tuple(ids))
        if len(texts) > 1:
            print(f"{prompt.name}: the texts differ")
        for name in names:
            found[name].append(log(speed[name] / speed["plain"]))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cascades", action="store_true")
    asked = parser.parse_args()
    model, tokenizer = draftwood.load("smollm2")
    arms = cascades(model) if asked.cascades else choices()
    for arm in arms.values():  # loads kernels, makes copies of weights, reads the first prompt
        answered(model, tokenizer, tasks.prompts("creative", 1)[0], arm, 24)
    for number in range(asked.rounds):
        by_kind = {
            kind: measure(
                model, tokenizer, arms, tasks.prompts(kind, asked.prompts), asked.tokens, number + 3 * place
            )
            for place, kind in enumerate(KINDS)
        }
        print(f"\nround {number + 1}\n| | " + " | ".join((*KINDS, "all")) + " |", flush=True)
        for name in arms:
            means = [sum(by_kind[kind][name]) / len(by_kind[kind][name]) for kind in KINDS]
            row = [f"{exp(mean):.2f}" for mean in (*means, sum(means) / len(means))]
            print(f"| {name} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
