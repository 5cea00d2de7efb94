"""A request as a planner sees it, without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st
from tests.helpers import trees

from draftwood.contracts import Capabilities, Drafter
from draftwood.contracts.declaring import declared
from draftwood.step import SourceStep, Step


@dataclass(eq=False)
class FakeState:
    """Fulfils `draftwood.contracts.State`."""

    remaining: int = 100
    trees: bool = True
    max_pass: int = 1000
    drafters: Sequence[Drafter | None] = ()
    length: int = 50
    greedy: bool = True
    traced: bool = False
    ids: Sequence[int] = ()
    step: Step = field(default_factory=lambda: Step(0, 50))
    capabilities: Capabilities = field(init=False)

    def __post_init__(self) -> None:
        self.drafters = [None if drafter is None else declared(drafter) for drafter in self.drafters]
        self.capabilities = Capabilities(64, 4096, trees=self.trees, max_pass=self.max_pass)
        self.step.by_source = tuple(SourceStep() for _ in self.drafters)


STATES = st.builds(
    FakeState, remaining=st.integers(1, 8), trees=st.just(True), max_pass=st.sampled_from([1, 2, 5, 9, 1000])
)
PROPOSALS = st.lists(st.integers(0, 3), min_size=1, max_size=3).flatmap(
    lambda sources: st.tuples(*(trees(vocab_size=3, max_size=8, source=s) for s in range(len(sources))))
)
