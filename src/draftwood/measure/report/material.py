"""Reads the files of a report, checks that they belong together and joins them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from draftwood.errors import RecordError, UsageError
from draftwood.measure.records.lines import read_lines
from draftwood.measure.records.records import TRACED, Records, read_records
from draftwood.measure.wording import count

_SAME = ("model", "dtype", "threads", "device", "processor", "cores")
"""Facts that must be equal in all files that have them: else their timings cannot be compared."""


@dataclass(slots=True)
class Material:
    """Everything that a page shows."""

    headers: list[tuple[str, dict[str, Any]]]  # (file name, header) of each file
    # Of bench and simulate: renumbered answers, differences and sustained runs.
    records: Records = field(default_factory=lambda: Records({}))
    profile: list[dict[str, Any]] = field(default_factory=list)
    runs: int = 0  # files of bench: the rounds of one are not interleaved with another's

    @property
    def facts(self) -> dict[str, Any]:
        """Model, dtype, threads, device, processor and cores, as far as the files have them."""
        return {name: value for _, header in self.headers for name, value in _facts(header).items()}


def gather(paths: Sequence[Path]) -> Material:
    """Read and join files. Raises `UsageError` if one cannot be opened, is given twice or does not belong to the
    others, `RecordError` for a broken file and one without anything to show."""
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("a file is given twice: name each once")
    read = [(path, _read(path)) for path in paths]
    if len(profiles := [path for path, records in read if records.header["verb"] == "profile"]) > 1:
        raise UsageError(f"{profiles[0]} and {profiles[1]} are both profiles: give one of them")
    headers = [records.header for _, records in read]
    for one, two in combinations(headers, 2):
        _refuse_apart(one, two)
    _refuse_other_prompts(read)
    planners = {planner for header in headers if (planner := header["settings"].get("planner")) is not None}
    measured = any(header["verb"] in ("bench", "generate") for header in headers)
    found = Material([(path.name, records.header) for path, records in read])
    for path, records in read:
        _join(found, path, records, several_planners=len(planners) > 1, measured=measured)
    if not (found.records.answers or found.records.others or found.profile):
        raise RecordError(f"{paths[0]} holds nothing that a report shows: give records of bench or a profile")
    return found


def _read(path: Path) -> Records:
    _, first = next(read_lines(path), (0, {}))
    if first.get("row") == "trace" or first.get("verb") == "trace":
        replay = f"draftwood simulate {path} -o RECORDS.jsonl"
        raise RecordError(f"{path} is a trace: replay it ({replay}) and give those records")
    records = read_records(path)
    if not records.answers and not records.others:
        raise RecordError(f"{path} holds a header and nothing to show: run the command that wrote it to its end")
    return records


def _facts(header: Mapping[str, Any]) -> dict[str, Any]:
    known = {**header.get("provenance", {}), **header.get("settings", {})}
    return {name: known[name] for name in _SAME if known.get(name) is not None}


def _refuse_other_prompts(read: Sequence[tuple[Path, Records]]) -> None:
    prompts: dict[tuple[str, str], tuple[Path, list[int]]] = {}
    for path, answer in ((path, answer) for path, records in read for answer in records.answers):
        first, ids = prompts.setdefault((answer.task, answer.name), (path, answer.prompt_ids))
        if ids != answer.prompt_ids:
            raise UsageError(
                f"{first} and {path} have different prompts named {answer.task} {answer.name}: make two reports"
            )


def _refuse_apart(one: Mapping[str, Any], two: Mapping[str, Any]) -> None:
    """Refuse files whose timings cannot be compared."""
    a, b, apart = _facts(one), _facts(two), list[str]()
    if differing := next((name for name in _SAME if name in a and name in b and a[name] != b[name]), None):
        apart = [f"of {_described(facts, differing)}" for facts in (a, b)]
    elif one["verb"] == two["verb"] == "bench":
        for name in ("max_new_tokens", "temperature", "seed"):
            before, now = one["settings"].get(name), two["settings"].get(name)
            if before != now:
                apart = apart or [f"with {name} {before!r}", f"with {now!r}"]
    if apart:
        raise UsageError(f"records {apart[0]} and {apart[1]} cannot stand in one table: make two reports")


def _described(facts: Mapping[str, Any], differs: str) -> str:
    """Name the model, and the fact that differs."""
    name = " ".join(str(facts[n]) for n in ("model", "dtype") if n in facts)
    if differs in ("model", "dtype"):
        return name
    fact = count(facts[differs], differs[:-1]) if differs in ("threads", "cores") else str(facts[differs])
    return f"{name} on {fact}" if name else fact


def _join(found: Material, path: Path, records: Records, *, several_planners: bool, measured: bool) -> None:
    known = found.records.answers
    base, taken = 1 + max((a.id for a in known), default=-1), {a.key for a in known}
    later = 1 + max((a.round for a in known), default=-1)
    number: dict[int, int] = {}
    for answer in records.answers:
        arm = answer.arm
        if several_planners and answer.planner is not None and arm != "none":
            arm = f"{arm} {answer.planner}"  # as simulate names arms of several planners
        if measured and answer.engine == "replay":
            if arm == "none":  # plain decoding was measured: its replay adds nothing
                continue
            arm = f"{arm} (replayed)"
        number[answer.id] = base + len(number)
        answer = dataclasses.replace(answer, id=number[answer.id], arm=arm)
        if answer.key in taken and answer.round == TRACED:
            continue
        answer.round += later if answer.key in taken else 0  # the same run once more: further rounds
        known.append(answer)
    found.runs += bool(records.answers) and records.header["verb"] == "bench"
    found.profile += [row for row in records.others if row.get("row") in ("pass", "prefill")]
    found.records.others += records.of_kind("sustained")
    for record in records.of_kind("difference"):
        try:
            renumbered = {name: number[record[name]] for name in ("answer", "against")}
        except KeyError as error:
            raise RecordError(f"{path}: a difference names answer {error}, which is not in the file") from error
        found.records.others.append(record | renumbered)
