"""What a table does not say: texts that differ, looped tails, what a probe counted, where figures come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from draftwood.measure.probe import ProbeCounts
from draftwood.measure.records.records import Answer
from draftwood.measure.report.markup import count, esc, number, percent
from draftwood.measure.report.material import Material
from draftwood.measure.report.standings import PLAIN_ARMS, Standings
from draftwood.measure.report.steps import Pieces

_BEFORE = 12  # tokens shown before the place where texts part


def differences(material: Material, standings: Standings) -> str:
    """List texts that are not plain's, each with the margin there."""
    if all(engine == "replay" for engine in standings.arms.values()):  # it cannot differ from what it replays
        return ""
    found = material.rows.of_kind("difference")
    by_id = {answer.id: answer for answer in material.rows.answers}
    if found:
        pieces = Pieces(material.rows.answers)
        lines = "".join(_difference(row, by_id, pieces) for row in found)
        return f'<ul class="differences">{lines}</ul>'
    compared = [r["identical"] for r in standings.drafted if r["identical"] is not None]
    if not compared:
        return "<p>Nothing was compared: there is no plain text to hold the others against.</p>"
    if all(compared):
        return "<p>None: every text was identical to plain decoding's.</p>"
    where = ", ".join(
        f"{esc(r['drafter'])} on {esc(r['task'])}" for r in standings.drafted if r["identical"] is False
    )
    return f"<p>{where}: texts differ from plain's, but the run ended before the margins were measured.</p>"


def _difference(row: Mapping[str, Any], by_id: Mapping[int, Answer], pieces: Pieces) -> str:
    answer, plain = by_id[row["answer"]], by_id[row["against"]]
    i = row["index"]
    margin = row.get("margin")
    if margin is None:
        tie = "the margin cannot be told: other weights, or other noise"
    else:
        tie = f"the two best scores differ by {margin:.1e}: "
        tie += "a near-tie" if row.get("near_tie") else '<b class="bad">not a near-tie: please report it</b>'
    before = pieces.joined(answer.output_ids[max(0, i - _BEFORE) : i])
    theirs, ours = (pieces.text(a.output_ids[i] if i < len(a.output_ids) else None) for a in (plain, answer))
    return (
        f"<li><b>{esc(answer.arm)}</b> on {esc(answer.task)} {esc(answer.name)}, from token {i} on; {tie}."
        f'<p class="parting">… {esc(before)}<ins>{esc(ours)}</ins> <span>where plain has</span> '
        f"<del>{esc(theirs)}</del></p></li>"
    )


def looped(standings: Standings) -> str:
    """Say how much of the answers only repeats itself."""
    rows = standings.plain or standings.rows
    first = {r["task"]: r for r in reversed(rows)}
    told = [r for task in standings.tasks if (r := first.get(task)) is not None and r["looped_tokens"]]
    if not rows:
        return ""
    if not told:
        return "<p>None: no answer ends in a loop.</p>"
    said = "".join(
        f"<li><b>{esc(r['task'])}</b>: {r['looped_tokens']} of {count(r['generated'], 'token')} "
        f"({percent(r['looped_tokens'] / r['generated'])})</li>"
        for r in told
    )
    whose = "plain decoding's answers" if told[0]["drafter"] in PLAIN_ARMS else "the answers"
    return (
        f"<p>At the end of {whose} a period is repeated at least four times. Any drafter loves such a tail, so "
        f"speedup and mean acceptance length in the table leave it out.</p><ul>{said}</ul>"
    )


def lookahead_scored(answers: list[Answer]) -> str:
    """Return what a probe counted, per task and by match length; nothing without one."""
    if not answers:
        return ""
    tasks = dict.fromkeys(a.task for a in answers)
    counts = {task: ProbeCounts.of([a for a in answers if a.task == task]) for task in tasks}
    order = sorted(counts, key=lambda task: counts[task].accepted_per_target)
    lines = "".join(_counts(esc(task), counts[task]) for task in order)
    whole = ProbeCounts.of(answers)
    by_match = "".join(
        f'<tr><th scope="row">match length {length}</th><td></td><td>{proposals}</td><td>{right}</td><td></td>'
        f"<td>{percent(right / proposals)}</td><td></td></tr>"
        for length, (proposals, right) in sorted(whole.by_match.items())
    )
    heads = ("Targets", "Proposals", "Accepted", "Proposal rate", "Acceptance rate", "Accepted per target")
    head = "".join(f'<th scope="col">{h}</th>' for h in heads)
    total = _counts("all tasks", whole) if len(tasks) > 1 else ""
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="What the probe counted"><table>'
        f'<thead><tr><th scope="col">Task</th>{head}</tr></thead><tbody>{lines}</tbody>'
        f'<tbody class="mean">{total}</tbody><tbody>{by_match}</tbody></table></div>'
        '<p class="note">Decoding was unchanged. Targets: tokens that decoding wrote; proposals: those for which '
        "the drafter had a token to offer; accepted: it was the token.</p>"
    )


def _counts(name: str, found: ProbeCounts) -> str:
    cells = [str(found.targets), str(found.proposals), str(found.accepted), percent(found.proposal_rate)]
    cells += [percent(found.acceptance_rate), number(found.accepted_per_target)]
    return f'<tr><th scope="row">{name}</th>{"".join(f"<td>{c}</td>" for c in cells)}</tr>'


_FACTS = {
    "command": "Command",
    "date": "Date",
    "draftwood": "draftwood",
    "commit": "Commit",
    "model": "Model",
    "dtype": "Number format",
    "device": "Device",
    "threads": "Threads",
    "processor": "Processor",
    "cores": "Cores",
    "instructions": "Instructions",
    "system": "System",
    "python": "Python",
    "packages": "Packages",
    "load_average": "Load average at the start (1, 5, 15 minutes)",
}


def provenance(material: Material) -> str:
    """Return what each file's header tells."""
    return "".join(_file(name, header) for name, header in material.headers)


def _file(name: str, header: Mapping[str, Any]) -> str:
    said = {**header["provenance"], **{k: v for k, v in header["settings"].items() if v is not None}}
    lines = "".join(_facts(said))
    return (
        f"<details><summary>{esc(name)}: draftwood {esc(header['verb'])}, {esc(said.get('date', 'undated'))}"
        f"</summary><dl>{lines}</dl></details>"
    )


def _facts(said: Mapping[str, Any]) -> Iterator[str]:
    known = {key: label for key, label in _FACTS.items() if key in said}
    for key, label in (known | {key: key.replace("_", " ") for key in said if key not in known}).items():
        value = said[key]
        if isinstance(value, Mapping):
            value = ", ".join(f"{k} {v}" for k, v in value.items())
        elif isinstance(value, list):
            value = ", ".join(str(v) for v in value)
        inside = f"<code>{esc(value)}</code>" if key == "command" else esc(value)
        yield f"<div><dt>{esc(label)}</dt><dd>{inside}</dd></div>"
