"""A rule that is watched: which row of scores decided each token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from draftwood.contracts import Ended, Floats, Noise, Processor, Rule, RuleSession, Sampling, Scores, Verdict
from draftwood.tree import TokenTree

Decision = tuple[int, Floats]
"""An emitted token, and the raw scores float32[vocab] that it was taken from."""


@dataclass(slots=True)
class Watched:
    """Decisions that nobody has looked at yet, in order."""

    decisions: list[Decision] = field(default_factory=list)

    def take(self) -> list[Decision]:
        """Return them, and begin anew."""
        taken, self.decisions = self.decisions, []
        return taken


@dataclass(frozen=True)
class WatchedRule:
    """Another rule, its decisions noted; fulfils `draftwood.contracts.Rule`.

    Parameters
    ----------
    rule
        Decides.
    into
        Where the decisions are noted. Rows are copies, a vocabulary's width each: take them after every step.
    """

    rule: Rule
    into: Watched

    def open(
        self, prompt: Sequence[int], sampling: Sampling, processors: Sequence[Processor] = (), sequence: int = 0
    ) -> WatchedSession:
        """Start a request."""
        return WatchedSession(self.rule.open(prompt, sampling, processors, sequence), self.into)


class WatchedSession:
    """Delegates to a rule's session; fulfils `draftwood.contracts.RuleSession`."""

    def __init__(self, session: RuleSession, into: Watched) -> None:
        self._session, self._into = session, into

    @property
    def noise(self) -> Noise | None:
        return self._session.noise

    def verify(self, tree: TokenTree, scores: Scores, ended: Ended) -> Verdict:
        """Let the rule decide, then note what it emitted."""
        verdict = self._session.verify(tree, scores, ended)
        rows = (0, *(1 + node for node in verdict.path))
        for token, row in zip(verdict.emitted, rows, strict=False):  # the last node may carry the end of the text
            self._into.decisions.append((token, scores.numpy(scores.raw(row)).copy()))
        return verdict
