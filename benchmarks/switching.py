"""Policy ``switching`` on a mixed run: recorded answers of all tasks in one shuffled order, one planner for all.

    python benchmarks/switching.py answers-test.jsonl.zst answers-learn.jsonl.zst
        [--drafters ngram+suffix+lookup+parrot+ngram-mod] [--planner goodput] [--cost 1=21.6,...] [-o rows.jsonl]

Arms are each drafter by itself, all together, and all together with ``switching``, with and without seeing the
text. Answers replay through the live loop; passes take what the cost curve says, drafting and planning what they
take here. ``passes`` counts the passes' time only, which no other work on this machine disturbs; ``oracle`` is the
best arm of each task, chosen afterwards. ``--kinds`` prints which kinds the tasks' own prompts and answers are
taken for, and how long that takes, instead.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from draftwood.planning.kind import KINDS, kind_of
from oracle import CURVES

from draftwood.api.user_texts import detached
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.opening import open_sequences
from draftwood.drafters.load import load as load_drafters
from draftwood.engines.replay import ReplayClock, ReplayTarget
from draftwood.measure.records.lines import write_whole
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import header
from draftwood.measure.records.traces import Trace, read_traces
from draftwood.measure.simulate import recorded_request
from draftwood.models import load_tokenizer
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.learned import Learned
from draftwood.planning.load import load as load_planner
from draftwood.step import Step
from draftwood.tasks import KINDS as TASKS
from draftwood.tasks import prompts
from draftwood.verify.exact import SampleAndMatch

TAIL, EVERY = 256, 64


@dataclass
class Sums:
    """Of the steps of one arm; per task, and of all as ``mixed``."""

    tokens: Counter[str] = field(default_factory=Counter)
    passes: Counter[str] = field(default_factory=Counter)
    pass_s: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)

    def add(self, task: str, step: Step) -> None:
        for name in (task, "mixed"):
            self.tokens[name] += len(step.emitted)
            self.passes[name] += 1
            self.pass_s[name] += step.score_s
            self.seconds[name] += step.seconds


def replay(traces: Iterable[Trace], drafters: str, planner: str, curve: CostCurve, decode: Any) -> Sums:
    shared = detached(load_drafters(drafters))
    chosen, found = load_planner(planner, Learned(curve=curve), decode), Sums()
    for trace in traces:
        clock = ReplayClock()
        target = ReplayTarget(trace.prompt_ids, trace.output_ids, cost=curve.seconds, clock=clock)
        with open_sequences(target, shared, [recorded_request(trace)], SampleAndMatch()) as sequences:
            for emission in decode_sequences(target, chosen, sequences, clock):
                if emission.step is not None:
                    found.add(trace.task, emission.step)
    return found


def row(arm: str, sums: Sums, plain: Sums) -> dict[str, Any]:
    return {
        "row": "switching",
        "arm": arm,
        "mean_acceptance_length": round(sums.tokens["mixed"] / sums.passes["mixed"], 4),
        "speedup": round(plain.seconds["mixed"] / sums.seconds["mixed"], 4),
        "pass_speedup": {task: round(plain.pass_s[task] / sums.pass_s[task], 4) for task in sorted(sums.passes)},
        "overhead_us_per_step": round(
            1e6 * (sums.seconds["mixed"] - sums.pass_s["mixed"]) / sums.passes["mixed"], 1
        ),
    }


def compare(
    traces: list[Trace], names: str, planner: str, curve: CostCurve, tokenizer: Any
) -> list[dict[str, Any]]:
    singles = names.split("+")
    arms = {name: (name, planner, None) for name in singles}
    arms["all"] = (names, planner, None)
    arms["switching"] = (names, f"{planner}+switching", tokenizer.decode)
    arms["switching, unseen text"] = (names, f"{planner}+switching", None)
    replay(traces[:3], names, planner, curve, None)  # compiles
    plain, rows = replay(traces, "none", "off", curve, None), []
    print("| arm | mean acceptance length | predicted speedup | passes | overhead per step |\n" + "|---" * 5 + "|")
    for arm, (drafters, spec, decode) in arms.items():
        found = row(arm, replay(traces, drafters, spec, curve, decode), plain)
        rows.append(found)
        print(
            f"| {arm} | {found['mean_acceptance_length']:.3f} | {found['speedup']:.3f} | "
            f"{found['pass_speedup']['mixed']:.3f} | {found['overhead_us_per_step']:.0f} us |",
            flush=True,
        )
    fixed, tasks = rows[: len(singles) + 1], [task for task in plain.passes if task != "mixed"]
    best = sum(plain.pass_s[task] / max(r["pass_speedup"][task] for r in fixed) for task in tasks)
    oracle = plain.pass_s["mixed"] / best
    print(f"| oracle: the best of these per task | | | {oracle:.3f} | |")
    return [*rows, {"row": "switching", "arm": "oracle", "pass_speedup": {"mixed": round(oracle, 4)}}]


def confusion(traces: Sequence[Trace], tokenizer: Any) -> list[dict[str, Any]]:
    """Print and return what the texts of each task are taken for: at the end of prompts, and while written."""
    found: dict[tuple[str, str], Counter[str]] = {}
    times = []
    texts: list[tuple[str, str, list[int]]] = []
    for task in TASKS:
        for p in prompts(task):
            text = p.text
            if text is None:
                text = tokenizer.apply_chat_template(p.content, add_generation_prompt=True, tokenize=False)
            texts.append((task, "prompts", tokenizer(text)["input_ids"]))
    for trace in traces:
        ids, begin = [*trace.prompt_ids, *trace.output_ids], len(trace.prompt_ids)
        texts += [(trace.task, "written", ids[:end]) for end in range(begin + EVERY, len(ids), EVERY)]
    for task, which, ids in texts:
        started = perf_counter()
        kind = kind_of(tokenizer.decode(ids[-TAIL:]))
        times.append(perf_counter() - started)
        found.setdefault((which, task), Counter())[kind] += 1
    print("| text | task | " + " | ".join(KINDS) + " |\n" + "|---" * (2 + len(KINDS)) + "|")
    for (which, task), counts in found.items():
        print(f"| {which} | {task} | " + " | ".join(str(counts[kind]) for kind in KINDS) + " |")
    median, high = 1e3 * np.quantile(times, [0.5, 0.99])
    print(f"\nrecognised in {median:.2f} ms (median), {high:.2f} ms (99 %), reading the tokens included")
    return [{"row": "kinds", "text": which, "task": task, **c} for (which, task), c in found.items()] + [
        {"row": "kinds", "median_ms": round(median, 3), "p99_ms": round(high, 3)}
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--drafters", default="ngram+suffix+lookup+parrot+ngram-mod")
    parser.add_argument("--planner", default="goodput")
    parser.add_argument("--cost", default=CURVES["f32"], help="tokens=milliseconds, ...")
    parser.add_argument("--tokenizer", default="smollm2")
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    parser.add_argument("--kinds", action="store_true")
    parser.add_argument("-o", type=Path, dest="output")
    args = parser.parse_args()
    tokenizer = load_tokenizer(args.tokenizer)
    traces = [trace for path in args.traces for trace in read_traces(path)]
    random.Random(args.seed).shuffle(traces)
    if args.kinds:
        rows = confusion(traces, tokenizer)
    else:
        rows = compare(traces, args.drafters, args.planner, CostCurve.parse(args.cost), tokenizer)
    if args.output:
        settings = {key: str(value) for key, value in vars(args).items()}
        write_whole(args.output, [header("switching", settings, provenance()), *rows])


if __name__ == "__main__":
    main()
