"""The probe: decodes plainly while a drafter proposes one token at each step, and counts how many were right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from draftwood.api.draft_models import DraftModels, with_models
from draftwood.api.setup import DrafterSpec
from draftwood.contracts import Ask, Feedback, Plan, State, Target
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.opening import open_sequences
from draftwood.decoding.request import Request
from draftwood.drafters.load import load as load_drafters
from draftwood.measure.records.records import Answer
from draftwood.tree import TokenTree
from draftwood.verify.exact import SampleAndMatch


@dataclass(slots=True)
class ProbeCounts:
    """What a probe counted."""

    targets: int = 0  # tokens that decoding wrote, without the one that reading the prompt gives
    proposals: int = 0  # targets for which the drafter proposed a token
    accepted: int = 0  # proposals that were equal to the target
    by_match: dict[int, tuple[int, int]] = field(default_factory=dict)  # match length -> (proposals, accepted)

    @classmethod
    def of(cls, answers: Iterable[Answer]) -> ProbeCounts:
        """Count over probed answers."""
        found = cls()
        for step in (step for answer in answers for step in answer.steps):
            (source,) = step.by_source
            found.targets += 1
            if not source.proposed:
                continue
            right = bool(step.trace and step.trace["right"])
            found.proposals += 1
            found.accepted += right
            proposals, accepted = found.by_match.get(source.match_length, (0, 0))
            found.by_match[source.match_length] = proposals + 1, accepted + right
        return found

    @property
    def proposal_rate(self) -> float:
        """Proposals / targets: what draft coverage would be."""
        return self.proposals / self.targets if self.targets else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted / proposals."""
        return self.accepted / self.proposals if self.proposals else 0.0

    @property
    def accepted_per_target(self) -> float:
        """Accepted / targets."""
        return self.accepted / self.targets if self.targets else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary: the counts and rates, and under ``per_n`` the same by match length."""
        matches = sorted(self.by_match.items())
        per_n = [{"n": n, **ProbeCounts(self.targets, *counts)._figures()} for n, counts in matches]
        return self._figures() | {"per_n": per_n}

    def _figures(self) -> dict[str, Any]:
        names = ("targets", "proposals", "accepted", "proposal_rate", "acceptance_rate", "accepted_per_target")
        return {name: getattr(self, name) for name in names}


_NOTHING = Ask(0, 0, np.empty(0, np.float32))


class SilentPlanner:
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
