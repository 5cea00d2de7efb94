"""Makes a report page of some files, and writes it completely or not at all."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from draftwood.errors import RecordError, UsageError
from draftwood.files.paths import whole_file
from draftwood.local.crowding import crowds
from draftwood.measure.bench.table import APART, BUSY, sameness
from draftwood.measure.records.provenance import package_version
from draftwood.measure.records.records import TRACED, Answer, Row
from draftwood.measure.report import figures, shown
from draftwood.measure.report.reading import Material, gather
from draftwood.measure.report.sentences import arms
from draftwood.measure.report.standings import PLAIN_ARMS, Standings
from draftwood.measure.report.steps import TokenTexts
from draftwood.measure.wording import clean, count, number, percent, share

_BEFORE = 12  # tokens shown before the place where texts differ


def build(paths: Sequence[Path], title: str | None = None, most: int | None = None) -> tuple[str, int]:
    """Return the page of records of ``bench`` and ``generate`` and of a profile, without references to anything
    outside, and the number of answers that it shows; ``most`` as in `shown.choose`.

    Raises `UsageError` if a file cannot be opened or files differ in model, format, machine or prompts, and
    `RecordError` for a broken file and one without anything to show.
    """
    material = gather(paths)
    records, standings = material.records, Standings.of(material.records)
    answers, texts = shown.choose(records, standings, most), TokenTexts(records.answers)
    look = {name: i for i, name in enumerate(dict.fromkeys(n for a in answers for n in a.drafters))}
    name = " ".join(str(material.facts[n]) for n in ("model", "dtype") if n in material.facts)
    tails = {row["task"]: row for row in reversed(standings.plain or standings.rows)}
    values = {
        "title": title or (f"draftwood on {name}" if name else "draftwood"),
        "lead": lead(material, standings),
        "noise": noise(material, standings),
        "figure": headline(standings),
        "articles": [shown.article(answer, look, standings, answers[:i]) for i, answer in enumerate(answers)],
        "legend": [(name, f"c{number_ % shown.STYLES}") for name, number_ in look.items()],
        "told": arms(
            [a for a in told_once(records.answers) if a.drafters and a.arm in standings.foremost(MOST_TOLD)]
        ),
        "untold": bool(records.answers) and not answers,
        "sittings": material.sittings,
        "results": results(standings),
        "arms": sum(arm not in PLAIN_ARMS for arm in standings.arms),
        "most_arms": figures.MOST_ARMS,
        "prompts": figures.prompts(standings, records),
        "cost": figures.costs(material.profile),
        "pace": figures.trends(records.of_kind("sustained")),
        "differences": differences(material, standings, texts),
        "tails": [tails[task] for task in standings.tasks if task in tails],
        "headers": material.headers,
        "data": shown.data(answers, look, texts),
        "version": package_version("draftwood") or "",
    }
    return render(values), len(answers)


MOST_TOLD = 3  # best drafted arms whose steps are summed up in sentences; `draftwood explain` tells of all


def told_once(answers: Sequence[Answer]) -> list[Answer]:
    """Return the answers that have steps; where a text was written once more for its trace, only that writing: it
    knows the reasons, and no step counts twice."""
    traced = {(a.task, a.name, a.arm) for a in answers if a.steps and a.round == TRACED}
    return [a for a in answers if a.steps and (a.round == TRACED or (a.task, a.name, a.arm) not in traced)]


def render(values: Row) -> str:
    """Return the page as HTML; all values are escaped."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def as_text(value: Any) -> Any:
        return "" if value is None else value if isinstance(value, Markup) else clean(str(value))

    def read(name: str) -> str:
        return files("draftwood.measure.report").joinpath(name).read_text(encoding="utf-8")

    environment = Environment(
        autoescape=True, finalize=as_text, lstrip_blocks=True, trim_blocks=True, undefined=StrictUndefined
    )
    environment.filters.update(count=count, number=number, percent=percent, sameness=sameness, share=share)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    script = read("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    own = {"style": Markup(read("page.css")), "script": Markup(script), "hash": digest}
    return environment.from_string(read("page.html.j2")).render(own | values)


def write(path: Path, page: str, sources: Sequence[Path] = ()) -> int:
    """Write a page completely or not at all, and return its size in bytes.

    Raises `UsageError` if ``path`` is one of ``sources``, `RecordError` if it cannot be written.
    """
    if path.resolve() in {source.resolve() for source in sources}:
        raise UsageError(f"{path} is one of the files that the report is made from: choose another -o")
    content = page.encode()
    with whole_file(path, error=RecordError) as new:
        new.write_bytes(content)
    return len(content)


def lead(material: Material, standings: Standings) -> Row:
    """Return the facts of the first sentence: what was measured."""
    drafted = {arm: engine for arm, engine in standings.arms.items() if arm not in PLAIN_ARMS}
    others = [engine for engine in drafted.values() if engine != "draftwood"]
    answers = [a for a in material.records.answers if a.round != TRACED]
    times = Counter((a.task, a.name, a.arm) for a in answers).values()
    return {
        "facts": material.facts,
        "answers": len(material.records.answers),
        "profiled": bool(material.profile),
        "prompts": len({(a.task, a.name) for a in material.records.answers}),
        "tasks": len(standings.tasks),
        "rounds": " to ".join(map(str, sorted({min(times, default=1), max(times, default=1)}))),
        "plainly": len(drafted) < len(standings.arms),
        "ours": [arm for arm, engine in drafted.items() if engine == "draftwood"],
        "others": len(others),
        "engines": list(dict.fromkeys(others)),
    }


def noise(material: Material, standings: Standings) -> Row | None:
    """Return how busy the machine was with other programs while the busiest file was written, and the numbers of
    rows that are ``doubted`` or, for that reason, have no speedup (``apart``); None where nothing was timed or
    nothing is known.

    ``taken``: cores that they took meanwhile; ``load``: of the minute before, for a file without that.
    """
    facts, doubted = material.facts, sum(row["doubted"] for row in standings.rows)
    apart = sum(row["apart"] == BUSY for row in standings.rows)
    cores = facts.get("cores") or 0
    threads = facts.get("threads") or cores

    def others(file: tuple[float | None, float | None]) -> float:
        taken, load = file  # a load may be that of our own threads, which loaded the model or ran before
        return max(0.0, (load or 0.0) - threads) if taken is None else taken

    known = (file for file in material.busy if file != (None, None))
    taken, load = max(known, key=others, default=(None, None))
    timed = apart or any(row["gain"] for row in standings.rows)
    if not timed or (taken is load is None and not doubted and not apart):
        return None
    busy = crowds(others((taken, load)), cores, threads)
    told = {"taken": taken, "load": load, "cores": facts.get("cores")}
    return told | {"busy": busy, "doubted": doubted, "apart": apart}


def headline(standings: Standings) -> Row | None:
    """Return the headline figure and its rows, the worst task first; None if nothing was measured.

    It is the speedup (``gain``) if plain decoding was timed, else tokens per pass (``length``).
    """
    for kind in ("gain", "length"):
        means = standings.means(kind)
        if known := [m for m in means if standings.arms[m.arm] == "draftwood"] or means:
            best = max(known, key=lambda mean: mean.value)
            rows = [row for row in standings.drafted if row["drafter"] == best.arm and row[kind]]
            speeds = [prompt["speedup"] for row in rows for prompt in row["per_prompt"]]
            return {
                "kind": kind, "arm": best.arm, "of": len(known), "value": best.value, "prompts": len(speeds),
                "slower": sum(speed < 1 for speed in speeds), "lines": sorted(rows, key=lambda row: row[kind]),
            }  # fmt: skip
    return None


_SPEED: dict[str, Callable[[Row], str]] = {
    "Speedup": lambda r: r["apart"] or number(r["gain"]),
    "95 % interval": lambda r: (
        "{:.2f} to {:.2f}".format(*r["interval"]) if r["interval"] and not r["plain"] else ""
    ),
    "Tokens per pass": lambda r: number(r["length"]),
    "Tokens per second": lambda r: number(r["tokens_per_second"], 1) + "~" * (not r["apart"] and not r["beside"]),
    "Guesses right": lambda r: percent(r["acceptance_rate"] or None),
    "Right per checked step": lambda r: number(r["accepted_per_cycle_unlooped"] or None),
    "Steps with guesses": lambda r: percent(r["draft_coverage"] or None),
    "Same text": sameness,
}
_COSTS: dict[str, Callable[[Row], str]] = {
    "Speedup with the prompt": lambda r: number(r["end_to_end_speedup"]),
    "Speedup with looped tails": lambda r: (
        number(r["speedup"]) if number(r["speedup"]) != number(r["gain"]) else ""
    ),
    "First token after, ms": lambda r: number(r["ttft"], 0, 1000),
    "95 % of waits below, ms": lambda r: number(r["p95_itl"], 1, 1000),
    "Cores used": lambda r: number(r["cpu_share"], 1),
    "Draft weights, MB": lambda r: number(r["draft_weight_bytes"] or None, 1, 1e-6),
    "Draft cache, MB": lambda r: number(r["draft_cache_bytes"] or None, 1, 1e-6),
    "Hottest, °C": lambda r: number(r["celsius"], 0),
    "Tokens": lambda r: str(r["generated"]),
    "Prompts": lambda r: str(r["prompts"]),
}


def results(standings: Standings) -> Row | None:
    """Return both tables of all results, grouped by task; a column without any figure is left out."""
    if not standings.rows:
        return None
    rows = standings.rows
    found = [{n: cell for n, cell in table.items() if any(map(cell, rows))} for table in (_SPEED, _COSTS)]
    cells = "".join(cell(row) for row in rows for name, cell in _SPEED.items() if name != "Same text")
    return {
        "tables": found,
        "apart": {kind: why for kind, why in APART.items() if kind in cells},
        "groups": [(task, standings.of_task(task)) for task in standings.tasks],
        "means": standings.means() if len(standings.tasks) > 1 else [],
    }


def differences(material: Material, standings: Standings, texts: TokenTexts) -> Row | None:
    """Return the texts that differ from plain decoding's, with their margins; None without any."""
    others = [row for row in standings.rows if row["drafter"] != "none"]
    if not others:
        return None

    def one(row: Row, answer: Answer, plain: Answer) -> Row:
        i = row["index"]
        theirs, ours = (texts.text(a.output_ids[i] if i < len(a.output_ids) else None) for a in (plain, answer))
        known = {name: row.get(name) for name in ("index", "margin", "near_tie", "rounding", "cause")}
        before = texts.joined(answer.output_ids[max(0, i - _BEFORE) : i])
        return {"answer": answer, "before": before, "ours": ours, "theirs": theirs, **known}

    exact = [row for row in others if row["rule"] is None]
    return {
        "found": [one(*found) for found in material.differences],
        "compared": any(row["identical"] is not None for row in exact),
        "lossy": [row for row in others if row["rule"] is not None],
        "unmeasured": [row for row in exact if row["identical"] is False],
    }
