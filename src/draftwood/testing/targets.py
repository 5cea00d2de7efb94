"""A target without weights: it looks up next-token scores in a fixed random table, by a hash of the context.

As with attention, the scores of a row depend on the *set* of (token, position) pairs that it sees, so a wrong
mask, position or compaction of the cache changes the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Capabilities, Floats, Ints, Sampling, Target, TargetSession, Watch
from draftwood.errors import CapabilityError, PromptError
from draftwood.tree import TokenTree
from draftwood.verify.sampling import distribution

_BUCKETS = 1 << 12


@dataclass(frozen=True)
class NumpyScores:
    """Scores over an array float32[rows, vocab]; the hidden states of its layer 0 are the rows' own ``tokens``."""

    rows: Floats
    tokens: NDArray[Any] | None = None

    def argmax(self, row: int) -> int:
        scores = self.rows[row]
        best = int(scores.argmax())
        return best if scores[best] > -np.inf else -1

    def raw(self, row: int) -> Floats:
        return self.rows[row]

    def numpy(self, array: Any) -> Floats:
        return np.asarray(array, dtype=np.float32)

    def top_k(self, k: int) -> tuple[Ints, Floats]:
        ids = np.argsort(-self.rows, axis=1, kind="stable")[:, :k].astype(np.int32)
        with np.errstate(invalid="ignore"):  # rows with a NaN, or without a finite best
            weights = np.exp(self.rows - self.rows.max(axis=1, keepdims=True))
        probabilities = np.nan_to_num(weights / weights.sum(axis=1, keepdims=True))
        return ids, np.take_along_axis(probabilities, ids, axis=1)

    def hidden(self, layer: int) -> Any:
        if layer or self.tokens is None:
            raise CapabilityError(f"the toy has no layer {layer}, or was not asked to keep its states")
        return np.asarray(self.tokens, dtype=np.float32)[:, None]


@dataclass
class ToyTarget(Target):
    """A table of random distributions in place of a model.

    With ``rollback="snapshot"`` rejected tokens are taken back by restoring and reading again (chains only,
    counted in ``replayed``); with ``"none"`` nothing is taken back, and a pass holds one token.
    """

    vocab_size: int = 8
    order: int = 3  # tokens that a row sees, itself included; small orders make texts that repeat themselves
    sharpness: float = 2.0  # standard deviation of the scores: large is nearly deterministic
    seed: int = 0  # of the table
    trees: bool = True  # False: `score` refuses trees that are no chain
    rollback: Literal["truncate", "snapshot", "none"] = "truncate"
    max_positions: int = 4096  # declared and enforced, as is max_pass
    max_pass: int = 4096
    passes: int = field(default=0, init=False)
    tokens_read: int = field(default=0, init=False)  # by `open`, `extend` and `grow`, to count what is read twice
    open_sessions: int = field(default=0, init=False)
    replayed: int = field(default=0, init=False)  # tokens read again since a draft was not accepted whole

    def __post_init__(self) -> None:
        if self.rollback != "truncate":
            self.trees = False
        if self.rollback == "none":
            self.max_pass = 1
        rng = np.random.default_rng(self.seed)
        self._table = rng.normal(0, self.sharpness, (_BUCKETS, self.vocab_size)).astype(np.float32)
        self._hash = rng.integers(1, 1 << 62, (self.vocab_size, 64), dtype=np.int64)

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]  # it follows the fields
        return Capabilities(
            self.vocab_size,
            self.max_positions,
            trees=self.trees,
            rollback=self.rollback,
            batch=True,
            max_pass=self.max_pass,
            grows=self.trees,
            hidden=(0,),
        )

    def scores_after(self, text: Sequence[int]) -> Floats:
        """Scores of the token after ``text``, float32[vocab], computed without a cache."""
        ids, places = np.asarray(text, dtype=np.int64), np.arange(len(text))
        return self.look(ids, places, np.ones((1, len(ids)), dtype=np.bool_), places[-1:])[0]

    def probabilities(self, text: Sequence[int], sampling: Sampling) -> NDArray[np.float64]:
        """Exact distribution of the token after ``text``, float64[vocab]."""
        return distribution(self.scores_after(text), sampling)

    def look(
        self, ids: NDArray[Any], positions: NDArray[Any], sees: NDArray[np.bool_], at: NDArray[Any]
    ) -> Floats:
        """Scores of rows at positions ``at``, each of which sees a subset of (ids, positions)."""
        # Distances, not positions, so that equal contexts get equal scores wherever they are.
        distance = at[:, None] - positions[None, :]
        near = sees & (distance < self.order)
        mixed = np.where(near, self._hash[ids[None, :], distance % 64], 0)
        bucket = (mixed.sum(axis=1) >> 7) % _BUCKETS
        return self._table[bucket]

    def open(
        self, prompts: Sequence[Sequence[int]], *, reserve: int = 0, watch: Sequence[Watch] | None = None
    ) -> list[tuple[ToySession, NumpyScores]]:
        sessions = [self._session() for _ in prompts]
        texts = list(zip(sessions, prompts, strict=True))
        return list(zip(sessions, self.extend(texts, watch), strict=True))

    def _session(self) -> ToySession:
        return ToySession(self)

    def extend(
        self, texts: Sequence[tuple[ToySession, Sequence[int]]], watch: Sequence[Watch] | None = None
    ) -> list[NumpyScores]:
        return [self._read(*text, None if watch is None else watch[i]) for i, text in enumerate(texts)]

    def _read(self, session: ToySession, ids: Sequence[int], watch: Watch | None) -> NumpyScores:
        if not len(ids):
            raise PromptError("the prompt is empty: give some text")
        if session.length + len(ids) > self.max_positions:
            raise PromptError("the text is longer than the toy's positions: shorten the prompt")
        session.append(ids)
        self.tokens_read += len(ids)
        new = session.positions[-len(ids) :]
        wanted = new[:0] if watch is None else watch.among(int(new[0]), len(ids))
        at = new[[*wanted, -1]]
        scores = self.look(session.tokens, session.positions, session.positions[None, :] <= at[:, None], at)
        if watch is not None and len(wanted):
            watch.show(at[:-1].astype(np.int64), NumpyScores(scores[:-1]))
        if watch is not None and watch.show_hidden is not None:
            watch.show_hidden(int(new[0]), {0: np.asarray(ids, dtype=np.float32)[:, None]})
        return NumpyScores(scores[-1:])

    def score(self, requests: Sequence[tuple[ToySession, int, TokenTree]]) -> list[NumpyScores]:
        self.passes += 1
        return [self._score(*request) for request in requests]

    def _score(self, session: ToySession, root: int, tree: TokenTree) -> NumpyScores:
        if len(tree) + 1 > self.max_pass or not (self.trees or tree.is_chain):
            raise CapabilityError("the pass is wider than declared, or no chain")
        if session.length + int(tree.depth.max(initial=0)) + 1 > self.max_positions:
            raise CapabilityError("the tree reaches beyond the model's positions")
        at, sees = session.place(root, tree)
        tokens = np.array([root, *tree.tokens.tolist()]) if session.hidden else None
        return NumpyScores(self.look(session.tokens, session.positions, sees, at), tokens)

    def grow(self, requests: Sequence[tuple[ToySession, Sequence[int], Sequence[int]]]) -> list[NumpyScores]:
        self.passes += 1
        return [self._grow(*request) for request in requests]

    def _grow(self, session: ToySession, tokens: Sequence[int], parents: Sequence[int]) -> NumpyScores:
        if not self.trees:
            raise CapabilityError("this toy does not grow trees")
        self.tokens_read += len(tokens)
        at, sees = session.grow(tokens, parents)
        if at.max(initial=0) >= self.max_positions:
            raise CapabilityError("the tree reaches beyond the model's positions")
        return NumpyScores(self.look(session.tokens, session.positions, sees, at))

    @staticmethod
    def settle(session: ToySession, path: Sequence[int]) -> None:
        session.settle(path)


class ToySession(TargetSession):
    """A cache of (token, position) rows; a tree's lie after the committed ones until `keep` compacts them.

    Where its target rolls back to snapshots, the accepted tokens of a draft that was not accepted whole are read
    again. ``tokens`` and ``positions`` are int64[rows].
    """

    replay = 0
    hidden: tuple[int, ...] = ()

    def __init__(self, target: ToyTarget) -> None:
        self._target = target
        self.tokens = np.empty(0, dtype=np.int64)
        self.positions = np.empty(0, dtype=np.int64)
        self._scored: tuple[int, TokenTree] | None = None
        self._lines: list[list[int]] = []  # of each grown node, its ancestors and itself
        self._length = 0
        self._closed = False
        target.open_sessions += 1

    @property
    def length(self) -> int:
        return self._length

    @property
    def cache_bytes(self) -> int:
        return 16 * self._length  # an id and a position

    @property
    def contents(self) -> tuple[list[int], list[int]]:
        """Committed tokens and their positions."""
        return self.tokens[: self._length].tolist(), self.positions[: self._length].tolist()

    def append(self, ids: Sequence[int]) -> None:
        """Commit more text; rows that a pass has left behind are dropped."""
        self.tokens = np.concatenate((self.tokens[: self._length], np.asarray(ids, dtype=np.int64)))
        self._length = len(self.tokens)
        self.positions = np.arange(self._length, dtype=np.int64)
        self._scored, self._lines = None, []

    def place(self, root: int, tree: TokenTree) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Put root and nodes after the committed rows; returns their positions, and which rows each sees."""
        self._lines = []
        found = self.grow([root, *tree.tokens.tolist()], [-1, *(1 + tree.parents).tolist()])
        self._scored = root, tree
        return found

    def grow(self, tokens: Sequence[int], parents: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Put nodes after the committed rows and those grown before; returns what `place` returns."""
        n, before = self._length, len(self._lines)
        for parent in parents:
            self._lines.append([*(self._lines[parent] if parent >= 0 else ()), len(self._lines)])
        at = n - 1 + np.array([len(line) for line in self._lines[before:]], dtype=np.int64)
        self.tokens = np.concatenate((self.tokens[: n + before], tokens)).astype(np.int64)
        self.positions = np.concatenate((self.positions[: n + before], at))
        sees = np.zeros((len(tokens), len(self.tokens)), dtype=np.bool_)
        sees[:, :n] = True
        for row, line in enumerate(self._lines[before:]):
            sees[row, [n + node for node in line]] = True
        self._scored = None
        return at, sees

    def settle(self, path: Sequence[int]) -> None:
        """Commit these grown nodes, a path; the others are forgotten."""
        n, self._lines = self._length, []
        rows = [*range(n), *(n + node for node in path)]
        self.tokens, self.positions = self.tokens[rows], self.positions[rows]
        self._length = len(rows)

    def keep(self, path: Sequence[int]) -> None:
        assert self._scored is not None, "keep() follows score()"
        root, tree = self._scored
        self._scored = None
        if self._target.rollback == "snapshot" and len(path) < len(tree):
            self._target.replayed += 1 + len(path)
            self.append([root, *tree.tokens[list(path)].tolist()])
        else:
            self.settle([0, *(1 + node for node in path)])

    def truncate(self, length: int) -> None:
        self._length = min(length, self._length)
        self.tokens, self.positions = self.tokens[: self._length], self.positions[: self._length]
        self._scored, self._lines = None, []

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._target.open_sessions -= 1
