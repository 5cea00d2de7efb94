"""Random lives of sessions on one target of any engine, every scored row compared with plain decoding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from draftwood.contracts import Target
from draftwood.tree import TokenTree

LONGEST = 120  # tokens of a text


def random_tree(rng: np.random.Generator, most: int, vocabulary: int, *, chain: bool = False) -> TokenTree:
    """Any tree; often bushy, sometimes empty, siblings may be equal."""
    n = int(rng.integers(0, most + 1))
    if chain:
        return TokenTree.build(rng.integers(0, vocabulary, n))
    near = int(rng.integers(1, most + 1))  # how far back parents lie: 1 is a chain
    parents = [int(rng.integers(max(-1, i - near), i)) for i in range(n)]
    return TokenTree.build(rng.integers(0, vocabulary, n), parents)


class OneByOne:
    """Scores after a text by plain decoding: one token per pass, one text in the cache."""

    def __init__(self, target: Any) -> None:
        self.target, self._text, self._rows = target, [], []
        self._session: Any = None

    def __call__(self, text: list[int]) -> np.ndarray[Any, Any]:
        common = next((i for i, (a, b) in enumerate(zip(self._text, text, strict=False)) if a != b), None)
        common = min(len(self._text), len(text)) if common is None else common
        if not common:
            if self._session is not None:
                self._session.close()
            ((self._session, scores),) = self.target.open([text[:1]])
            self._rows, common = [scores.raw(0)], 1
        self._session.truncate(common)
        if self._session.length < common:
            self.target.extend([(self._session, text[self._session.length : common])])
        del self._rows[common:]
        for token in text[common:]:
            (scores,) = self.target.score([(self._session, token, TokenTree.empty())])
            self._rows.append(scores.raw(0))
            self._session.keep([])
        self._text = list(text)
        return self._rows[-1]


@dataclass
class _Told:
    """A session, its text, and its last pass if that was not kept yet."""

    session: Any
    text: list[int]
    scored: tuple[int, TokenTree, Any] | None = None


@dataclass
class Story:
    """Tells ``trees`` scored trees; ``most`` texts live at once. The widest gap of any row is in ``gap``.

    ``truth(text)`` is float32[vocabulary], the scores after a text. Texts share prompts' passes and trees' passes,
    come and go, are cut, and begin as others were when they were saved.
    """

    target: Target
    truth: Callable[[list[int]], Any]
    rng: np.random.Generator
    most: int = 5
    nodes: int = 12
    begin: int = 30  # most tokens of a prompt
    longest: int = LONGEST
    told: list[_Told] = field(default_factory=list)
    gap: float = 0.0
    scored: int = 0

    def __post_init__(self) -> None:
        self.can = self.target.capabilities

    def tell(self, trees: int) -> None:
        """Go on until so many trees were scored; then close all."""
        acts = [
            self._open,
            self._close,
            self._truncate,
            self._extend,
            *[self._score] * 7,
            self._settle,
            self._fork,
        ]
        while self.scored < trees:
            if not self.told:
                self._open()
            acts[self.rng.integers(len(acts))]()
        while self.told:
            self._close()

    def _any(self) -> _Told:
        return self.told[self.rng.integers(len(self.told))]

    def _ids(self, most: int) -> list[int]:
        return self.rng.integers(0, self.can.vocab_size, int(self.rng.integers(1, most + 1))).tolist()

    def _open(self) -> None:
        if len(self.told) < self.most:
            prompts = [self._ids(self.begin) for _ in range(int(self.rng.integers(1, 3)))]
            for (session, scores), text in zip(self.target.open(prompts), prompts, strict=True):
                self._check(scores, 0, text)
                self.told.append(_Told(session, text))

    def _close(self) -> None:
        self.told.pop(self.rng.integers(len(self.told))).session.close()

    def _truncate(self) -> None:
        one = self._any()
        length = int(self.rng.integers(1, len(one.text) + 1))
        one.session.truncate(length)
        one.text, one.scored = one.text[:length], None
        self._read_on(one)

    def _read_on(self, one: _Told) -> None:
        """Let a session read what it lacks of its text: a cut may take more than was asked for."""
        if one.session.length < len(one.text):
            (scores,) = self.target.extend([(one.session, one.text[one.session.length :])])
            self._check(scores, 0, one.text)
        self._say(one)

    def _fork(self) -> None:
        """Begin a text as another one is now."""
        one = self._any()
        one.session.truncate(len(one.text))  # without what was scored and not kept
        one.scored = None
        saved = self.target.save(one.session)
        if saved is not None and len(self.told) < self.most:
            length = int(self.rng.integers(1, len(one.text) + 1))
            self.told.append(_Told(self.target.resume(saved, length), one.text[:length]))
            self._read_on(self.told[-1])

    def _extend(self) -> None:
        one, ids = self._any(), self._ids(10)
        (scores,) = self.target.extend([(one.session, ids)])
        one.text, one.scored = [*one.text, *ids], None
        self._check(scores, 0, one.text)
        self._say(one)

    def _score(self) -> None:
        """One pass over some of the texts; what was not kept of an earlier one is undone by it."""
        chosen = [one for one in self.told if self.rng.random() < 0.6] or [self._any()]
        vocabulary, most = self.can.vocab_size, min(self.nodes, self.can.max_pass - 1)
        trees = [random_tree(self.rng, most, vocabulary, chain=not self.can.trees) for _ in chosen]
        passes = [
            (one.session, int(self.rng.integers(vocabulary)), tree)
            for one, tree in zip(chosen, trees, strict=True)
        ]
        for one, (_, root, tree), scores in zip(chosen, passes, self.target.score(passes), strict=True):
            one.scored = (root, tree, scores)
        self.scored += len(chosen)
        for one in chosen:
            if self.rng.random() < 0.5:
                self._keep(one)

    def _settle(self) -> None:
        self._keep(self._any())

    def _keep(self, one: _Told) -> None:
        """Compare the rows of a pass, perhaps after later passes, and keep a random path of it."""
        if one.scored is None:
            return
        (root, tree, scores), one.scored = one.scored, None
        for node in range(-1, len(tree)):
            self._check(scores, 1 + node, [*one.text, root, *tree.tokens[tree.path(node)].tolist()])
        kept = tree.path(int(self.rng.integers(-1, len(tree))))
        one.session.keep(kept)
        one.text += [root, *tree.tokens[kept].tolist()]
        self._say(one)
        if len(one.text) > self.longest:
            self.told.remove(one)
            one.session.close()

    def _say(self, one: _Told) -> None:
        assert one.session.ids == one.text
        assert one.session.length == len(one.text)

    def _check(self, scores: Any, row: int, text: list[int]) -> None:
        ours, truth = scores.numpy(scores.raw(row)), self.truth(text)
        differ = ours != truth  # of some tokens both scores may be -infinity
        gap = np.abs(ours[differ] - truth[differ]).max(initial=0)
        assert gap >= 0, "no score is a NaN"
        self.gap = max(self.gap, float(gap))
