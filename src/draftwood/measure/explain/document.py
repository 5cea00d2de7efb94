"""The explanation of answers and steps as JSON-ready dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from draftwood.measure.explain.account import Account, Tree, accounts
from draftwood.measure.explain.sentences import sentences
from draftwood.measure.explain.summary import Summary
from draftwood.measure.explain.tables import accept_rates, costs
from draftwood.measure.explain.why import reason, words
from draftwood.measure.records.records import Answer, grouped_by
from draftwood.step import SourceStep


def by_arm(answers: Iterable[Answer]) -> dict[tuple[str, str], list[Answer]]:
    """Group answers by (drafters, planner)."""
    return grouped_by(answers, lambda a: (a.arm, a.planner or ""))


def arm(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the summary of one arm's answers in figures and sentences, its costs and its accept rates."""
    names = answers[0].drafters
    every = [account for answer in answers for account in accounts(answer.steps)]
    summary = Summary.of(every, names)
    return {
        "drafters": answers[0].arm,
        "planner": answers[0].planner,
        "answers": [{"answer": a.id, "task": a.task, "name": a.name} for a in answers],
        "words": list(sentences(summary)),
        "summary": asdict(summary),
        "cost": costs(every),
        "accept_rates": [
            {"source": _name(names, source), "evidence": evidence, **found.to_json()}
            for (source, evidence), found in accept_rates(account.step for account in every).items()
        ],
    }


def steps_of(answer: Answer) -> Iterator[dict[str, Any]]:
    """Yield a dictionary per step of an answer, with its text if known."""
    at = len(answer.output_ids) - sum(len(s.emitted) for s in answer.steps)
    for account in accounts(answer.steps):
        step, expected = account.step, account.expected if account.rows == 1 else None
        end = at + len(step.emitted)
        yield {
            "step": account.number,
            "context": step.context,
            "emitted": list(step.emitted),
            "text": "".join(answer.pieces[at:end]) if answer.pieces else None,
            "asked": account.asked,
            "candidates": account.plan.get("candidates"),
            **{name: getattr(step, name) for name in ("drafted", "lookahead_scored", "accepted")},
            "expected_tokens": expected.tokens if expected else None,
            "expected_ms": expected.ms if expected else None,
            "ms": account.ms,
            "reason": reason(account).value,
            "why": words(account),
        }
        at = end


def detail(answer: Answer, account: Account) -> dict[str, Any]:
    """Return everything that is known about one step."""
    step, names, tree = account.step, answer.drafters, Tree.of(account.step)
    parts = ("plan", "draft", "score", "verify", "keep", "learn")
    return next(each for each in steps_of(answer) if each["step"] == account.number) | {
        "ms_of": {name: 1000 * getattr(step, f"{name}_s") for name in parts},
        "plan": dict(account.plan),
        "alternatives": [
            {"nodes": a.nodes, "expected_tokens": a.tokens, "ms": a.ms, "tokens_per_second": a.rate}
            for a in account.alternatives
        ],
        "policies": [{"policy": n, "held": n in account.held, "why": why} for n, why in account.policies.items()],
        "notes": list(account.notes),
        "sources": [_source(_name(names, i), own) for i, own in enumerate(step.by_source)],
        "tree": tree.to_json() if tree is not None else None,
    }


def _source(name: str, own: SourceStep) -> dict[str, Any]:
    counts = {k: getattr(own, k) for k in ("asked", "proposed", "kept", "accepted", "match_length", "failed")}
    stages = [
        {
            "model": s.name,
            "passes": s.passes,
            "proposed": s.proposed,
            "accepted": s.accepted,
            "ms": 1000 * s.seconds,
        }
        for s in own.stages
    ]
    return {"source": name, **counts, "draft_ms": 1000 * own.draft_s} | ({"stages": stages} if stages else {})


def _name(names: Sequence[str], source: int) -> str:
    return names[source] if 0 <= source < len(names) else f"source {source}"
