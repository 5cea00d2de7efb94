"""A request as a planner sees it, without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from draftwood.contracts import Capabilities, Drafter
from draftwood.step import Step


@dataclass
class FakeState:
    """Fulfils `draftwood.contracts.State`."""

    remaining: int = 100
    trees: bool = True
    max_pass: int = 1000
    drafters: Sequence[Drafter | None] = ()
    length: int = 50
    greedy: bool = True
    step: Step = field(default_factory=lambda: Step(0, 50))
    capabilities: Capabilities = field(init=False)

    def __post_init__(self) -> None:
        self.capabilities = Capabilities(64, 4096, trees=self.trees, max_pass=self.max_pass)
