"""What a report is made from: several files, checked to belong together, joined."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from draftwood.errors import RecordError, UsageError
from draftwood.measure.explain.why import count
from draftwood.measure.records.lines import read_lines
from draftwood.measure.records.records import Answer, Records, read_records

_SAME = ("model", "dtype", "threads", "device", "processor", "cores")
"""What must be the same in all files, where they tell: timings of others cannot stand side by side."""

_PROFILE = ("pass", "tree", "prefill", "sampling", "memory")


@dataclass(slots=True)
class Material:
    """Everything that a page shows."""

    rows: Records = field(
        default_factory=lambda: Records({})
    )  # of bench and simulate: answers, numbered anew, and others
    probed: list[Answer] = field(default_factory=list)
    profile: list[dict[str, Any]] = field(default_factory=list)
    headers: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # of each file, by its name
    runs: int = 0  # files with timed answers: the rounds of one are not interleaved with another's

    @property
    def facts(self) -> dict[str, Any]:
        """Model, dtype, threads, device, processor and cores, as far as the files tell."""
        return {name: value for _, header in self.headers for name, value in _facts(header).items()}


def gather(paths: Sequence[Path]) -> Material:
    """Read and join files.

    Raises
    ------
    UsageError
        If a file cannot be opened, files do not belong together, or a file is given twice.
    RecordError
        For a broken file, and for one without anything to show.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("a file is given twice: name each once")
    read = [(path, _read(path)) for path in paths]
    if len(profiles := [path for path, rows in read if rows.header["verb"] == "profile"]) > 1:
        raise UsageError(f"{profiles[0]} and {profiles[1]} are both profiles: give one of them")
    for (_, one), (_, two) in combinations(read, 2):
        _compare(one.header, two.header)
    _same_prompts(read)
    planners = {p for _, rows in read if (p := rows.header["settings"].get("planner")) is not None}
    verbs = {rows.header["verb"] for _, rows in read}
    apart = {"several_planners": len(planners) > 1, "beside_measured": bool(verbs & {"bench", "generate"})}
    found = Material(headers=[(path.name, rows.header) for path, rows in read])
    for path, rows in read:
        if rows.header["verb"] == "probe":
            found.probed += rows.answers
        else:
            _join(found, path, rows, **apart)
    if not (found.rows.answers or found.rows.others or found.probed or found.profile):
        raise RecordError(
            f"{paths[0]} holds nothing that a report shows: give rows of bench, simulate, probe, profile"
        )
    return found


def _read(path: Path) -> Records:
    _, first = next(read_lines(path), (0, {}))
    if first.get("row") == "trace" or first.get("verb") == "trace":
        raise RecordError(
            f"{path} is a trace: replay it (draftwood simulate {path} -o ROWS.jsonl) and give those rows"
        )
    rows = read_records(path)
    if not rows.answers and not rows.others:
        raise RecordError(f"{path} holds a header and nothing to show: run the command that wrote it to its end")
    return rows


def _facts(header: Mapping[str, Any]) -> dict[str, Any]:
    said = {**header.get("provenance", {}), **header.get("settings", {})}
    return {name: said[name] for name in _SAME if said.get(name) is not None}


def _same_prompts(read: Sequence[tuple[Path, Records]]) -> None:
    prompts: dict[tuple[str, str], tuple[Path, Answer]] = {}
    for path, answer in ((path, answer) for path, rows in read for answer in rows.answers):
        first, same = prompts.setdefault((answer.task, answer.name), (path, answer))
        if same.prompt_ids != answer.prompt_ids:
            raise UsageError(
                f"{first} and {path} have different prompts named {answer.task} {answer.name}: make two reports"
            )


def _compare(one: Mapping[str, Any], two: Mapping[str, Any]) -> None:
    """Refuse files whose timings cannot stand beside each other's."""
    a, b = _facts(one), _facts(two)
    for name in _SAME:
        if name in a and name in b and a[name] != b[name]:
            said = (_described(a, name), _described(b, name))
            raise UsageError(f"rows of {said[0]} and of {said[1]} cannot stand in one table: make two reports")
    if one["verb"] == two["verb"] == "bench":
        for name in ("max_new_tokens", "temperature", "seed"):
            before, now = one["settings"].get(name), two["settings"].get(name)
            if before != now:
                raise UsageError(
                    f"rows with {name} {before!r} and with {now!r} cannot stand in one table: make two reports"
                )


def _described(facts: Mapping[str, Any], differs: str) -> str:
    """Name what was measured, and what makes it another one."""
    name = " ".join(str(facts[n]) for n in ("model", "dtype") if n in facts)
    if differs in ("model", "dtype"):
        return name
    said = count(facts[differs], differs[:-1]) if differs in ("threads", "cores") else str(facts[differs])
    return f"{name} on {said}" if name else said


def _join(found: Material, path: Path, rows: Records, *, several_planners: bool, beside_measured: bool) -> None:
    known = found.rows.answers
    base, taken = 1 + max((a.id for a in known), default=-1), {a.key for a in known}
    later = 1 + max((a.round for a in known), default=-1)
    number: dict[int, int] = {}
    for answer in rows.answers:
        arm = answer.arm
        if several_planners and answer.planner is not None and arm != "none":
            arm = f"{arm} {answer.planner}"  # as simulate names arms of several planners
        if beside_measured and answer.engine == "replay":
            if arm == "none":  # plain decoding was measured: its replay says nothing
                continue
            arm = f"{arm} (replayed)"
        number[answer.id] = base + len(number)
        answer = dataclasses.replace(answer, id=number[answer.id], arm=arm)
        if answer.key in taken:  # the same run once more: further rounds
            answer.round += later
        known.append(answer)
    found.runs += bool(rows.answers) and rows.header["verb"] == "bench"
    found.profile += [row for row in rows.others if row.get("row") in _PROFILE]
    found.rows.others += [_renumbered(path, row, number) for row in rows.of_kind("difference")]
    found.rows.others += rows.of_kind("sustained")


def _renumbered(path: Path, row: Mapping[str, Any], number: Mapping[int, int]) -> dict[str, Any]:
    try:
        return {**row, "answer": number[row["answer"]], "against": number[row["against"]]}
    except KeyError as error:
        raise RecordError(f"{path}: a difference names answer {error}, which is not in the file") from error
