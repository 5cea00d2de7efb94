"""Reads files of records, checks that they belong together and joins them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from statistics import fmean

from draftwood.errors import RecordError, UsageError
from draftwood.measure.records.records import TRACED, Answer, Records, Row, read_records

_SAME = ("model", "dtype", "threads", "device", "processor", "cores")
"""Facts that must be equal in all files that have them: else their timings cannot be compared."""


@dataclass(slots=True)
class Material:
    """Everything that a page shows."""

    headers: list[tuple[str, Row]]  # (file name, header) of each file
    # Of bench and generate: answers (an id may stand for one of each file) and sustained runs.
    records: Records = field(default_factory=lambda: Records({}))
    # Records of differences, each with the answer that differs and the one of plain decoding.
    differences: list[tuple[Row, Answer, Answer]] = field(default_factory=list)
    profile: list[Row] = field(default_factory=list)
    # Of bench, whose sittings' rounds are not interleaved: file, date, timed answers, and of other programs the
    # cores that they took meanwhile (``taken``) and the load of the minute before.
    sittings: list[Row] = field(default_factory=list)
    # Of each file: cores that other programs took during its runs, and load of the minute before one began.
    busy: list[tuple[float | None, float | None]] = field(default_factory=list)

    @property
    def facts(self) -> Row:
        """Model, dtype, threads, device, processor and cores, as far as the files have them."""
        return self.records.facts


def explainable(path: Path) -> list[Answer]:
    """Return the answers of a records file that have steps of drafters, in its order.

    Raises `UsageError` if it has none or cannot be opened, and `RecordError` for a broken file.
    """
    answers = [a for a in _read(path).answers if a.steps]
    if drafted := [a for a in answers if a.drafters]:
        return drafted
    held = "plain decoding only, which drafts nothing" if answers else "no steps of answers"
    raise UsageError(f"{path} holds {held}: give records that draftwood generate or bench wrote with -o")


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
    found = Material([(path.name, records.header) for path, records in read])
    facts = {name: value for header in headers for name, value in _facts(header).items()}
    found.records.header["provenance"] = facts
    for path, records in read:
        _join(found, path, records, several_planners=len(planners) > 1)
    if not (found.records.answers or found.records.others or found.profile):
        raise RecordError(f"{paths[0]} holds nothing that a report shows: give records of bench or a profile")
    return found


def _read(path: Path) -> Records:
    records = read_records(path)
    if not records.answers and not records.others:
        raise RecordError(f"{path} holds a header and nothing to show: run the command that wrote it to its end")
    return records


def _facts(header: Row) -> Row:
    known = Records(dict(header)).facts
    return {name: known[name] for name in _SAME if known.get(name) is not None}


def _refuse_other_prompts(read: Sequence[tuple[Path, Records]]) -> None:
    prompts: dict[tuple[str, str], tuple[Path, list[int]]] = {}
    for path, answer in ((path, answer) for path, records in read for answer in records.answers):
        first, ids = prompts.setdefault((answer.task, answer.name), (path, answer.prompt_ids))
        if ids != answer.prompt_ids:
            raise UsageError(
                f"{first} and {path} have different prompts named {answer.task} {answer.name}: make two reports"
            )


def _refuse_apart(one: Row, two: Row) -> None:
    """Refuse files whose timings cannot be compared."""
    a, b = one["settings"] | _facts(one), two["settings"] | _facts(two)
    apart = [name for name in _SAME if name in a and name in b and a[name] != b[name]]
    if one["verb"] == two["verb"] == "bench":
        apart += [name for name in ("max_new_tokens", "temperature", "seed") if a.get(name) != b.get(name)]
    if apart:
        said = f"{apart[0]} {a.get(apart[0])!r} and with {b.get(apart[0])!r}"
        raise UsageError(f"records with {said} cannot stand in one table: make two reports")


def _sittings(path: Path, records: Records) -> Iterator[Row]:
    """Yield the sittings of a file of bench that timed something."""
    if records.header["verb"] != "bench":
        return
    for number, one in enumerate((records.header, *records.of_kind("resumed"))):
        timed = [a for a in records.answers if a.sitting == number and a.round != TRACED]
        known, (load, *_) = one.get("provenance", {}), one.get("provenance", {}).get("load_average") or [None]
        taken = [a.other_programs for a in timed if a.other_programs is not None]
        if timed:
            yield {
                "file": path.name, "date": known.get("date", "undated"), "answers": len(timed), "load": load,
                "taken": fmean(taken) if taken else None,
            }  # fmt: skip


def _join(found: Material, path: Path, records: Records, *, several_planners: bool) -> None:
    found.sittings += _sittings(path, records)
    known, by_id = found.records.answers, dict[int, Answer]()
    taken, later = {a.key for a in known}, 1 + max((a.round for a in known), default=-1)
    sittings = 1 + max((a.sitting for a in known), default=-1)
    is_known = any(a.key in taken for a in records.answers if a.round != TRACED)  # then these are further rounds
    for answer in records.answers:
        if several_planners and answer.planner is not None and answer.arm != "none":
            answer.arm += f" {answer.planner}"
        by_id[answer.id] = answer
        if answer.key in taken and answer.round == TRACED:
            continue
        answer.sitting += sittings
        answer.round += later if is_known and answer.round != TRACED else 0
        known.append(answer)
    begun = [row.get("provenance", {}) for row in (records.header, *records.of_kind("resumed"))]
    others = (row["other_programs"] for row in records.of_kind("machine"))
    loads = (load[0] for one in begun if (load := one.get("load_average")))
    found.busy.append((max(others, default=None), max(loads, default=None)))
    found.profile += [row for row in records.others if row.get("row") in ("pass", "prefill")]
    found.records.others += records.of_kind("sustained")
    for record in records.of_kind("difference"):
        try:
            found.differences.append((record, by_id[record["answer"]], by_id[record["against"]]))
        except KeyError as error:
            raise RecordError(f"{path}: a difference names answer {error}, which is not in the file") from error
