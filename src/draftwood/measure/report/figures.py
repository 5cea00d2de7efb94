"""Figures of the table: a dot per prompt, acceptance by position, where the time went.

Drawn as SVG whose places are shares of its width, so that marks and words keep their size on any screen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from draftwood.measure.records.records import Records
from draftwood.measure.records.timing import kept
from draftwood.measure.report.markup import count, esc, number, percent, place
from draftwood.measure.report.standings import OURS, Row, Standings
from draftwood.rates import Rates

_TICKS = (0.125, 0.25, 0.5, 0.7, 1, 1.4, 2, 3, 4, 6, 8, 12, 16, 32)
_LANES = (0, -5, 5, -9, 9)
"""Pixels by which dots that would hide each other step aside."""


class Scale:
    """Ratios on a logarithmic axis: half as fast is as far from 1 as twice as fast."""

    def __init__(self, values: Sequence[float]) -> None:
        low, high = min(*values, 1.0) * 0.94, max(*values, 1.0) * 1.06
        self._low, self._high = math.log(min(low, 0.85)), math.log(max(high, 1.3))

    def share(self, value: float) -> float:
        """Where a value lies, 0 to 1."""
        return (math.log(value) - self._low) / (self._high - self._low)

    @property
    def ticks(self) -> list[float]:
        """Values to be written on the axis."""
        return [t for t in _TICKS if 0 <= self.share(t) <= 1]


def dots(standings: Standings, rows: Records) -> str:
    """Return a strip per task and arm, a dot per prompt; nothing where nothing was timed against plain."""
    timed = [r for r in standings.drafted if r["per_prompt"]]
    if not timed:
        return ""
    values = [p["speedup"] for r in timed for p in r["per_prompt"]]
    scale = Scale(values + [v for r in timed for v in r["speedup_interval"] or ()])
    looped = {(a.task, a.name) for a in rows.answers if kept(a) < len(a.output_ids)}
    strips = []
    for task in standings.tasks:
        members = [r for arm in standings.arms for r in timed if (r["task"], r["drafter"]) == (task, arm)]
        if members:
            strips.append(f'<h4 class="across">{esc(task)}</h4>')
            strips += [_strip(r, scale, looped) for r in members]
    ticks = "".join(
        f'<text x="{place(scale.share(t))}" y="14" text-anchor="middle">{t:g}</text>' for t in scale.ticks
    )
    ours = [p["speedup"] for r in timed if r["engine"] in OURS for p in r["per_prompt"]]
    slower = (
        f"{sum(v < 1 for v in ours) or 'none'} of draftwood's {count(len(ours), 'dot')} lie there" if ours else ""
    )
    return (
        f'<figure class="strips" aria-label="Speedup per prompt">{"".join(strips)}'
        f'<span class="label"></span><svg class="axis" aria-hidden="true">{ticks}</svg><span></span>'
        "<figcaption>A dot is a prompt, whole answers; the diamond is all of them together with its interval. "
        f"Left of the line at 1, drafting made the answer slower{slower and f': {slower}'}."
        + (" A ring is a prompt whose answer ends in a looped tail, which flatters drafting." if looped else "")
        + "</figcaption></figure>"
    )


def _strip(row: Row, scale: Scale, looped: set[tuple[str, str]]) -> str:
    grid = "".join(
        f'<line class="{"one" if t == 1 else "grid"}" x1="{place(scale.share(t))}" x2="{place(scale.share(t))}" '
        'y1="0" y2="100%"/>'
        for t in scale.ticks
    )
    marks = "".join(_marks(row, scale, looped))
    each = sorted(p["speedup"] for p in row["per_prompt"])
    said = (
        f"{row['task']}, {row['drafter']}: {count(len(each), 'prompt')} from {each[0]:.2f} to {each[-1]:.2f}, "
        f"together {number(row['speedup'])}"
    )
    return (
        f'<span class="label">{esc(row["drafter"])}</span>'
        f'<svg class="strip" role="img" aria-label="{esc(said)}">{grid}{marks}</svg>'
        f'<span class="value">{number(row["speedup"])}</span>'
    )


def _marks(row: Row, scale: Scale, looped: set[tuple[str, str]]) -> Iterator[str]:
    if found := row["speedup_interval"]:
        low, high = (place(scale.share(v)) for v in found)
        yield f'<line class="range" x1="{low}" x2="{high}" y1="50%" y2="50%"/>'
    last, lane = -1.0, 0
    for prompt in sorted(row["per_prompt"], key=lambda p: p["speedup"]):
        at = scale.share(prompt["speedup"])
        lane = (lane + 1) % len(_LANES) if at - last < 0.012 else 0
        last = at
        ring = " ring" if (row["task"], prompt["name"]) in looped else ""
        yield (
            f'<svg x="{place(at)}" y="50%" overflow="visible">'
            f'<circle class="dot{ring}" cy="{_LANES[lane]}" r="4.5">'
            f"<title>{esc(prompt['name'])}: {prompt['speedup']:.2f}</title></circle></svg>"
        )
    if row["speedup"]:
        middle = place(scale.share(row["speedup"]))
        yield f'<svg x="{middle}" y="50%" overflow="visible"><path class="whole" d="M0-7 5 0 0 7-5 0z"/></svg>'


_FEW = 5
"""Drafts below which a bar is drawn hollow."""


def positions(standings: Standings, rows: Records) -> str:
    """Return a small chart per task and arm: how often each position of the draft was accepted, and coverage."""
    cards = []
    for task in standings.tasks:
        for arm in standings.arms:
            row = standings.row(task, arm)
            if row and row["draft_coverage"] and row["acceptance_by_position"]:
                answers = [a for a in rows.answers if (a.task, a.arm) == (task, arm)]
                depths = [s.depth for a in answers for s in a.steps if s.drafted]
                cards.append(_positions(row, [sum(d > i for d in depths) for i in range(max(depths))]))
    if not cards:
        return ""
    return (
        f'<div class="cards">{"".join(cards)}</div>'
        '<p class="note">Bars: of the drafts that reached a position, the share that was accepted there. '
        f"Coverage: the share of steps that carried a draft. Hollow: fewer than {_FEW} drafts reached so far.</p>"
    )


def _positions(row: Row, reached: Sequence[int]) -> str:
    rates = row["acceptance_by_position"]
    width = 1 / len(rates)
    bars = "".join(
        f'<rect class="bar{" few" if many < _FEW else ""}" '
        f'x="{place((i + 0.12) * width)}" width="{place(0.76 * width)}" '
        f'y="{place(1 - rate)}" height="{place(rate)}"><title>position {i + 1}: {percent(rate)} of '
        f"{count(many, 'draft')}</title></rect>"
        for i, (rate, many) in enumerate(zip(rates, reached, strict=True))
    )
    grid = "".join(f'<line class="grid" x1="0" x2="100%" y1="{y}%" y2="{y}%"/>' for y in (0, 50, 100))
    scale = '<text x="-6" y="0" dy="4">100 %</text><text x="-6" y="50%" dy="4">50 %</text>'
    said = f"Accepted by position: {', '.join(percent(r) for r in rates)}"
    coverage = row["draft_coverage"]
    return (
        f'<figure class="card"><figcaption><b>{esc(row["task"])}</b> {esc(row["drafter"])}</figcaption>'
        f'<svg class="bars" role="img" aria-label="{esc(said)}">{grid}{bars}{scale}'
        f'<text class="under" x="{place(width / 2)}" y="100%" dy="15">1</text>'
        f'<text class="under" x="{place(1 - width / 2)}" y="100%" dy="15">{len(rates)}</text></svg>'
        f'<p class="coverage"><span>coverage</span><svg aria-hidden="true"><rect class="rail" width="100%" '
        f'height="100%"/><rect class="bar" width="{place(coverage)}" height="100%"/></svg>'
        f"<b>{percent(coverage)}</b></p></figure>"
    )


PARTS = {
    "score": "the model's pass",
    "draft": "drafting",
    "plan": "planning",
    "verify": "verifying",
    "keep": "keeping the cache",
    "learn": "learning",
}


def split(standings: Standings) -> str:
    """Return a stacked bar per arm: milliseconds per token, by part; and the same as a table."""
    timed = {arm: r for arm, r in standings.rates.items() if standings.arms[arm] != "replay" and r.tokens}
    per_token = {arm: _per_token(r) for arm, r in timed.items()}
    longest = max((sum(parts.values()) for parts in per_token.values()), default=0.0)
    if not longest:
        return ""
    legend = "".join(f'<li><span class="swatch {part}"></span>{said}</li>' for part, said in PARTS.items())
    lines = "".join(_stack(arm, parts, longest) for arm, parts in per_token.items())
    return (
        f'<figure class="strips"><ul class="legend across">{legend}</ul>{lines}</figure>'
        f"{_split_table(timed)}"
        '<p class="note">Bars: milliseconds of decoding per emitted token. Table: microseconds per step.</p>'
    )


def _per_token(rates: Rates) -> dict[str, float]:
    return {part: 1000 * rates.seconds[part] / rates.tokens for part in PARTS}


def _stack(arm: str, parts: dict[str, float], longest: float) -> str:
    rects, at = [], 0.0
    for part, ms in parts.items():
        rects.append(
            f'<rect class="{part}" x="{place(at / longest)}" width="{place(ms / longest)}" height="100%">'
            f"<title>{PARTS[part]}: {ms:.3f} ms per token</title></rect>"
        )
        at += ms
    said = f"{arm}: {at:.1f} ms per token, of it {parts['score']:.1f} ms in the model's pass"
    return (
        f'<span class="label">{esc(arm)}</span><svg class="stack" role="img" aria-label="{esc(said)}">'
        f'{"".join(rects)}</svg><span class="value">{at:.1f} ms</span>'
    )


def _split_table(timed: dict[str, Rates]) -> str:
    head = "".join(f'<th scope="col">{said}</th>' for said in PARTS.values())
    lines = []
    for arm, rates in timed.items():
        total = sum(rates.seconds.values()) or 1.0
        cells = "".join(f"<td>{1e6 * rates.seconds[part] / rates.passes:,.0f}</td>" for part in PARTS)
        rest = percent(1 - rates.seconds["score"] / total)
        lines.append(f'<tr><th scope="row">{esc(arm)}</th>{cells}<td>{rest}</td></tr>')
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="Microseconds per step"><table><thead><tr>'
        f'<th scope="col">µs per step</th>{head}<th scope="col">beside the pass</th></tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )
