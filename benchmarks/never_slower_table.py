"""The tables of never_slower.py: per task and temperature, the worst prompts, the cells of document 3."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.stats import bootstrap

from draftwood.measure.records.records import Records, read_records

# Tables 1 and 2 of "N-gram Parrot" (Kim, Kim and Oh, KAIST): models of 7B to 8x7B, 100 prompts a task.
MODELS = ("Llama-2-7b", "Llama-2-13b", "Meta-Llama-3-8B", "Mixtral-8x7B", "Mistral-7B")
TABLE_1 = {
    "web-qa": ("Web browsing", (94.53, 98.79, 111.08, 109.74, 101.84)),
    "summary": ("Summarization", (94.04, 96.32, 107.09, 99.79, 98.41)),
    "grammar": ("Grammar check", (98.12, 95.83, 114.87, 110.90, 105.74)),
    "chat": ("ChatGPT prompts", (107.49, 104.90, 116.00, 120.45, 104.19)),
}
TABLE_2 = {
    "web-qa:one-sentence": ("Web browsing", (93.31, 98.36, 102.49, 106.13, None)),
    "grammar:one-sentence": ("Grammar check", (87.86, 94.94, 118.42, 104.99, None)),
}
"""Table 2 has no row for Mistral-7B."""

ARMS = ("plain", "default")
TASK, TASK_NOISE, PROMPT = 1.0, 0.99, 0.93
"""Limits of the speedup: of a task, with an interval that reaches the first; and of a single prompt."""

TEMPERATURES = (0.0, 0.7, 1.0)
PARTS = ("plan", "draft", "verify", "keep", "learn")


@dataclass(frozen=True)
class Pair:
    """Both arms on one prompt at one temperature, in one round."""

    task: str
    name: str
    temperature: float
    round: int
    plain: dict[str, Any]
    ours: dict[str, Any]

    @property
    def seconds(self) -> tuple[float, float]:
        """Of plain decoding, for as many tokens as ours wrote, and of ours."""
        tokens = self.ours["tokens"] / self.plain["tokens"]
        return self.plain["decode_s"] * tokens, self.ours["decode_s"]

    @property
    def speedup(self) -> float:
        above, below = self.seconds
        return above / below

    @property
    def tells(self) -> bool:
        """Whether there was a step to time: an answer of a single token has none."""
        return bool(self.plain["tokens"] and self.ours["tokens"])

    @property
    def identical(self) -> bool:
        return bool(self.plain["output_ids"] == self.ours["output_ids"])


def pairs(rows: Records) -> list[Pair]:
    """Complete pairs, the latest of each."""
    found: dict[tuple[str, str, float, int], dict[str, Any]] = {}
    for row in rows.of_kind("run"):
        found.setdefault((row["task"], row["name"], row["temperature"], row["round"]), {})[row["arm"]] = row
    return [Pair(*key, *(arms[a] for a in ARMS)) for key, arms in found.items() if len(arms) == len(ARMS)]


def telling(rows: Records) -> list[Pair]:
    """Pairs that say something about speed."""
    return [pair for pair in pairs(rows) if pair.tells]


def ratio(some: Sequence[Pair]) -> tuple[float, tuple[float, float] | None]:
    """Summed seconds of plain over ours, and the 95 % interval over prompts."""
    above, below = np.array([pair.seconds for pair in some]).T
    found = float(above.sum() / below.sum())
    if len(some) < 2:
        return found, None
    interval = bootstrap(
        (above, below), lambda a, b, axis: a.sum(axis=axis) / b.sum(axis=axis), paired=True, vectorized=True,
        n_resamples=2000, method="percentile", rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    return found, (float(interval.low), float(interval.high))


def grouped(some: Iterable[Pair]) -> dict[tuple[str, float], list[Pair]]:
    found: dict[tuple[str, float], list[Pair]] = {}
    for pair in some:
        found.setdefault((pair.task, pair.temperature), []).append(pair)
    return found


def show(paths: Sequence[Path]) -> int:
    """Print everything; returns 1 where a limit is missed."""
    files = [read_records(path) for path in paths]
    some, said = telling(files[0]), files[0].header["provenance"]
    print(f"`{said['command']}`: {said['processor']}, {said.get('threads')} threads, {said['date']}\n")
    if not some:
        print("no pair with a step to time")
        return 1
    held = tasks(some)
    held += prompts(some, [pair for rows in files[1:] for pair in telling(rows)])
    held += cells(some, files[0].header["settings"])
    print(verdict(held))
    return int(bool(held.missed))


@dataclass
class Held:
    """What was held against the limits: where one is missed, and what these records cannot show."""

    missed: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def __add__(self, other: Held) -> Held:
        return Held(self.missed + other.missed, self.unchecked + other.unchecked)


def verdict(held: Held) -> str:
    said = "; ".join(held.missed) or ("none missed" if held.unchecked else "met")
    return f"limits: {said}" + (f"; not checked: {', '.join(held.unchecked)}" if held.unchecked else "")


def slower(found: float, interval: tuple[float, float] | None) -> bool:
    """Whether a speedup over a task is below its limit, less what is allowed for noise."""
    return found < TASK_NOISE or (found < TASK and interval is not None and interval[1] < TASK)


def tasks(some: Sequence[Pair]) -> Held:
    print("| task | T | prompts | speedup | 95 % interval | tokens/pass | beside it | worst prompt | differ |")
    print("|---" * 9 + "|")
    held = Held(unchecked=[f"T={t:g}" for t in TEMPERATURES if t not in {pair.temperature for pair in some}])
    for (task, temperature), members in grouped(some).items():
        found, interval = ratio(members)
        lowest = min(members, key=lambda pair: pair.speedup)
        passes, tokens = (sum(pair.ours[what] for pair in members) for what in ("passes", "tokens"))
        print(
            f"| {task} | {temperature:g} | {len(members)} | {found:.3f} | {spread(interval)} | "
            f"{tokens / passes:.2f} | {beside(members):.0f} us | "
            f"{lowest.name} {lowest.speedup:.2f} | {sum(not pair.identical for pair in members)} |"
        )
        if slower(found, interval):
            held.missed.append(f"{task} at T={temperature:g}: {found:.3f}")
    print("\nbeside it: what our loop takes beside a pass, less what plain decoding takes per token too; ", end="")
    print("differ: texts that are not plain's\n")
    return held


def beside(members: Sequence[Pair]) -> float:
    """Microseconds beside each pass, without what plain decoding takes per token too (sampling above all)."""

    def apart(one: dict[str, Any]) -> float:
        return float(sum(one[f"{part}_s"] for part in PARTS))

    extra = sum(apart(p.ours) - apart(p.plain) * p.ours["tokens"] / p.plain["tokens"] for p in members)
    return 1e6 * extra / sum(pair.ours["passes"] for pair in members)


def spread(interval: tuple[float, float] | None) -> str:
    return f"{interval[0]:.3f} to {interval[1]:.3f}" if interval else ""


def prompts(some: Sequence[Pair], again: Sequence[Pair]) -> Held:
    """The slowest prompts, and what they gave when run again; only that is held against the limit."""
    rounds: dict[tuple[str, str, float], list[Pair]] = {}
    for pair in again:
        rounds.setdefault((pair.task, pair.name, pair.temperature), []).append(pair)
    held, unchecked = Held(), 0
    print("| slowest prompts | T | first | again: median of rounds | rounds |\n|---|---|---|---|---|")
    for pair in sorted(some, key=lambda pair: pair.speedup)[:10]:
        more = rounds.get((pair.task, pair.name, pair.temperature), [])
        second = median(one.speedup for one in more) if more else None
        said = "" if second is None else f"{second:.3f}"
        print(f"| {pair.task} {pair.name} | {pair.temperature:g} | {pair.speedup:.3f} | {said} | {len(more)} |")
        unchecked += second is None
        if second is not None and second < PROMPT:
            held.missed.append(f"{pair.task} {pair.name} at T={pair.temperature:g}: {second:.3f}")
    print()
    if unchecked:
        held.unchecked.append(f"{unchecked} of the slowest prompts, not run again")
    return held


def cells(some: Sequence[Pair], settings: dict[str, Any]) -> Held:
    """Seconds as per cent of plain, greedy, beside the published rows of the "N-gram Parrot" paper."""
    greedy = {task: members for (task, temperature), members in grouped(some).items() if not temperature}
    held = Held()
    for number, published in ((1, TABLE_1), (2, TABLE_2)):
        present = [task for task in published if task in greedy]
        held.unchecked += [f"document 3's {task}" for task in published if task not in greedy]
        if not present:
            continue
        print(f"Document 3, table {number}: per cent of plain time per token\n")
        print("| | " + " | ".join(published[task][0] for task in present) + " |")
        print("|---" * (1 + len(present)) + "|")
        for i, model in enumerate(MODELS):
            values = [published[task][1][i] for task in present]
            if any(values):
                said = ["" if value is None else f"{value:.2f}" for value in values]
                print(f"| {model}, published | " + " | ".join(said) + " |")
        ours = []
        for task in present:
            found, interval = ratio(greedy[task])
            around = f" [{100 / interval[1]:.1f}, {100 / interval[0]:.1f}]" if interval else ""
            ours.append(f"{100 / found:.2f}{around}")
            if slower(found, interval):
                held.missed.append(f"document 3's {task}: {100 / found:.2f} %")
        print(f"| {settings['model']}, {settings['dtype']} | " + " | ".join(ours) + " |\n")
    return held
