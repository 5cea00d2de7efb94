"""The planner: how much is drafted in each step, and how much of it is scored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from draftwood.contracts.drafter import Feedback, Needs, Prices
from draftwood.contracts.target import Capabilities, Floats, Ints
from draftwood.step import Step
from draftwood.tree import TokenTree


@dataclass(frozen=True, eq=False)
class Declaration:
    """What a drafter declares, read once (`draftwood.contracts.declaring.declared`)."""

    name: str
    label: str  # name and options, the same in every run: what is learnt about a drafter is stored under it
    prior: Floats  # float32[n_evidence], read-only
    needs: Needs
    copies_text: bool = False


class State(Protocol):
    """What a planner may know of a running request."""

    @property
    def drafters(self) -> Sequence[Declaration | None]:
        """The set in order; None where a drafter was disabled for this request."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def length(self) -> int:
        """Committed tokens, prompt included."""
        ...

    @property
    def remaining(self) -> int:
        """Tokens that may still be emitted, at least 1."""
        ...

    @property
    def ids(self) -> Sequence[int]:
        """Committed tokens, prompt included; not to be written to."""
        ...

    @property
    def greedy(self) -> bool: ...

    @property
    def traced(self) -> bool:
        """Whether the reasons for each plan are recorded: `Step.trace`."""
        ...

    @property
    def step(self) -> Step:
        """Record of the current step; in `PlannerSession.ask`, of the last one.

        In `PlannerSession.learn` it has the seconds of its pass, by the loop's clock. Planners may write its
        ``held``, ``temperature``, ``battery`` and, where traced, ``trace``.
        """
        ...


class Ask(NamedTuple):
    """What one drafter is asked for in one step: the arguments of `DraftSession.draft`.

    A ``resting`` drafter learns of this step its tokens only, whatever it needs. ``prices`` are for drafters that
    ask for them (`Needs.prices`).
    """

    nodes: int
    lookahead_nodes: int
    accept_rates: Floats
    resting: bool = False
    prices: Prices = Prices()


class Plan(NamedTuple):
    """What is scored for one request: the pruned tree, and per drafter the index of each proposed node in it.

    The index of a pruned node is -1.
    """

    tree: TokenTree
    node_map: tuple[Ints, ...]


class PlannerSession(ABC):
    """A planner's side of one call, whose texts share each pass. Used by one thread at a time."""

    @abstractmethod
    def ask(self, states: Sequence[State]) -> list[list[Ask]]:
        """Per request and drafter of its set: how much to ask for."""

    @abstractmethod
    def plan(self, states: Sequence[State], proposals: Sequence[Sequence[TokenTree]]) -> list[Plan]:
        """Merge each request's proposals (one tree per drafter of its set) and drop what is not worth scoring."""

    def learn(self, states: Sequence[State], feedback: Sequence[Sequence[Feedback]]) -> None:
        """Take in the result of a pass, per request and drafter.

        The list of a request is empty where no drafter was asked and nothing was drafted.
        """


class Planner(ABC):
    """Decides how much is drafted and how much of it is scored, possibly nothing. Owns the acceptance rates.

    Calls and threads may share it. What it knows between `PlannerSession.ask` and `PlannerSession.learn` belongs
    to the session; what it has learnt is shared, under a lock.
    """

    @abstractmethod
    def open(self) -> PlannerSession:
        """Start a call; a session needs no closing."""
