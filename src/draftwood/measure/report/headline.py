"""The head of the page: what was measured, in a sentence, and the table, the worst first and the mean last."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from draftwood.measure.bench.table import ACCEPTED_PER_CYCLE, SPEEDUP
from draftwood.measure.report.markup import count, esc, listed, number, percent
from draftwood.measure.report.material import Material
from draftwood.measure.report.standings import OURS, PLAIN_ARMS, Row, Standings, interval, speedup

_ENGINES = {
    "draftwood": "draftwood's loop",
    "replay": "replayed answers: passes counted, no times",
    "transformers": "transformers' own",
    "llama.cpp": "llama.cpp's own (its own weights)",
}


def title(material: Material) -> str:
    """Return the page's default title."""
    facts = material.facts
    name = " ".join(str(facts[n]) for n in ("model", "dtype") if n in facts)
    return f"draftwood on {name}" if name else "draftwood"


def sentence(material: Material, standings: Standings) -> str:
    """Say in plain words what was measured and what came of it."""
    if set(standings.arms.values()) == {"replay"}:
        return f"Recorded answers to {_prompts(material, standings)} were replayed {_arms(standings)}."
    if material.rows.answers:
        rounds = len({a.round for a in material.rows.answers})
        often = f" in {rounds} rounds" if rounds > 1 else ""
        did = f"answered {_prompts(material, standings)}{often}, {_arms(standings)}"
    elif material.lookahead_scored:
        did = f"answered {count(len(material.lookahead_scored), 'prompt')} plainly, a drafter counted silently"
    else:
        did = "was timed pass by pass" if material.profile else "was run for minutes"
    return f"{_who(material)} {did}.{_outcome(standings)}"


def _who(material: Material) -> str:
    facts = material.facts
    how = [str(facts["dtype"])] if "dtype" in facts else []
    how += [count(facts["threads"], "thread")] if "threads" in facts else []
    how += [str(facts["processor"])] if "processor" in facts else []
    return f"<b>{esc(facts.get('model', 'A model'))}</b>" + (f" ({esc(', '.join(how))})" if how else "")


def _prompts(material: Material, standings: Standings) -> str:
    prompts = len({(a.task, a.name) for a in material.rows.answers})
    return f"{count(prompts, 'prompt')} of {count(len(standings.tasks), 'task')}"


def _arms(standings: Standings) -> str:
    drafted = {arm: engine for arm, engine in standings.arms.items() if arm not in PLAIN_ARMS}
    ours = [f"<b>{esc(arm)}</b>" for arm, engine in drafted.items() if engine in OURS]
    plainly = "plainly" if len(drafted) < len(standings.arms) else ""
    said = " and ".join(filter(None, (plainly, f"with {listed(ours)}" if ours else "")))
    if len(ours) == len(drafted):
        return said
    engines = listed(dict.fromkeys(esc(engine) for engine in drafted.values() if engine not in OURS))
    return f"{said}; beside them stand {count(len(drafted) - len(ours), 'way')} of {engines} to draft"


def _outcome(standings: Standings) -> str:
    means = [entry for entry in standings.means() if standings.arms[entry[0]] in OURS]
    if not means:
        return ""
    best = max(means, key=lambda entry: entry[1])
    worst = min((row for _, _, row in means), key=lambda row: speedup(row) or 0.0)
    said = f" The worst: <b>{esc(worst['drafter'])}</b> on {esc(worst['task'])}, {_times(speedup(worst))}."
    if len(standings.tasks) > 1:
        said += f" The best on average: <b>{esc(best[0])}</b>, {_times(best[1])} over the tasks."
    return said


def _times(value: float | None) -> str:
    return f"<b>{number(value)}</b> times as fast as plain decoding"


def _target(value: float | None, target: float) -> str:
    if value is None:
        return ""
    met = '<span class="met"><span aria-hidden="true">✓</span><span class="sr"> target met</span></span>'
    return number(value) + (met if value > target else "")


def _speedup(row: Row) -> str:
    found = interval(row)
    there = found is not None and found[0] < found[1]  # plain against itself has none
    between = f'<small class="interval">{found[0]:.2f} to {found[1]:.2f}</small>' if found and there else ""
    return _target(speedup(row), SPEEDUP) + between


_IDENTICAL = {True: "yes", False: '<b class="bad">no</b>', None: ""}

Cell = Callable[[Row], str]

_COLUMNS: dict[str, tuple[str, Cell]] = {
    "speedup": ("Speedup", _speedup),
    "accepted_per_cycle": (
        "Accepted per cycle",
        lambda r: _target(r["accepted_per_cycle_unlooped"] or None, ACCEPTED_PER_CYCLE),
    ),
    "length": ("Mean acceptance length", lambda r: number(_length(r))),
    "rate": ("Acceptance rate", lambda r: percent(r["acceptance_rate"]) if r["acceptance_rate"] else ""),
    "coverage": ("Draft coverage", lambda r: percent(r["draft_coverage"])),
    "identical": ("Identical text", lambda r: _IDENTICAL[r["identical"]]),
    "three": ("Three or more accepted", lambda r: percent(r["three_accepted"]) if r["three_accepted"] else ""),
    "whole": ("Speedup with looped tails", lambda r: number(r["speedup"])),
    "end_to_end": ("Speedup end to end", lambda r: number(r.get("end_to_end_speedup"))),
    "tokens": ("Tokens per second", lambda r: number(r["tokens_per_second"], 1)),
    "ttft": ("TTFT, ms", lambda r: number(r["ttft"], 0, 1000)),
    "tpot": ("TPOT, ms", lambda r: number(r["tpot"], 1, 1000)),
    "itl": ("ITL p95, ms", lambda r: number(r["p95_itl"], 1, 1000)),
    "cpus": ("CPUs", lambda r: number(r["cpu_share"], 1)),
    "joules": ("Joules per token", lambda r: number(r["joules_per_token"])),
    "celsius": ("°C", lambda r: number(r.get("celsius"), 0)),
    "generated": ("Tokens", lambda r: str(r["generated"])),
    "prompts": ("Prompts", lambda r: str(r["prompts"])),
}


def _length(row: Row) -> float | None:
    whole: float | None = row["mean_acceptance_length"]
    return whole if row["mean_acceptance_length_unlooped"] is None else row["mean_acceptance_length_unlooped"]


def results(standings: Standings) -> str:
    """Return the table; a column without any figure is left out."""
    if not standings.rows:
        return ""
    columns = {name: column for name, column in _COLUMNS.items() if any(column[1](r) for r in standings.rows)}
    same = all(number(r["speedup"]) == number(speedup(r)) for r in standings.rows)
    if same:
        columns.pop("whole", None)
    cells = [cell for _, cell in columns.values()]
    head = "".join(f'<th scope="col">{name}</th>' for name, _ in columns.values())
    bodies = [*_bodies(standings, cells), *_means(standings, list(columns))]
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="Results per task and arm">'
        f'<table class="results"><thead><tr><th scope="col">Task and arm</th>{head}</tr></thead>'
        f"{''.join(bodies)}</table></div>{_caption(standings, columns)}"
    )


def _bodies(standings: Standings, cells: list[Cell]) -> Iterator[str]:
    engines = dict.fromkeys(standings.arms.values())
    for engine in engines:
        rows = [r for r in [*standings.drafted, *standings.plain] if r["engine"] == engine]
        head = f'<tr class="group"><th scope="rowgroup" colspan="{1 + len(cells)}">{_engine(engine)}</th></tr>'
        yield f"<tbody>{head if len(engines) > 1 else ''}{''.join(_line(r, cells) for r in rows)}</tbody>"


def _engine(engine: str) -> str:
    return _ENGINES.get(engine, esc(engine))


def _line(row: Row, cells: list[Cell]) -> str:
    kind = ' class="plain"' if row["drafter"] in PLAIN_ARMS else ""
    arm = "none (plain)" if row["drafter"] == "none" else row["drafter"]
    name = f'<th scope="row">{esc(row["task"])}<small>{esc(arm)}</small></th>'
    return f"<tr{kind}>{name}{''.join(f'<td>{cell(row)}</td>' for cell in cells)}</tr>"


def _means(standings: Standings, columns: list[str]) -> Iterator[str]:
    means = standings.means()
    if not means or len(standings.tasks) < 2 or "speedup" not in columns:
        return
    rest = "<td></td>" * (len(columns) - 1)
    lines = [
        f'<tr><th scope="row">all tasks<small>{esc(arm)}</small></th><td>{_target(mean, SPEEDUP)}'
        f'<small class="interval">worst {number(speedup(worst))}</small></td>{rest}</tr>'
        for arm, mean, worst in means
    ]
    head = (
        f'<tr class="group"><th scope="rowgroup" colspan="{1 + len(columns)}">Geometric mean over tasks</th></tr>'
    )
    yield f'<tbody class="mean">{head}{"".join(lines)}</tbody>'


def _caption(standings: Standings, columns: dict[str, tuple[str, Cell]]) -> str:
    said = []
    if "speedup" in columns:
        said.append(
            "Speedup is over plain decoding on the same engine, reading the prompt excluded and looped tails left "
            "out; below it its 95 % interval, drawn over prompts."
        )
    if any(r["accepted_per_cycle"] for r in standings.rows):
        said.append(
            f"✓ marks what was aimed at: above {ACCEPTED_PER_CYCLE:g} accepted per cycle, above {SPEEDUP:g} times "
            "as fast."
        )
    return f'<p class="note">{" ".join(said)}</p>' if said else ""
