"""The tables of own_passes.py: emitted tokens per pass, beside the figures that the work began with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from draftwood.decoding.sequence import common_prefix
from draftwood.measure.records import timing
from draftwood.measure.records.records import Answer, Records, read_records
from draftwood.step import Step

MIX = ("web-qa", "summary", "code-edit", "grammar", "chat")
PARTS = ("plan", "draft", "score", "verify", "keep", "learn")

ORIENTATION: dict[tuple[int, bool], dict[str, tuple[float, ...]]] = {
    (32, False): {
        "copies": (1.93, 1.99, 6.14, 2.37, 1.70),
        "recycled": (1.90, 1.72, 2.75, 1.72, 1.73),
        "both": (2.11, 2.19, 6.30, 2.72, 1.79),
    },
    (32, True): {"both": (2.45, 2.45, 7.14, 2.78, 1.97)},
    (64, True): {"both": (2.54, 2.52, 7.63, 2.99, 2.03)},
}
"""Emitted tokens per pass of smollm2, greedy, per (draft nodes, state kept across requests), sources and kind of
`MIX`: a simulation that learned from the records of the accepted path alone, on 20 prompts per kind."""

MODEL = "smollm2"
OF_ORIENTATION = 1.08
"""Copies and recycling together at 32 nodes must reach so many times the orientation."""
OF_MIX = {(64, False): 2.85, (64, True): 3.1}
"""And so many tokens per pass over the mix at 64."""
LOOKAHEAD_CHAT = 1.3
RECYCLING = frozenset({"recycling"})
OTHER_OWN = frozenset({"lookahead", "jacobi", "logits-extend"})
"""Sources that are neither copies nor recycled."""


class Group(NamedTuple):
    """What is compared: arms by budget and temperature."""

    model: str
    tokens: int
    temperature: float
    draft: int
    across: bool
    arm: str


@dataclass(frozen=True)
class Run:
    """One answer of one arm; lists have a number per pass, sums leave the passes of the looped tail out."""

    group: Group
    task: str
    name: str
    output_ids: list[int]
    emitted: list[int]
    accepted: list[int]
    drafted: list[int]
    lookahead_scored: list[int]
    by_source: dict[str, dict[str, int]]
    seconds: dict[str, float]

    @cached_property
    def answer(self) -> Answer:
        """The same as the bench's tables count it."""
        arrivals = [[float(n), 0.0] for n in accumulate(self.emitted, initial=1)]
        return Answer(0, self.task, self.name, self.group.arm, output_ids=self.output_ids, arrivals=arrivals)

    @cached_property
    def passes(self) -> int:
        """Passes before the looped tail."""
        return timing.passes(self.answer, timing.kept(self.answer)) or 0


OLD_NAMES = {"lookahead_scored": "probed"}
"""Names in records of 0.1.0."""

OF_A_RUN = tuple(f.name for f in fields(Run) if f.name != "group")


def line(answer: Answer) -> dict[str, Any]:
    """Return the fields of a row that tell what happened."""
    steps = timing.steps_until(answer, timing.kept(answer))
    return {
        "output_ids": answer.output_ids,
        "emitted": [len(s.emitted) for s in answer.steps],
        "accepted": [s.accepted for s in answer.steps],
        "drafted": [s.drafted for s in answer.steps],
        "lookahead_scored": [s.lookahead_scored for s in answer.steps],
        "by_source": {name: _of_source(steps, i) for i, name in enumerate(answer.drafters)},
        "seconds": {part: round(sum(getattr(s, f"{part}_s") for s in steps), 6) for part in PARTS},
    }


def _of_source(steps: Sequence[Step], index: int) -> dict[str, int]:
    own = [s.by_source[index] for s in steps]
    counts = ("calls", "proposed", "kept", "accepted", "lookahead_nodes", "failed")
    return {name: sum(getattr(s, name) for s in own) for name in counts}


def runs(files: Iterable[Records]) -> list[Run]:
    """The latest of each."""
    found: dict[Any, Run] = {}
    for rows in files:
        said = rows.header["settings"]
        for row in rows.of_kind("run"):
            given = (said["model"], said["max_new_tokens"], row["temperature"], row["draft"], said["across"])
            group = Group(*given, row["arm"])
            run = Run(
                group, **{name: row[OLD_NAMES.get(name, name) if name not in row else name] for name in OF_A_RUN}
            )
            found[group, run.task, run.name] = run
    return list(found.values())


def grouped(some: Iterable[Run]) -> dict[Group, list[Run]]:
    found: dict[Group, list[Run]] = {}
    for run in some:
        found.setdefault(run.group, []).append(run)
    return found


def length(some: Sequence[Run]) -> float:
    """Mean acceptance length: summed tokens over summed passes, looped tails left out."""
    return timing.acceptance_length([run.answer for run in some], unlooped=True) or 0.0


def lengths(some: Sequence[Run]) -> dict[str, float]:
    """The same per kind, and over the mix where all of it is there."""
    kinds = list(dict.fromkeys(run.task for run in some))
    found = {kind: length([run for run in some if run.task == kind]) for kind in kinds}
    if set(MIX) <= set(kinds):
        found["mix"] = length([run for run in some if run.task in MIX])
    return found


def sources(some: Sequence[Run]) -> str | None:
    """Which line of the orientation these stand beside, if one."""
    names = {name for run in some for name in run.by_source}
    if not names or names & OTHER_OWN:
        return None
    if not names & RECYCLING:
        return "copies"
    return "both" if names - RECYCLING else "recycled"


def orientation(group: Group, some: Sequence[Run]) -> dict[str, float]:
    """What an arm is held against, per kind; empty where there is nothing."""
    lines = ORIENTATION.get((group.draft, group.across), {}) if group.model == MODEL else {}
    values = lines.get(sources(some) or "")
    return dict(zip(MIX, values, strict=True)) if values else {}


def limits(group: Group, some: Sequence[Run]) -> dict[str, float]:
    """What a greedy arm of smollm2 must reach, per kind and over the mix."""
    if group.model != MODEL or group.temperature:
        return {}
    least: dict[str, float] = {}
    if sources(some) == "both" and group.draft == 32:
        least = {kind: OF_ORIENTATION * value for kind, value in orientation(group, some).items()}
    if sources(some) == "both" and (group.draft, group.across) in OF_MIX:
        least["mix"] = OF_MIX[group.draft, group.across]
    if {name for run in some for name in run.by_source} == {"lookahead"}:
        least["chat"] = LOOKAHEAD_CHAT
    return least


def verdict(groups: Mapping[Group, Sequence[Run]]) -> tuple[str, bool]:
    """What is said of the limits, and whether one was missed."""
    checked, missed = 0, []
    for group, members in groups.items():
        found = lengths(members)
        for kind, least in limits(group, members).items():
            checked += kind in found
            if kind in found and found[kind] < least:
                missed.append(
                    f"{group.arm} at {group.draft}, {_state(group)}, {kind}: {found[kind]:.3f} of {least:.3f}"
                )
    said = "; ".join(missed) or ("none missed" if checked else "none to check")
    return f"limits ({checked} checked): {said}", bool(missed)


def differing(some: Iterable[Run]) -> Iterator[tuple[Run, Run, int]]:
    """Texts that are not the first arm's: the run, that arm's, and the first place where they part."""
    first: dict[Any, Run] = {}
    for run in some:
        against = first.setdefault((*run.group[:3], run.task, run.name), run)
        if against.output_ids != run.output_ids:
            yield run, against, common_prefix(run.output_ids, against.output_ids)


def show(paths: Sequence[Path]) -> int:
    """Print everything; returns 1 where a limit is missed."""
    some = runs(read_records(path) for path in paths)
    groups = grouped(some)
    if not groups:
        print("no answer yet")
        return 1
    print("Emitted tokens per pass, looped tails left out; below, where there is one, times the orientation\n")
    _print_lengths(groups)
    _print_parts(groups)
    parting = list(differing(some))
    print(f"texts: {len(parting)} of {len(some)} differ from the first arm's")
    for run, against, place in parting:
        which, first = run.group, against.group
        parted = f"parts from {first.arm} at {first.draft} at token {place}"
        print(f"{which.arm} at {which.draft}, T={which.temperature:g}, {run.task} {run.name}: {parted}")
    failed = Counter[str]()
    for run in some:
        failed.update({name: counts["failed"] for name, counts in run.by_source.items()})
    for name, count in (+failed).items():
        print(f"{name} failed in {count} answers")
    said, short = verdict(groups)
    print(f"\n{said}")
    return int(short)


def _state(group: Group) -> str:
    return "across" if group.across else "within"


def _labels(group: Group) -> str:
    cells = (group.model, f"{group.temperature:g}", str(group.draft), _state(group), f"`{group.arm}`")
    return "| " + " | ".join(cells)


_HEAD = "| model | T | nodes | state | arm | "


def _print_lengths(groups: dict[Group, list[Run]]) -> None:
    present = {run.task for members in groups.values() for run in members}
    kinds = [*(k for k in MIX if k in present), *sorted(present - set(MIX)), "mix"]
    print(_HEAD + " | ".join([*kinds, "prompts"]) + " |")
    print("|---" * (len(kinds) + 6) + "|")
    for group, members in groups.items():
        found, beside = lengths(members), orientation(group, members)
        cells = [f"{found[k]:.2f}" if k in found else "" for k in kinds]
        print(_labels(group) + " | " + " | ".join([*cells, str(len(members))]) + " |")
        if beside:
            cells = [f"{found[k] / beside[k]:.2f}" if k in found and k in beside else "" for k in kinds]
            print("| | | | | times the orientation | " + " | ".join([*cells, ""]) + " |")


def _print_parts(groups: dict[Group, list[Run]]) -> None:
    columns = (
        "acceptance rate",
        "coverage",
        "nodes per pass",
        "lookahead nodes per pass",
        "accepted per pass, by source",
    )
    print("\n" + _HEAD + " | ".join([*columns, *(f"{part} ms" for part in PARTS)]) + " |")
    print("|---" * (5 + len(columns) + len(PARTS)) + "|")
    for group, members in groups.items():
        print(_labels(group) + " | " + " | ".join(_parts(members)) + " |")
    print()


def scored(some: Sequence[Run]) -> tuple[float, float]:
    """Draft nodes and lookahead nodes per pass."""
    passes = sum(run.passes for run in some) or 1
    return (
        sum(sum(run.drafted[: run.passes]) for run in some) / passes,
        sum(sum(run.lookahead_scored[: run.passes]) for run in some) / passes,
    )


def _parts(some: Sequence[Run]) -> list[str]:
    """Per pass: what was scored, who was right (every source that proposed the node), where the time went."""
    passes = sum(run.passes for run in some) or 1
    drafted = [n for run in some for n in run.drafted[: run.passes]]
    accepted = sum(sum(run.accepted[: run.passes]) for run in some)
    of_source, seconds = Counter[str](), Counter[str]()
    for run in some:
        of_source.update({name: counts["accepted"] for name, counts in run.by_source.items()})
        seconds.update(run.seconds)
    nodes, lookahead_nodes = scored(some)
    return [
        f"{accepted / (sum(drafted) or 1):.3f}",
        f"{sum(map(bool, drafted)) / passes:.2f}",
        f"{nodes:.1f}",
        f"{lookahead_nodes:.1f}",
        ", ".join(f"{name} {count / passes:.2f}" for name, count in of_source.items()),
        *(f"{1e3 * seconds[part] / passes:.2f}" for part in PARTS),
    ]
