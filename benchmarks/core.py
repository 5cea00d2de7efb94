"""Five kinds of prompts, four arms, one process: draftwood against plain transformers and its prompt lookup.

    python benchmarks/core.py -o benchmarks/results/core.jsonl
    python benchmarks/core.py --report benchmarks/results/core.jsonl

Arms are interleaved prompt by prompt in a shuffled order, every round anew. Each run keeps the arrival time of
every token, so that decode seconds can be given with and without looped tails; reading the prompt is excluded.
Rows are appended as they come and runs already in the file are skipped, so it can be stopped and resumed.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import random
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from transformers.generation.streamers import BaseStreamer

import draftwood
from draftwood.doors.prompts import render
from draftwood.engines.transformers.shared import shared_target
from draftwood.measure.ties import first_difference
from draftwood.tasks import KINDS, looped_tail, prompts

OURS = {"draftwood none": "none", "draftwood": "default"}
THEIRS = {"transformers": {}, "transformers lookup": {"prompt_lookup_num_tokens": 10}}
ARMS = (*THEIRS, *OURS)
PICK = {"median": statistics.median, "fastest": min}  # the fastest round is the one least disturbed by others


class Clock(BaseStreamer):
    """Notes when tokens arrive; the first put is the prompt."""

    def __init__(self) -> None:
        self.arrivals: list[tuple[int, float]] = []
        self.started = perf_counter()
        self._tokens = -1

    def put(self, value: torch.Tensor) -> None:
        if self._tokens < 0:
            self._tokens = 0
            return
        self._tokens += value.numel()
        self.arrivals.append((self._tokens, perf_counter() - self.started))

    def end(self) -> None: ...


def run_theirs(model: Any, ids: list[int], limit: int, options: dict[str, int]) -> tuple[list[int], list[Any]]:
    clock = Clock()
    out = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=limit, streamer=clock, **options)
    return out[0, len(ids) :].tolist(), clock.arrivals


def run_ours(model: Any, ids: list[int], limit: int, drafters: str) -> tuple[list[int], list[Any]]:
    generation = draftwood.generate(model, ids, drafters=drafters, max_new_tokens=limit)
    clock, count = generation.prefill_s, 1
    arrivals = [(1, clock)]
    for step in generation.steps:
        clock += step.seconds
        count += len(step.emitted)
        arrivals.append((count, clock))
    return generation.ids, [arrivals, len(generation.steps), generation.stats.acceptance_rate]


def measure(args: argparse.Namespace) -> None:
    model, tokenizer = draftwood.load(args.model, dtype=args.dtype, threads=args.threads)
    done = (
        {(r["task"], r["name"], r["arm"], r["round"]) for r in read(args.output)}
        if args.output.exists()
        else set()
    )
    shuffle = random.Random(0)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with args.output.open("a", encoding="utf-8") as file:
        if not done:
            file.write(json.dumps(provenance(args)) + "\n")
        for number in range(args.rounds):
            for prompt in [p for kind in KINDS for p in prompts(kind, args.limit)]:
                ids = render(prompt.messages, tokenizer)
                for arm in shuffle.sample(ARMS, len(ARMS)):
                    if (prompt.task, prompt.name, arm, number) in done:
                        continue
                    row: dict[str, Any] = {"task": prompt.task, "name": prompt.name, "arm": arm, "round": number}
                    if arm in OURS:
                        out, (arrivals, passes, rate) = run_ours(model, ids, args.max_new_tokens, OURS[arm])
                        row |= {"passes": passes, "acceptance_rate": rate}
                    else:
                        out, arrivals = run_theirs(model, ids, args.max_new_tokens, THEIRS[arm])
                    row |= {"prompt_ids": ids, "output_ids": out, "arrivals": arrivals}
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                print(f"round {number} {prompt.task} {prompt.name}", file=sys.stderr)


def provenance(args: argparse.Namespace) -> dict[str, Any]:
    import transformers

    return {
        "command": " ".join(["python", "benchmarks/core.py", *sys.argv[1:]]),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "draftwood": draftwood.__version__,
        "processor": platform.processor() or platform.machine(),
        "isa": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "dtype": args.dtype,
        "model": args.model,
    }


def read(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if "arm" in row]


def until(arrivals: list[Any], count: int) -> float:
    """Seconds from the first arrival to when ``count`` tokens were there."""
    start = arrivals[0][1]
    return next((t for n, t in arrivals if n >= count), arrivals[-1][1]) - start


def report(path: Path) -> None:
    groups: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in read(path):
        groups[row["task"], row["name"]][row["arm"]].append(row)
    for pick, looped in (("median", False), ("fastest", False), ("median", True), ("fastest", True)):
        print(f"\nlooped tails {'included' if looped else 'removed'}; decode seconds, sum of {pick} rounds")
        print(
            f"{'kind':12}" + "".join(f"{arm:>22}" for arm in ARMS) + f"{'MAL':>7}{'vs plain':>10}{'vs lookup':>10}"
        )
        totals = [table_row(kind, groups, looped, PICK[pick]) for kind in KINDS]
        for part, name in ((0, "against plain"), (1, "against lookup"), (2, "our plain against theirs")):
            ratios = [t[part] for t in totals]
            print(f"{name:28} geometric mean {geometric(ratios):.2f}  worst {min(ratios):.2f}")
    spread(groups)
    equality(path, groups)


def table_row(kind: str, groups: Any, looped: bool, pick: Any) -> tuple[float, float, float]:
    seconds: dict[str, float] = dict.fromkeys(ARMS, 0.0)
    tokens = passes = 0
    for (task, _), arms in groups.items():
        if task != kind:
            continue
        ids = arms["draftwood"][0]["output_ids"]
        keep = len(ids) if looped else looped_tail(ids)
        for arm in ARMS:
            seconds[arm] += pick(until(r["arrivals"], keep) for r in arms[arm])
        arrivals = arms["draftwood"][0]["arrivals"]
        tokens += keep - 1
        passes += next(i for i, (n, _) in enumerate(arrivals) if n >= keep)
    plain = min(seconds["transformers"], seconds["draftwood none"])
    lookup = seconds["transformers lookup"] / seconds["draftwood"]
    line = "".join(f"{seconds[arm]:22.2f}" for arm in ARMS)
    print(f"{kind:12}{line}{tokens / passes:7.2f}{plain / seconds['draftwood']:10.2f}{lookup:10.2f}")
    return plain / seconds["draftwood"], lookup, seconds["transformers"] / seconds["draftwood none"]


def spread(groups: Any) -> None:
    """How far rounds of the same run lie apart, and the range of speedups over prompts."""
    apart, per_prompt = [], []
    for arms in groups.values():
        times = {arm: [r["arrivals"][-1][1] - r["arrivals"][0][1] for r in rows] for arm, rows in arms.items()}
        apart += [max(t) / min(t) for t in times.values() if min(t) > 0]
        plain = min(statistics.median(times[a]) for a in ("transformers", "draftwood none"))
        per_prompt.append(plain / max(statistics.median(times["draftwood"]), 1e-9))
    quartiles = statistics.quantiles(per_prompt, n=4)
    print(
        f"\nrounds of a run differ by a median factor of {statistics.median(apart):.3f}, at most {max(apart):.2f}"
    )
    print(f"per prompt against plain: min {min(per_prompt):.2f}, quartiles {[round(q, 2) for q in quartiles]}, "
          f"max {max(per_prompt):.2f}")  # fmt: skip


def equality(path: Path, groups: Any) -> None:
    """Every arm must write what plain transformers writes; each difference is shown with its margin."""
    header = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    different: dict[str, list[str]] = {arm: [] for arm in ARMS[1:]}
    target = None
    for (task, name), arms in groups.items():
        truth = arms["transformers"][0]["output_ids"]
        for arm in ARMS[1:]:
            ids = arms[arm][0]["output_ids"]
            if ids != truth:
                target = target or shared_target(draftwood.load(header["model"], dtype=header["dtype"])[0])
                found = first_difference(target, arms[arm][0]["prompt_ids"], truth, ids)
                different[arm].append(f"{task}/{name} token {found.index}, margin {found.margin:.2g}")
    for arm, places in different.items():
        print(f"{arm}: {len(places)} of {len(groups)} texts differ from transformers' own", *places, sep="\n  ")


def geometric(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("core.jsonl"))
    parser.add_argument("--report", type=Path, help="only print the tables of this file")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=int, default=8, help="prompts per kind")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    args = parser.parse_args()
    if args.report is None:
        measure(args)
    report(args.report or args.output)


if __name__ == "__main__":
    main()
