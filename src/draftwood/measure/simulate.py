"""What drafting would have done, without drafting.

`simulate` replays recorded answers through the real drafters, planner, rule and loop, without a model. If a pass
is given a cost, time is simulated too, on a clock that the planner sees. `probe` decodes plainly with a model,
while a drafter proposes one token at each step, and counts how many were right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Self

import numpy as np

from draftwood.api.checks import check_whole
from draftwood.api.draft_models import DraftModels, with_models
from draftwood.api.setup import DrafterSpec, affordable
from draftwood.api.user_texts import detached
from draftwood.contracts import Ask, Feedback, Plan, Planner, PlannerSession, State, Target
from draftwood.decoding.arrivals import open_sequences
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.drafters.load import load as load_drafters
from draftwood.engines.replay import MAX_ID, Cost, ReplayClock, ReplayTarget
from draftwood.measure.records.records import Answer, Row
from draftwood.measure.records.timing import acceptance_length, rates
from draftwood.measure.records.traces import Trace, grouped
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.learned import Learned
from draftwood.planning.load import load as load_planner
from draftwood.tree import TokenTree
from draftwood.verify.exact import SampleAndMatch


def simulate(
    traces: Iterable[Trace], drafters: DrafterSpec = "default", planner: str = "fixed:16", *,
    vocab_size: int = MAX_ID, cost: Cost | None = None, curve: CostCurve | None = None, batch: int = 1,
) -> Iterator[Answer]:  # fmt: skip
    """Replay answers, yielding each with its steps. Within a task, planner and drafters keep what they learn from
    answer to answer; each task starts afresh, with what the drafters' files or memories hold; nothing is saved.

    All ids are below ``vocab_size``; ``cost`` is seconds of a pass over n tokens at a context length (None: passes
    take no time), ``curve`` what the planner knows of that from the start; ``batch`` answers of a task share each
    pass, which costs as much as the sum of their tokens. Raises `CapabilityError` if a drafter asks for scores,
    which a recorded answer does not have, and `UnknownNameError` or `UsageError` for unknown names and a batch
    below 1.
    """
    check_whole("batch", batch)
    label, number = drafters if isinstance(drafters, str) else "drafters", 0
    for task, members in grouped(traces):
        shared = detached(with_models(load_drafters(drafters), DraftModels()))
        chosen = load_planner(planner, Learned(curve=curve))
        for first in range(0, len(members), batch):
            some, clock = members[first : first + batch], ReplayClock()
            recorded = [(trace.prompt_ids, trace.output_ids) for trace in some]
            target = ReplayTarget(*recorded[0], *recorded[1:], vocab_size=vocab_size, cost=cost, clock=clock)
            able = affordable(drafters, shared, target.capabilities)
            answers = [
                Answer(
                    number + i, task, trace.name, label, planner=planner, limit=trace.limit,
                    drafters=[d.name for d in able], prompt_ids=trace.prompt_ids,
                )
                for i, trace in enumerate(some)
            ]  # fmt: skip
            requests = [recorded_request(trace) for trace in some]
            with open_sequences(target, able, requests, SampleAndMatch()) as sequences:
                for emission in decode_sequences(target, chosen, sequences, clock):
                    answers[emission.row].take(emission)
            _share_passes(answers)
            number += len(some)
            yield from answers


def _share_passes(answers: Sequence[Answer]) -> None:
    """Let each answer bear its part of a shared pass and its planning."""
    for number in range(max(len(a.steps) for a in answers)):
        sharing = [a.steps for a in answers if number < len(a.steps)]
        for steps in sharing:
            score_s, plan_s = (seconds / len(sharing) for seconds in (steps[number].score_s, steps[number].plan_s))
            steps[number] = replace(steps[number], score_s=score_s, plan_s=plan_s)
    for answer in answers:
        answer.decode_s = sum(s.seconds for s in answer.steps)


def recorded_request(trace: Trace) -> Request:
    """Return the request that gave this answer, with its token limit, so that drafts may reach as far as then."""
    written = len(trace.output_ids)
    if trace.limit is None or trace.finish_reason not in ("eos", "stop") or trace.limit < written:
        return Request(trace.prompt_ids, written)
    if trace.finish_reason == "eos":
        return Request(trace.prompt_ids, trace.limit, end_ids=frozenset(trace.output_ids[-1:]))
    return Request(trace.prompt_ids, trace.limit, criteria=[lambda ids: len(ids) >= written])


def row(answers: Sequence[Answer], plain: Sequence[Answer] | None = None) -> Row:
    """Return the figures of answers of one task, drafter and planner, under the names of docs/words.md. ``plain``
    are the same answers replayed without drafts, if passes have a cost: ``predicted_speedup`` is their decode
    seconds over those of ``answers``, where drafting and planning take the time that they really took."""
    found = rates(answers)
    steps = max(1, found.passes)
    seconds = sum(found.seconds.values())
    predicted = rates(plain).seconds if plain is not None else None
    names = ("drafted_step_acceptance_length", "acceptance_rate", "draft_coverage", "accepted_per_cycle")
    return {
        "task": answers[0].task, "drafter": answers[0].arm, "planner": answers[0].planner,
        "answers": len(answers), "generated": found.tokens, "verifier_passes": found.passes,
        "ideal_speedup": found.mean_acceptance_length, "mean_acceptance_length": found.mean_acceptance_length,
        "mean_acceptance_length_unlooped": acceptance_length(answers, unlooped=True),
        **{name: getattr(found, name) for name in names},
        "acceptance_by_position": list(found.acceptance_by_position),
        "drafting_us_per_step": 1e6 * found.seconds["draft"] / steps,
        "overhead_us_per_step": 1e6 * (seconds - found.seconds["score"]) / steps,
        "predicted_speedup": sum(predicted.values()) / seconds if predicted and seconds else None,
        "predicted_seconds": seconds if predicted else None,
    }  # fmt: skip


def verdict(totals: Sequence[Row]) -> str:
    """Return in one sentence whether drafting would help, from rows over all answers. Without costs the tokens per
    pass are the most that can be gained."""
    timed = [row for row in totals if row["predicted_speedup"] is not None]
    name = "predicted_speedup" if timed else "ideal_speedup"
    best = max(timed or totals, key=lambda row: float(row[name]))
    gain, by = best[name], f"{best['drafter']}, {best['planner']}"
    word = next(word for least, word in _GAINS if gain >= least)
    asked = f"Would it help you? {word}:"
    if timed:
        return f"{asked} by these costs such answers are written {gain:.2f} times as fast ({by})."
    return f"{asked} {gain:.2f} tokens per pass ({by}), of which --profile MODEL says how much this machine gains."


_GAINS = ((1.5, "Yes"), (1.15, "A little"), (0.0, "Hardly"))
"""In docs/figures.md kinds of text with 1.9 tokens per pass were written 1.5 times as fast, with 1.4 1.2 times,
with 1.2 1.07 times, which is what one run differs from another."""


def probed(answers: Iterable[Answer]) -> Row:
    """Return what a probe counted over some answers, JSON-ready: ``targets``, tokens that decoding wrote without
    the one that reading the prompt gives, the ``proposals`` for them, those ``accepted`` that were equal, their
    rates, and under ``per_n`` the same by match length."""
    targets, by_match = 0, dict[int, list[bool]]()
    for step in (step for answer in answers for step in answer.steps):
        (source,) = step.by_source
        targets += 1
        if source.proposed:
            by_match.setdefault(source.match_length, []).append(bool(step.trace and step.trace["right"]))

    def figures(right: list[bool]) -> Row:
        proposals, accepted = len(right), sum(right)
        return {
            "targets": targets,
            "proposals": proposals,
            "accepted": accepted,
            "proposal_rate": proposals / targets if targets else 0.0,  # what draft coverage would be
            "acceptance_rate": accepted / proposals if proposals else 0.0,
            "accepted_per_target": accepted / targets if targets else 0.0,
        }

    per_n = [{"n": n, **figures(right)} for n, right in sorted(by_match.items())]
    return figures([one for right in by_match.values() for one in right]) | {"per_n": per_n}


_NOTHING = Ask(0, 0, np.empty(0, np.float32))


class SilentPlanner(Planner, PlannerSession):
    """Asks for one draft node per step, leaves it out of the pass, and notes whether it was right."""

    def __init__(self) -> None:
        self.right: list[bool] = []

    def open(self) -> Self:
        """Return itself: a planner serves one probe only."""
        return self

    def ask(self, states: Sequence[State]) -> list[list[Ask]]:
        return [[Ask(1, 0, d.prior) if d else _NOTHING for d in state.drafters] for state in states]

    def plan(self, states: Sequence[State], proposals: Sequence[Sequence[TokenTree]]) -> list[Plan]:  # noqa: ARG002
        nowhere = [tuple(np.full(len(tree), -1, np.int32) for tree in trees) for trees in proposals]
        return [Plan(TokenTree.empty(), node_map) for node_map in nowhere]

    def learn(self, states: Sequence[State], feedback: Sequence[Sequence[Feedback]]) -> None:  # noqa: ARG002
        for lessons in feedback:  # of one text, by one drafter; none where it was not asked
            right = [len(one.proposal) > 0 and int(one.proposal.tokens[0]) == one.emitted[0] for one in lessons]
            self.right += right or [False]


def probe(target: Target, drafter: DrafterSpec, request: Request, answer: Answer) -> Answer:
    """Decode one request plainly and note in each step's trace whether the drafter's proposal was ``right``.
    ``answer`` is filled while decoding goes on, so that an interrupt loses nothing."""
    drafters = with_models(load_drafters(drafter), DraftModels(target))
    answer.drafters = [d.name for d in drafters]
    answer.prompt_ids = list(request.prompt)
    planner = SilentPlanner()
    with open_sequences(target, drafters, [request], SampleAndMatch()) as sequences:
        for emission in decode_sequences(target, planner, sequences):
            step = emission.step
            if step is not None and step.by_source[0].proposed:
                emission = emission._replace(step=replace(step, trace={"right": planner.right[-1]}))
            answer.take(emission)
        answer.prefill_s = sequences[0].prefill_s
    answer.decode_s = sum(s.seconds for s in answer.steps)
    return answer
