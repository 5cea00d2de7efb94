"""A step with what its planner recorded about its choice; records of older versions hold less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from draftwood.step import Step

_WHOLE = ("nodes", "most", "asked", "candidates", "chosen", "pooled", "best", "context", "rows")
_NUMBERS = (int, float)
_KNOWN: Mapping[str, tuple[type, ...]] = {
    "planner": (str,), "explored": (bool,), "floor": _NUMBERS, "overhead_ms": _NUMBERS,
    **dict.fromkeys(_WHOLE, (int,)),
}  # fmt: skip
_MOST, _LEAST_MS = 1e15, 1e-6  # bounds of what a real pass can have


class Alternative(NamedTuple):
    """A draft size that the planner considered: nodes, and the tokens and milliseconds it expected of the pass."""

    nodes: int
    tokens: float
    ms: float

    @property
    def rate(self) -> float:
        """Goodput: expected tokens per second."""
        return 1000 * self.tokens / self.ms


@dataclass(frozen=True)
class Account:
    """A step and its recorded plan; unknown or malformed parts of the plan are left out."""

    number: int  # of the step within its answer, from 1
    step: Step

    @cached_property
    def _recorded(self) -> Mapping[str, Any]:
        given = self.step.trace.get("plan") if isinstance(self.step.trace, Mapping) else None
        return given if isinstance(given, Mapping) else {}

    @cached_property
    def plan(self) -> Mapping[str, Any]:
        """The valid single values of the plan, by the names in `_KNOWN`."""
        given = {name: self._recorded.get(name) for name in _KNOWN}
        return {
            name: value
            for name, value in given.items()
            if type(value) in _KNOWN[name] and (isinstance(value, str) or 0 <= value < _MOST)  # type: ignore[operator]
        }

    @cached_property
    def alternatives(self) -> tuple[Alternative, ...]:
        """The draft sizes that the planner compared, smallest first; empty if it compared none."""
        given = [_listed(each)[:3] for each in _listed(self._recorded.get("alternatives"))]
        whole = [each for each in given if len(each) == 3 and {type(value) for value in each} <= set(_NUMBERS)]
        valid = [e for e in whole if 0 <= e[0] < _MOST and 0 <= e[1] < _MOST and _LEAST_MS <= e[2] < _MOST]
        return tuple(sorted({Alternative(int(n), float(tokens), float(ms)) for n, tokens, ms in valid}))

    @cached_property
    def policies(self) -> Mapping[str, str]:
        """Name -> what it measured, for every active policy."""
        return {str(p[0]): str(p[1]) for p in _listed(self._recorded.get("policies")) if len(_listed(p)) >= 2}

    @property
    def notes(self) -> tuple[str, ...]:
        """The planner's remarks about sources."""
        return tuple(str(note) for note in _listed(self._recorded.get("sources")))

    @property
    def asked(self) -> int | None:
        """Most draft nodes that a source was asked for; None if not recorded."""
        asked: int | None = self.plan.get("asked", max((s.asked for s in self.step.by_source), default=None))
        return asked

    @property
    def proposed(self) -> int:
        """Draft nodes that the sources proposed, before equal ones were merged."""
        return sum(s.proposed for s in self.step.by_source)

    @property
    def held(self) -> tuple[str, ...]:
        """Policies that limited this draft: those with a limit, if all candidates within it were scored."""
        cut = self.chosen >= self.plan.get("candidates", 0) and self.proposed >= (self.asked or 0)
        return self.step.held if cut else ()

    @property
    def rows(self) -> int:
        """Requests that shared the pass; 1 if not recorded."""
        return int(self.plan.get("rows", 1))

    @property
    def chosen(self) -> int:
        """Draft nodes of this request that were scored."""
        return int(self.plan.get("chosen", self.step.drafted))

    @property
    def pooled(self) -> int:
        """Draft nodes scored for all requests of the pass; `alternatives` are about this number."""
        return int(self.plan.get("pooled", self.chosen))

    def alternative(self, nodes: int) -> Alternative | None:
        """Return what the planner expected of a pass over this many draft nodes."""
        return next((a for a in self.alternatives if a.nodes == nodes), None)

    @property
    def expected(self) -> Alternative | None:
        """What the planner expected of the pass that was made; None where several requests shared it."""
        return self.alternative(self.pooled) if self.rows == 1 else None

    @property
    def odds(self) -> tuple[float, float] | None:
        """Predicted acceptance of the best candidate, and the extra time for the first draft node as a share of
        a plain pass; None where they are not known, or may belong to another request.
        """
        none, one = self.alternative(0), self.alternative(1)
        if none is None or one is None or self.rows > 1:
            return None
        return max(0.0, min(1.0, one.tokens - none.tokens)), max(0.0, one.ms / none.ms - 1)

    @property
    def ms(self) -> float:
        """Milliseconds that the step took."""
        return 1000 * self.step.seconds


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, (list, tuple)) else ()


def accounts(steps: Sequence[Step]) -> list[Account]:
    """Return an account per step of one answer."""
    return [Account(number, step) for number, step in enumerate(steps, start=1)]


_TOKENS = 1 << 31  # token ids lie below it
_COLUMNS: Mapping[str, tuple[type, ...]] = {
    "source": (int,), "evidence": (int,), "belief": (int, float), "lookahead": (bool,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tree:
    """Nodes as `Step.trace` lists them; parents come before their children, -1 is the root."""

    tokens: Sequence[int]
    parents: Sequence[int]
    path: Sequence[int]  # the accepted nodes, from the root on
    columns: Mapping[str, Sequence[Any]]  # source, evidence, belief, lookahead: each only if every node has one

    @classmethod
    def of(cls, step: Step) -> Tree | None:
        """Return the tree that the pass scored; None if there is none or the trace is malformed."""
        trace = step.trace if isinstance(step.trace, Mapping) else {}
        tokens, parents, path = (_column(trace.get(name), None, (int,)) for name in ("tokens", "parents", "path"))
        if not tokens or min(tokens) < 0 or parents is None or path is None or len(parents) != len(tokens):
            return None
        if not all(-1 <= parent < node for node, parent in enumerate(parents)):
            return None
        if not all(0 <= n < len(parents) and parents[n] == before for before, n in pairwise((-1, *path))):
            return None
        known = {name: _column(trace.get(name), len(tokens), kinds) for name, kinds in _COLUMNS.items()}
        return cls(tokens, parents, path, {name: column for name, column in known.items() if column is not None})

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary, as in `Step.trace`."""
        own = {"tokens": self.tokens, "parents": self.parents, **self.columns, "path": self.path}
        return {name: list(column) for name, column in own.items()}


def _column(given: Any, length: int | None, kinds: tuple[type, ...]) -> list[Any] | None:
    """Return the list if its values are finite and of these kinds, and its length is right; None otherwise."""
    if not isinstance(given, (list, tuple)) or length not in (None, len(given)):
        return None
    return list(given) if all(type(v) in kinds and -_TOKENS <= v < _TOKENS for v in given) else None
