"""What planners have learnt about one target: rates and seconds, shared by all calls and kept on disk; no text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from draftwood.child_safe import ChildSafeLock
from draftwood.contracts import Declaration
from draftwood.planning.accounts import Account, Overhead, asking_accounts
from draftwood.planning.beliefs import Beliefs
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.cost_model import CostModel, of_size

Asking = tuple[Overhead, tuple[Account, Account], dict[str, Account]]
_MOST_SETS = 256  # sets of drafters whose asking is known; the oldest is forgotten


class Learned:
    """Acceptance rates of drafters on one target, beginning with ``beliefs``, and the seconds of its passes,
    beginning with a measured ``curve`` or a guess. Planners hold ``lock``: several threads may use one target.

    ``turns`` tell which of several drafters with models has been fastest. ``costs`` are the models of passes that
    requests share, by the number of bits in the number of requests.
    """

    def __init__(
        self, beliefs: Beliefs | None = None, curve: CostCurve | None = None,
        costs: Mapping[int, CostModel] | None = None,
    ) -> None:  # fmt: skip
        self.beliefs = beliefs or Beliefs()
        self.curve = curve
        self.lock = ChildSafeLock()
        self.costs = dict(costs or {})
        self._asking: dict[Any, Asking] = {}  # by size, greedy, and drafters
        self.turns: dict[tuple[str, ...], Any] = {}  # by the labels of a set of drafters; not kept on disk

    @property
    def passes(self) -> int:
        """How many passes were learnt from."""
        return sum(model.passes for model in self.costs.values())

    def cost(self, rows: int) -> CostModel:
        """Return the cost model of passes that ``rows`` requests share; a new one starts from the nearest batch
        size.
        """
        return of_size(self.costs, rows.bit_length(), self.curve)

    def asking(self, rows: int, drafters: Sequence[Declaration | None], *, greedy: bool) -> Asking:
        """Return what asking these drafters has taken in steps of so many texts: the seconds outside of the pass;
        two accounts, of steps in which the text does not repeat itself and of those in which it does; and an
        account of each drafter that runs passes of its own, by its label.
        """
        labels = tuple([drafter.label for drafter in drafters if drafter is not None])
        key = rows.bit_length(), greedy, labels
        if key not in self._asking and len(self._asking) >= _MOST_SETS:
            del self._asking[next(iter(self._asking))]
        return self._asking.setdefault(key, (Overhead(), asking_accounts(), {}))
