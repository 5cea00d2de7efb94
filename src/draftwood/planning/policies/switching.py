"""Policy ``switching``: asks only the drafter that is fastest on this kind of text, or all of them.

Of drafters that own models at most one is asked at a time; `Exclusive` chooses among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from draftwood.contracts import State
from draftwood.errors import UsageError
from draftwood.planning.bandit import ALL, Bandit
from draftwood.planning.base import Limit
from draftwood.planning.kind import kind_of
from draftwood.planning.learned import Learned
from draftwood.planning.policies.exclusive import Exclusive
from draftwood.step import SourceStep

_TAIL = 256  # last tokens of the text by which its kind is recognised
_LONGEST = 3600.0  # seconds of a step; a longer time comes from a clock that jumped
_MOST_SETS = 256  # sets of drafters that are known; the oldest is forgotten
_UNKNOWN = "text"  # the kind of every text that cannot be decoded


@dataclass(slots=True)
class _Request:
    bandit: Bandit
    kind: str
    looked: int  # length of the text when its kind was recognised
    arm: int = ALL
    why: str = ""


class SwitchingPolicy:
    """Asks one drafter of the set or all of them, whichever gives most tokens per second on this kind of text.

    The kind (code, prose, chat, structured) is recognised when a request begins and after each ``every`` tokens,
    by the text that ``decode`` makes of token ids; without it all text counts as one kind. What is learnt belongs
    to one kind of text and one set of drafters with their options. `UsageError` if ``every`` is below 1.

    In a set with drafters that own models (`Needs.prices`) the others are always asked, and of these the one that
    has given most tokens per second so far, or none; ``learned`` keeps that for all calls with the target.
    """

    name = "switching"

    def __init__(
        self, every: int = 64, *, decode: Callable[[Sequence[int]], str] | None = None,
        learned: Learned | None = None,
    ) -> None:  # fmt: skip
        if every < 1:
            raise UsageError(f"switching: every is {every}: look again after 1 token or more")
        self.every = every
        self._decode = decode
        self._bandits: dict[tuple[str, ...], Bandit] = {}
        self._requests: WeakKeyDictionary[State, _Request] = WeakKeyDictionary()
        self._node_cost = _NodeCost()
        self._exclusive = Exclusive(learned if learned is not None else Learned())
        self._rows = 1  # requests that share the pass

    def limit(self, state: State, rows: int, nodes: int) -> Limit:
        self._rows, drafters = rows, state.drafters
        if sum(drafter is not None for drafter in drafters) < 2:
            self._requests.pop(state, None)
            return Limit(why="one drafter: nothing to choose")
        if not nodes:  # no drafter will be asked, so there is nothing to choose
            known = self._requests.get(state)
            return Limit(why="nothing decided yet" if known is None else known.why)
        request = self._look(state)
        if self._exclusive.concerns(drafters):
            asked, who = self._exclusive.mask(state, request.kind)
            request.why = self._said(request.kind, who)
            return Limit(drafters=asked, why=request.why)
        arm = request.bandit.arm(request.kind)
        if arm != ALL and drafters[arm - 1] is None:  # disabled for this request
            arm = ALL
        chosen = drafters[arm - 1] if arm != ALL else None
        who = chosen.name if chosen is not None else "all drafters"
        request.arm, request.why = arm, self._said(request.kind, who)
        mask = None if arm == ALL else [i == arm - 1 for i in range(len(drafters))]
        return Limit(drafters=mask, why=request.why)

    def learn(self, state: State) -> None:
        request, step = self._requests.get(state), state.step
        if request is None or not 0 < step.score_s <= step.seconds < _LONGEST:
            return
        if self._exclusive.concerns(state.drafters):
            self._exclusive.learn(state, request.kind, self._rows)
            return
        tokens, width = len(step.emitted), 1 + step.drafted + step.lookahead_scored
        self._node_cost.learn(width, step.score_s)
        seconds = step.score_s / self._rows + step.overhead_s
        if not any(source.calls for source in step.by_source):  # the planner or another policy drafted nothing
            request.bandit.idle(request.kind)
        elif request.arm != ALL:
            request.bandit.learn_one(request.kind, request.arm, tokens, seconds)
        else:
            drafting = sum(source.draft_s for source in step.by_source)
            each: list[tuple[float, float] | None] = [
                (min(tokens, 1 + source.accepted), self._with_one(source, seconds, width, drafting))
                if source.calls
                else None  # disabled, or left out by the planner
                for source in step.by_source
            ]
            request.bandit.learn_all(request.kind, [(tokens, seconds), *each])

    def _with_one(self, source: SourceStep, seconds: float, width: int, drafting: float) -> float:
        """Estimate the seconds of this step with this drafter alone: a narrower pass and less drafting."""
        narrower = width - (1 + source.kept + source.lookahead_nodes)
        least = 0.1 * seconds  # the cost of a node is an estimate, and no pass takes no time
        return max(least, seconds - self._node_cost.seconds * narrower - (drafting - source.draft_s))

    def _look(self, state: State) -> _Request:
        """Return what is known of the request; its kind is recognised again if that is due."""
        request, length = self._requests.get(state), state.length
        if request is None or request.bandit.drafters != len(state.drafters):  # the next turn may have others
            bandit = self._bandit(tuple(d.label if d is not None else "" for d in state.drafters))
            request = self._requests[state] = _Request(bandit, self._kind(state), length)
        elif not request.looked <= length < request.looked + self.every:
            request.kind, request.looked = self._kind(state), length
        return request

    def _bandit(self, names: tuple[str, ...]) -> Bandit:
        if names not in self._bandits and len(self._bandits) >= _MOST_SETS:
            del self._bandits[next(iter(self._bandits))]
        return self._bandits.setdefault(names, Bandit(len(names)))

    def _kind(self, state: State) -> str:
        if self._decode is None:
            return _UNKNOWN
        try:
            return kind_of(self._decode(state.ids[-_TAIL:]))
        except Exception:  # whatever the user's tokenizer raises must not end the text
            return _UNKNOWN

    def _said(self, kind: str, who: str) -> str:
        note = ", without a tokenizer all text counts as one kind" if self._decode is None else ""
        return f"{kind}: {who}{note}"


class _NodeCost:
    """Estimates by linear regression how many seconds one more node adds to a pass.

    The prior is 4 % of a pass over one token, on purpose a low value: with a high one a single drafter would be
    credited with time that leaving the others out does not save. Two widths are enough to correct it.
    """

    _SHARE = 0.04
    _KEEP = 0.99  # weight of earlier passes

    def __init__(self) -> None:
        self._n = self._w = self._y = self._ww = self._wy = 0.0

    def learn(self, width: int, seconds: float) -> None:
        """Record the seconds of a pass over ``width`` tokens, an outlier as about twice the average."""
        if self._n:
            seconds = min(seconds, 2 * self._y / self._n + self.seconds * width)
        keep = self._KEEP
        self._n, self._w, self._y = keep * self._n + 1, keep * self._w + width, keep * self._y + seconds
        self._ww, self._wy = keep * self._ww + width * width, keep * self._wy + width * seconds

    @property
    def seconds(self) -> float:
        """Seconds per node, at least 0."""
        if not self._n:
            return 0.0
        width, seconds = self._w / self._n, self._y / self._n
        spread, joint = self._ww / self._n - width * width, self._wy / self._n - width * seconds
        guess = self._SHARE * seconds / (1 + self._SHARE * (width - 1))
        return max(0.0, (joint + guess) / (spread + 1))
