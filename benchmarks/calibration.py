"""How well promises hold: replays recorded answers, and compares each node's belief with what came.

    python benchmarks/calibration.py TRACE... [--drafters ngram] [--tokenizer smollm2] [-o rows.jsonl]

A label is a proposed node whose parent was accepted: its belief when it was proposed, and whether the answer has
this token. The expected calibration error (ECE) is the mean distance of belief and rate over ten bins, of equal
width or of as many labels each; ``chance`` is the ECE (equal counts) that labels drawn by the very beliefs would
have: with few labels it is not 0. ``likeliest`` counts only the likeliest child of each place.

Tasks are replayed apart, beliefs are carried from answer to answer (no token is), as ``simulate`` does. Beside it

- ``no drift``: classes learn, but nothing moves all classes at once; ``prior``: nothing is learnt;
- ``fresh``: every request begins with the prior;
- ``raw frequencies``: the likeliest token's relative frequency after the longest context of at most three tokens
  in prompt and answer so far, which is what an n-gram model promises (`parrot`).

The first 20, 50 and 100 labels of each request stand apart.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Drafter, Feedback
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.opening import open_sequences
from draftwood.drafters.load import load
from draftwood.engines.replay import ReplayTarget
from draftwood.measure.records.lines import write_whole
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import header
from draftwood.measure.records.traces import Trace, grouped, read_traces
from draftwood.measure.simulate import recorded_request
from draftwood.models.load import load_tokenizer
from draftwood.planning import beliefs
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.learned import Learned
from draftwood.verify.exact import SampleAndMatch

FIRST = (20, 50, 100)
ORDER = 4  # of the raw frequencies, as in `parrot`
MODES = ("learning", "no drift", "prior")


Floats = NDArray[np.float64]

BINS = 10
DRAWS = 200


@dataclass(frozen=True)
class Bins:
    """Labels gathered by their belief; empty bins are left out.

    Attributes
    ----------
    belief, rate : float64[n]
        Mean belief, and the share that was right.
    count : int64[n]
        Labels.
    """

    belief: Floats
    rate: Floats
    count: NDArray[np.int64]

    @property
    def error(self) -> float:
        """Expected calibration error: mean distance of belief and rate, weighted by labels; 0 without any."""
        total = self.count.sum()
        return float(np.abs(self.belief - self.rate) @ self.count / total) if total else 0.0


def equal_width(belief: Floats, right: Floats, bins: int = BINS) -> Bins:
    """Bins of the same width: 0 to 0.1 and so on; 1 is in the last."""
    return _gather(belief, right, np.minimum((belief * bins).astype(np.int64), bins - 1), bins)


def equal_count(belief: Floats, right: Floats, bins: int = BINS) -> Bins:
    """Bins that hold as many labels each, as far as equal beliefs, which stay together, allow."""
    if not len(belief):
        return equal_width(belief, right, bins)
    order = np.sort(belief)
    # A border lies at the belief of the label there, so that all labels with this belief are on one side.
    borders = np.unique(order[(np.arange(1, bins) * len(order)) // bins])
    return _gather(belief, right, np.searchsorted(borders, belief, side="right"), bins)


def _gather(belief: Floats, right: Floats, which: NDArray[np.int64], bins: int) -> Bins:
    count = np.bincount(which, minlength=bins)
    filled = count > 0
    belief_sum = np.bincount(which, belief, minlength=bins)[filled]
    right_sum = np.bincount(which, right, minlength=bins)[filled]
    count = count[filled]
    return Bins(belief_sum / count, right_sum / count, count)


def noise(belief: Floats, bins: int = BINS, draws: int = DRAWS) -> float:
    """Mean error (equal counts) of labels drawn by these very beliefs: what chance makes of so few labels."""
    if not len(belief):
        return 0.0
    rng = np.random.default_rng(0)
    drawn = ((rng.random(len(belief)) < belief).astype(np.float64) for _ in range(draws))
    return float(np.mean([equal_count(belief, right, bins).error for right in drawn]))


def by_source(belief: Floats, right: Floats, source: NDArray[np.int64]) -> tuple[dict[int, float], float]:
    """Error (equal counts) of each source, and their mean, weighted by labels."""
    errors, mean = {}, 0.0
    for one in np.unique(source).tolist():
        chosen = source == one
        errors[one] = equal_count(belief[chosen], right[chosen]).error
        mean += errors[one] * float(chosen.mean())
    return errors, mean


@dataclass
class Labels:
    """Promises and what came, one entry per label.

    Attributes
    ----------
    belief, right
        What was promised, and whether it came.
    source
        Number of the drafter in the set.
    number
        How many labels its answer had before.
    likeliest
        No sibling was believed more.
    """

    belief: list[float] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)
    source: list[int] = field(default_factory=list)
    number: list[int] = field(default_factory=list)
    likeliest: list[bool] = field(default_factory=list)

    def add(self, belief: float, right: bool, source: int, number: int, likeliest: bool) -> None:
        self.belief.append(belief)
        self.right.append(right)
        self.source.append(source)
        self.number.append(number)
        self.likeliest.append(likeliest)

    def arrays(self, first: int | None = None, *, likeliest: bool = False) -> tuple[NDArray[Any], ...]:
        """Return beliefs, rights and sources: of first labels, of likeliest children."""
        chosen = np.ones(len(self.belief), dtype=bool) if first is None else np.array(self.number) < first
        if likeliest:
            chosen &= np.array(self.likeliest, dtype=bool)
        columns = (np.array(self.belief), np.array(self.right, dtype=float), np.array(self.source, dtype=np.int64))
        return tuple(column[chosen] for column in columns)


class Watched(beliefs.Beliefs):
    """Beliefs that keep what was promised and what came."""

    def __init__(self, mode: str, drafters: Sequence[Drafter]) -> None:
        super().__init__()
        self.labels = Labels()
        self.number = 0  # labels of the request under way
        self._mode, self._order = mode, {drafter.name: i for i, drafter in enumerate(drafters)}

    def learn(self, drafter: Drafter, lessons: Sequence[Feedback], *, greedy: bool) -> None:
        for lesson in lessons:
            self._keep(self._order[drafter.name], lesson)
        if self._mode == "prior":
            return
        before = beliefs.RATE
        beliefs.RATE = 0.0 if self._mode == "no drift" else before
        try:
            super().learn(drafter, lessons, greedy=greedy)
        finally:
            beliefs.RATE = before

    def _keep(self, source: int, lesson: Feedback) -> None:
        proposal = lesson.proposal
        numbered = replace(proposal, evidence=np.arange(len(proposal), dtype=np.int16))
        nodes, right = beliefs.labels(lesson._replace(proposal=numbered))  # nodes in place of their classes
        best: dict[int, int] = {}
        for node in nodes:
            parent = int(proposal.parents[node])
            if parent not in best or proposal.belief[node] > proposal.belief[best[parent]]:
                best[parent] = node
        for node, hit in zip(nodes, right, strict=True):
            likeliest = best[int(proposal.parents[node])] == node
            self.labels.add(float(proposal.belief[node]), hit, source, self.number, likeliest)
            self.number += 1


def replay(traces: Iterable[Trace], names: str, nodes: int, mode: str, *, fresh: bool = False) -> Labels:
    """Replay answers one after the other; returns every label."""
    drafters = load(names)
    watched = Watched(mode, drafters)
    for trace in traces:
        if fresh:
            kept, watched = watched.labels, Watched(mode, drafters)
            watched.labels = kept
        watched.number = 0
        target = ReplayTarget(trace.prompt_ids, trace.output_ids)
        with open_sequences(target, drafters, [recorded_request(trace)], SampleAndMatch()) as sequences:
            for _ in decode_sequences(target, FixedPlanner(nodes, learned=Learned(watched)), sequences):
                pass
    return watched.labels


def raw_frequencies(traces: Iterable[Trace]) -> Labels:
    """What an n-gram model promises for the token it holds likeliest, the latest among equals."""
    found = Labels()
    for trace in traces:
        counts: dict[tuple[int, ...], dict[int, int]] = {}
        text: list[int] = []
        for at, token in enumerate([*trace.prompt_ids, *trace.output_ids]):
            contexts = [tuple(text[len(text) - size :]) for size in range(min(ORDER - 1, len(text)), -1, -1)]
            answered = at - len(trace.prompt_ids) - 1  # the answer's first token is of no step
            known = next((counts[c] for c in contexts if c in counts), None)
            if answered >= 0 and known:
                best = max(reversed(known), key=known.__getitem__)
                found.add(known[best] / sum(known.values()), best == token, 0, answered, True)
            for context in contexts:
                followers = counts.setdefault(context, {})
                followers[token] = followers.pop(token, 0) + 1  # the latest stands last
            text.append(token)
    return found


def row(
    labels: Labels, names: Sequence[str], first: int | None = None, *, likeliest: bool = False, **what: Any
) -> dict[str, Any]:
    """Return one row of figures."""
    belief, right, source = labels.arrays(first, likeliest=likeliest)
    if not len(belief):
        return {"row": "calibration", **what, "first": first, "likeliest": likeliest, "labels": 0}
    bins, (errors, mean) = equal_count(belief, right), by_source(belief, right, source)
    return {
        "row": "calibration",
        **what,
        "first": first,
        "likeliest": likeliest,
        "labels": len(belief),
        "promised": round(float(belief.mean()), 4),
        "came": round(float(right.mean()), 4),
        "ece": round(equal_width(belief, right).error, 4),
        "ece_equal_count": round(bins.error, 4),
        "chance": round(noise(belief), 4),
        "by_source": {names[one]: round(error, 4) for one, error in errors.items()},
        "ece_weighted_by_source": round(mean, 4),
        "bins": [[round(float(x), 4), round(float(y), 4), int(n)]
                 for x, y, n in zip(bins.belief, bins.rate, bins.count, strict=True)],
    }  # fmt: skip


def measure(task: str, traces: Sequence[Trace], names: str, nodes: int) -> list[dict[str, Any]]:
    """Rows of one task."""
    sources = [drafter.name for drafter in load(names)]
    found = {mode: replay(traces, names, nodes, mode) for mode in MODES}
    found["fresh"] = replay(traces, names, nodes, "learning", fresh=True)
    rows = []
    for mode, labels in found.items():
        rows += [row(labels, sources, first, task=task, mode=mode) for first in (None, *FIRST)]
        rows.append(row(labels, sources, likeliest=True, task=task, mode=mode))
    raw, what = raw_frequencies(traces), {"task": task, "mode": "raw frequencies"}
    return rows + [row(raw, ["raw"], first, likeliest=True, **what) for first in (None, *FIRST)]


def show(rows: Sequence[dict[str, Any]]) -> None:
    for one in rows:
        if not one["labels"]:
            continue
        what = ("likeliest" if one["likeliest"] else "all") + (f", first {one['first']}" if one["first"] else "")
        print(
            f"{one['task']:<25.25} {one['mode']:<16}{what:<21}{one['labels']:8}{one['promised']:10.3f}"
            f"{one['came']:8.3f}{one['ece']:9.4f}{one['ece_equal_count']:9.4f}{one['chance']:9.4f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--drafters", default="ngram", help="one set, as everywhere")
    parser.add_argument("--tokenizer", help="for files that hold text")
    parser.add_argument("--draft", type=int, default=16, help="draft nodes per pass")
    parser.add_argument("--limit", type=int, help="answers per task")
    parser.add_argument("-o", "--output", type=Path, help="records as JSON lines")
    args = parser.parse_args()
    tokenizer = load_tokenizer(args.tokenizer) if args.tokenizer else None
    tasks = dict(grouped(trace for path in args.traces for trace in read_traces(path, tokenizer)))
    tasks = {task: traces[: args.limit] for task, traces in tasks.items()}
    print(f"{'task':<26}{'mode':<16}{'labels of':<21}{'labels':>8}{'promised':>10}{'came':>8}{'ECE':>9}"
          f"{'= count':>9}{'chance':>9}")  # fmt: skip
    rows: list[dict[str, Any]] = []
    for task, traces in tasks.items():
        found = measure(task, traces, args.drafters, args.draft)
        show(found)
        rows += found
    if not any(one["labels"] for one in rows):
        parser.error(f"{args.drafters} proposed nothing for these answers")
    if args.output:
        settings = {"drafters": args.drafters, "draft": args.draft, "traces": [p.name for p in args.traces]}
        write_whole(args.output, [header("calibration", settings, provenance()), *rows])


if __name__ == "__main__":
    main()
