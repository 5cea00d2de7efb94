"""Accounts: what something takes and saves, and for how many steps it is skipped while it takes more.

Skipped by this rule are: asking for drafts at all (`QuietSteps`), one drafter, and lookahead nodes of a drafter
(both `DrafterAccounts`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from draftwood.contracts import Declaration, State
from draftwood.planning import KEEP_LATELY

NOTICEABLE = 0.02  # a drafter that takes less than this share of a plain pass is always asked

_KEEP = 0.9  # weight of earlier steps in an account
_IN_VAIN = 0.0025  # share of the decoding time that asking may take while drafts save nothing
_LONGEST_QUIET = 32  # steps in a row in which no drafter is asked, at most
_BURST = 16  # what one step saves counts as at most this many times the cost of asking
_STALL, _STALL_PASSES = 1.0, 4.0
"""One draft counts as at most so many plain passes; the second is for drafters that run passes of their own."""
_WORTH = 1.05  # times the speed of plain decoding that a draft must promise to be scored
_FREE_LOSS = 1.0  # plain passes that drafts may lose before more is asked
_RAISE = 0.1  # how much more is asked per plain pass lost beyond that
SIZE = 2  # tokens that must have occurred before: a repeat
_OPENING = 16
"""Steps of first answers in which drafters that copy the text are asked only where it repeats itself: elsewhere
they are right too seldom, and an answer of 9 tokens cannot win back what asking in vain takes."""
_MOST = 1 << 15  # tokens of a text that are looked at for repeats, the latest when it was first seen


@dataclass(slots=True)
class Account:
    """Average seconds per step that something costs and gains; where it gains less it is skipped for a while.

    The first skip takes ``shortest`` steps, each further one twice as many, at most ``longest``. Nothing is
    skipped before ``trial`` steps were counted. ``fresh``: after a skip there is a new trial.
    """

    trial: int = 1
    shortest: int = 1
    longest: int = 256
    fresh: bool = False
    cost: float = 0.0
    gain: float = 0.0
    steps: int = 0  # in the averages
    pause: int = 0  # length of the last skip
    left: int = 0  # steps of the skip under way

    def count_down(self) -> None:
        """Begin a step."""
        if self.left:
            self.left -= 1
            if self.fresh:
                self.steps = 0

    def learn(self, cost: float, gain: float, longest: int | None = None, count: int = 1) -> None:
        """Count a step in which it was used, or one that stands for ``count``; skips last ``longest`` at most."""
        self.steps += count
        keep = min(max(_KEEP, 1 - 1 / self.trial), 1 - count / self.steps)
        self.cost = keep * self.cost + (1 - keep) * cost
        self.gain = keep * self.gain + (1 - keep) * gain
        if self.gain >= self.cost:
            self.pause = 0
        elif self.steps >= self.trial:
            self.pause = min(max(self.shortest, 2 * self.pause), self.longest if longest is None else longest)
            self.left = self.pause + 1 if self.pause else 0


_NEW = Account()  # skips nothing; not to be written to


class Overhead:
    """Average seconds of a step outside of its pass: no drafter asked, asked in vain, a draft scored."""

    def __init__(self) -> None:
        self.quiet = self.vain = self.drafted = 0.0

    @property
    def of_asking(self) -> float:
        """Seconds that asking adds to a step; 0 while nothing was measured."""
        return max(0.0, self.vain - self.quiet)

    @property
    def of_scoring(self) -> float:
        """Seconds that a scored draft adds to a step outside of its pass."""
        return max(0.0, self.drafted - self.vain) if self.vain and self.drafted else 0.0

    def learn(self, states: Sequence[State], *, asked: bool) -> None:
        if states[0].traced:  # writing a trace takes time that other steps do not take
            return
        seconds = states[0].step.plan_s  # all share it
        for state in states:
            step = state.step
            seconds += step.draft_s + step.verify_s + step.keep_s + step.learn_s
            for drafter, own in zip(state.drafters, step.by_source, strict=False):
                if drafter is not None and drafter.needs.prices:
                    seconds -= own.draft_s  # it runs passes and goes by prices: it must not stop others
        self.count(seconds, asked=asked, drafted=any([state.step.drafted > 0 for state in states]))

    def count(self, seconds: float, *, asked: bool, drafted: bool) -> None:
        """Add a step that took so many seconds outside of its pass; a long one is capped."""
        if not 0 < seconds < math.inf:
            return
        which = "quiet" if not asked else "drafted" if drafted else "vain"
        known = getattr(self, which)
        weight = 1 - KEEP_LATELY if known else 1.0
        setattr(self, which, known + weight * (min(seconds, 4 * known + 1e-3) - known))


class Losses:
    """What the drafts of one text, or of a batch, have lost so far, in plain passes, older ones less.

    A text whose drafts keep failing asks more of the next one, so that no text loses much: beliefs are right on
    average over texts, not for each of them.
    """

    def __init__(self) -> None:
        self.passes = 0.0

    @property
    def demand(self) -> float:
        """How many times as fast as plain decoding a draft must promise to be."""
        return _WORTH + _RAISE * max(0.0, self.passes - _FREE_LOSS)

    def learn(self, tokens: float, plain_passes: float) -> None:
        """Record a pass with a draft: the tokens it gave each text, and how many plain passes long it was."""
        self.passes = max(0.0, KEEP_LATELY * self.passes + plain_passes - tokens)


class Repeats:
    """Whether one text, which grows, repeats itself: the cheapest sign that something can be copied."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, ...]] = set()
        self._length = 0  # of the text that was looked at

    def at_end_of(self, ids: Sequence[int]) -> bool:
        """Return whether the last `SIZE` of these tokens, prompt included, stood in the text before."""
        length = len(ids)
        if length < self._length:  # it was cut
            self._seen, self._length = set(), 0
        if length < SIZE:
            return False
        lately = ids[max(self._length, length - _MOST, SIZE) - SIZE : length - 1]
        self._seen.update(pairwise(lately))
        self._length = length
        return tuple(ids[-SIZE:]) in self._seen


def asking_accounts() -> tuple[Account, Account]:
    """Return the accounts of steps in which the text does not repeat itself, and of those in which it does."""
    return Account(longest=_LONGEST_QUIET), Account(longest=_LONGEST_QUIET)


class QuietSteps:
    """Decides in each step whether drafters are asked at all.

    Steps in which the text repeats itself have an account of their own: where copies begin, drafters are asked at
    once, and where nothing is to be copied, hardly ever. The accounts begin with what earlier calls on this target
    have ``learned``; this call writes there what it learns. ``waiting``: while nothing was learnt, drafters are
    asked only where the text repeats itself, for `_OPENING` steps.
    """

    def __init__(self, learned: tuple[Account, Account], *, waiting: bool = False) -> None:
        self._learned = learned
        self._accounts = [replace(one, pause=one.pause // 2, left=0) for one in learned]
        if waiting and not learned[0].steps:
            self._accounts[0].left = _OPENING
        self._now, self._shared = self._accounts[0], learned[0]

    def begin(self, *, repeating: bool) -> bool:
        """Begin a step; return whether to ask. ``repeating``: one of the texts repeats itself at this place."""
        self._now, self._shared = self._accounts[repeating], self._learned[repeating]
        self._now.count_down()
        return not self._now.left

    def learn(self, gain: float, cost: float, plain: float, *, keep_on: bool) -> None:
        """Record that a draft saves ``gain`` seconds of a step; asking costs ``cost``, a plain pass ``plain``."""
        if cost and keep_on:
            self._now.pause = 0
        elif cost:
            longest = max(1, min(_LONGEST_QUIET, int(cost / (_IN_VAIN * plain))))
            self._now.learn(cost, min(gain, _BURST * cost), longest if cost >= _IN_VAIN * plain else 0)
        now, shared = self._now, self._shared
        shared.cost, shared.gain, shared.steps, shared.pause = now.cost, now.gain, now.steps, now.pause


class DrafterAccounts:
    """Decides for each slow drafter whether to ask it, from the seconds it takes and saves over all requests.

    A drafter that needs the target's best tokens takes time in every step, asked or not. While it is skipped it
    rests: it is not shown any. Lookahead nodes have accounts of their own: while they are skipped, their drafter
    is asked for drafts alone. Accounts of drafters with passes of their own go on from call to call, since a
    trial of one takes as long as a pass or two.
    """

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}  # by a drafter's label
        self.lookahead: dict[str, Account] = {}  # of its lookahead nodes
        self._kept: dict[str, Account] = {}  # of drafters with passes; other calls read and write them, too
        self._begun: set[str] = set()  # labels of those that have drafted in this call

    def go_on(self, kept: dict[str, Account]) -> None:
        """Begin with what earlier calls have learnt of drafters with passes, and keep there what this one learns.

        A drafter that was resting until now has not been shown the target's states. If it would be asked in the
        next step, it is skipped in that one, too, and shown them. So 5 steps left before and 0 in ``kept`` become
        2: it is skipped and shown states in the next step, and asked in the one after that.
        """
        before = {label: self.accounts.pop(label).left for label in self._kept if label in self.accounts}
        self._kept = kept
        for label, account in kept.items():
            self.accounts[label] = replace(account, left=max(account.left, 2 * (before.get(label, 0) > 1)))

    def begin(self) -> None:
        for account in self.lookahead.values():
            account.count_down()
        for label, account in self.accounts.items():
            account.count_down()
            if label in self._kept:
                self._kept[label].left = account.left

    def is_skipped(self, drafter: Declaration) -> bool:
        return self.accounts.get(drafter.label, _NEW).left > 0

    def rests(self, drafter: Declaration) -> bool:
        """Whether a skipped drafter is shown nothing of this step.

        One that reads hidden states is shown those of the last step that it is skipped in, from which its next
        draft starts: of 8 such steps it rests in 7. One that reads best tokens rests in all 8.
        """
        account, needs = self.accounts.get(drafter.label, _NEW), drafter.needs
        return bool((needs.top_k and account.left) or (needs.hidden and account.left > 1))

    def skips_lookahead(self, drafter: Declaration) -> bool:
        return self.lookahead.get(drafter.label, _NEW).left > 0

    def is_judged(self, drafter: Declaration, seconds: float, plain: float) -> bool:
        """Whether what the drafter saves has to be known, if its drafts take so long."""
        needs = drafter.needs
        slow = needs.top_k > 0 or needs.lookahead_nodes > 0 or seconds >= NOTICEABLE * plain
        return slow or drafter.label in self.accounts

    def learn(
        self, states: Sequence[State], plain: float, saved: Mapping[str, float] | None,
        lookahead_s: Mapping[str, float], count: int,
    ) -> None:  # fmt: skip
        """Learn from a step that stands for ``count`` of them.

        ``saved``: the seconds that each drafter's nodes save in it, by label, None where no drafter was asked;
        ``plain``: the seconds of a plain pass; ``lookahead_s``: those that its lookahead nodes have added.
        """
        for label, (drafter, seconds) in self._costs(states).items():
            account, runs_passes = self.accounts.get(label), drafter.needs.prices
            if not self.is_judged(drafter, seconds, plain):
                continue
            if saved is None and (account is None or not account.steps):  # a trial begins by being asked
                continue
            if runs_passes and seconds < NOTICEABLE * plain:  # it saw at once that no pass would pay
                continue
            if account is None:
                account = self.accounts[label] = _account(drafter)
            if runs_passes and label not in self._begun:  # its first draft has read the prompt, and warmed up
                self._begun.add(label)
                self._kept.setdefault(label, replace(account))
                continue
            cost = min(seconds, (_STALL_PASSES if runs_passes else _STALL) * plain)
            cost, gain = cost if cost >= NOTICEABLE * plain else 0.0, (saved or {}).get(label, 0.0)
            account.learn(cost, gain, count=count)
            if runs_passes:
                self._kept[label] = replace(account)
            if label in lookahead_s:
                nodes = self.lookahead.setdefault(label, _account(drafter))
                nodes.learn(lookahead_s[label], max(0.0, gain - cost), count=count)

    def _costs(self, states: Sequence[State]) -> dict[str, tuple[Declaration, float]]:
        """Return what each drafter that worked in this step has taken, over all texts, by label."""
        found: dict[str, tuple[Declaration, float]] = {}
        for state in states:
            step = state.step
            worked = [
                (drafter, own)
                for drafter, own in zip(state.drafters, step.by_source, strict=False)
                if drafter is not None and (own.calls or drafter.needs.top_k) and not self.is_skipped(drafter)
            ]
            if state.traced:  # writing a trace takes time that other steps do not take
                worked = [(drafter, own) for drafter, own in worked if not drafter.needs.top_k]
            shown = sum([drafter.needs.top_k > 0 for drafter, _ in worked])
            # Finding the target's best tokens is in the step's time, not in that of a drafter, so those that are
            # shown any share it: of 1.0 ms in which two drafters have learnt for 0.3 each, 0.2 go to each of them.
            shared = max(0.0, step.learn_s - sum([own.learn_s for own in step.by_source])) if shown else 0.0
            for drafter, own in worked:
                seconds = own.draft_s
                if drafter.needs.top_k:
                    seconds += own.learn_s + shared / shown
                found[drafter.label] = drafter, found.get(drafter.label, (drafter, 0.0))[1] + seconds
        return found

    def why(self) -> list[str]:
        """Return which drafters are not asked at present, and why, as text for ``draftwood explain``."""
        return [
            f"{what}{label.partition(' ')[0]} is not asked for {own.left} steps: "
            f"it takes {1000 * own.cost:.1f} ms and saves {1000 * own.gain:.1f}"
            for what, accounts in (("", self.accounts), ("lookahead of ", self.lookahead))
            for label, own in accounts.items()
            if own.left
        ]


def _account(drafter: Declaration) -> Account:
    if drafter.needs.lookahead_nodes:
        return Account(trial=24, shortest=24, longest=512, fresh=True)  # what they find comes some steps later
    if drafter.needs.top_k:
        return Account(trial=16, shortest=32, longest=512, fresh=True)
    return Account(trial=4, shortest=8, longest=256, fresh=True)
