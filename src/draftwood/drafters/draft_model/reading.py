"""Reads tokens by a draft model: on a cache of its own, which follows the text, or on the target's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from draftwood.contracts import Floats, Ints, Prefix
from draftwood.drafters.draft_model.growth import ROOT, Growth


class Row(NamedTuple):
    """The best tokens after one token: ids int32[k] and probabilities float32[k]."""

    ids: Ints
    probabilities: Floats


class Reader(ABC):
    """One text in the cache that a draft model reads. ``k`` best tokens of each row are looked at.

    Nodes of a tree come to lie after the committed text in the order in which they are read. First come those
    last tokens of the text that the model has not read yet, as a chain.
    """

    is_chain = False
    """Whether only a child of the node that was read last can be read."""

    def __init__(self, target: Any, k: int) -> None:
        self.target, self.k = target, k
        self._session: Any = None  # the text in the target's cache
        self._unread: list[int] = []
        self._places: dict[int, int] = {}  # node of the tree -> its place among those read
        self._count = 0

    @property
    def is_ready(self) -> bool:
        """Whether there is a cache to read on, or one can be made."""
        return True

    @abstractmethod
    def unread(self, length: int) -> int:
        """Return about how many tokens of a text of this length are still to be read."""

    @abstractmethod
    def begin(self, text: Ints) -> Row | None:
        """Bring the cache in step with the committed text; returns the row of its last token where it is known."""

    @property
    def cache_bytes(self) -> int | None:
        """Bytes that the cached tokens take in a cache of its own; None: the target does not tell."""
        return 0

    def keep(self, tokens: Sequence[int], parents: Sequence[int], rows: Sequence[Row]) -> None:  # noqa: B027
        """Note what was read, for the next `begin`."""

    def truncate(self, length: int) -> None:  # noqa: B027  (nothing to do on a cache that others cut)
        """Cut the text to its first ``length`` tokens."""

    def save(self) -> Any:
        """Copy what was read, for `resume`; None where there is nothing, or nothing of its own."""
        return None

    def resume(self, saved: Any, length: int) -> None:  # noqa: B027  (nothing to take over where nothing is saved)
        """Begin after the first ``length`` tokens, at most, of what `save` returned."""

    def close(self) -> None:  # noqa: B027  (nothing to free on a cache of others)
        """Free the cache."""

    def _start(self, unread: Sequence[int]) -> None:
        self._unread, self._places, self._count = list(unread), {ROOT: len(unread) - 1}, 0

    def request(self, growth: Growth, nodes: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return tokens and parents of what a pass reads, for these nodes of a tree."""
        tokens, parents = [], []
        if not self._count:
            tokens, parents = list(self._unread), list(range(-1, len(self._unread) - 1))
        for node in nodes:
            if node != ROOT:
                self._places[node] = self._count + len(tokens)
                tokens.append(growth.tokens[node])
                parents.append(self._places[growth.parents[node]])
        self._count += len(tokens)
        return tokens, parents

    def read(self, growth: Growth, nodes: Sequence[int]) -> list[Row]:
        """Read nodes in a pass of their own; returns the row of each."""
        return read_together([self], [growth], [nodes])[0]


def read_together(
    readers: Sequence[Reader], growths: Sequence[Growth], picks: Sequence[Sequence[int]]
) -> list[list[Row]]:
    """Read nodes of several texts in one pass of the target that they share; returns their rows, per text."""
    busy = [i for i, nodes in enumerate(picks) if nodes]
    asked = [readers[i].request(growths[i], picks[i]) for i in busy]
    target = readers[busy[0]].target
    passes = [(readers[i]._session, *asked[at]) for at, i in enumerate(busy)]
    found: list[list[Row]] = [[] for _ in picks]
    for i, (tokens, parents), scores in zip(busy, asked, target.grow(passes), strict=True):
        ids, probabilities = scores.top_k(readers[i].k)
        rows = [Row(*pair) for pair in zip(ids, probabilities, strict=True)]
        readers[i].keep(tokens, parents, rows)
        found[i] = rows[len(rows) - len(picks[i]) :]
    return found


class SharedReader(Reader):
    """Reads on the target's own session, whose committed tokens need not be read again.

    The target's next pass forgets what was read; the last committed token is never cached yet.
    """

    def follow(self, session: Any) -> None:
        """Take the target's session of the text."""
        self._session = session

    @property
    def is_ready(self) -> bool:
        return self._session is not None

    def unread(self, length: int) -> int:
        return length - (0 if self._session is None else int(self._session.length))

    def begin(self, text: Ints) -> Row | None:
        cached = self._session.length
        self._session.truncate(cached)  # forgets what another drafter has grown there
        if cached != len(text) - 1:
            raise RuntimeError(
                f"the target's cache holds {cached} tokens of {len(text)}, all but the last are due"
            )
        self._start(text[-1:].tolist())
        return None


class OwnReader(Reader):
    """Reads on a cache of its own. Draft tokens that the text took stay in it, so none is read twice."""

    few = 8
    """Up to this many unread tokens join the tree's first pass; more get a pass of their own."""

    def __init__(self, target: Any, k: int) -> None:
        super().__init__(target, k)
        self._ids: list[int] = []  # cached
        self._last: Row | None = None  # of the last cached token
        self._grown: list[tuple[int, int, Row]] = []  # read after them: parent, token, row

    def unread(self, length: int) -> int:
        return length - len(self._ids)

    def begin(self, text: Ints) -> Row | None:
        self._settle(text)
        if len(self._ids) == len(text) and self._last is None:  # its row is not known after a cut
            self.truncate(len(text) - 1)
        left = text[len(self._ids) :].tolist()
        if self._session is None or len(left) > self.few:
            self._read(left)
            left = []
        self._start(left)
        return self._last if not left else None

    def _settle(self, text: Ints) -> None:
        """Commit what was read of tokens that the text has taken, and forget the rest."""
        if not self._grown:
            if self._session is not None:
                self._session.truncate(self._session.length)  # forgets what a pass that failed has left
            return
        children = {(parent, token): i for i, (parent, token, _) in enumerate(self._grown)}
        path: list[int] = []
        for token in text[len(self._ids) :].tolist():
            node = children.get((path[-1] if path else -1, token))
            if node is None:
                break
            path.append(node)
        self.target.settle(self._session, path)
        for node in path:
            _, token, self._last = self._grown[node]
            self._ids.append(token)
        self._grown = []

    def _read(self, ids: Sequence[int]) -> None:
        if self._session is None:
            ((self._session, scores),) = self.target.open([ids])
        else:
            (scores,) = self.target.extend([(self._session, ids)])
        self._ids += ids
        (best,), (probabilities,) = scores.top_k(self.k)
        self._last = Row(best, probabilities)

    def keep(self, tokens: Sequence[int], parents: Sequence[int], rows: Sequence[Row]) -> None:
        self._grown += zip(parents, tokens, rows, strict=True)

    @property
    def cache_bytes(self) -> int | None:
        return 0 if self._session is None else self._session.cache_bytes

    def truncate(self, length: int) -> None:
        if self._session is None or length >= len(self._ids):
            return
        if not length:
            self.close()
            return
        self._grown, self._last = [], None
        self._session.truncate(length)
        self._ids = self._ids[: self._session.length]

    def save(self) -> Prefix | None:
        return None if self._session is None else self.target.save(self._session)

    def resume(self, saved: Prefix, length: int) -> None:
        common = min(length, len(saved.ids))
        self._session = self.target.resume(saved, common)
        self._ids = [] if self._session is None else list(saved.ids[: self._session.length])

    def close(self) -> None:
        session, self._session = self._session, None
        self._ids, self._grown, self._last = [], [], None
        if session is not None:
            session.close()


class ChainReader(OwnReader):
    """The same for targets that read chains only: each token is committed to the cache, and cut off again."""

    is_chain = True
    few = 0
    _sure = 0  # length of the cached prefix that was already compared with the text

    def _settle(self, text: Ints) -> None:
        """Cut off what the text has not taken."""
        sure = min(self._sure, len(self._ids))
        pairs = enumerate(zip(self._ids[sure:], text[sure:].tolist(), strict=False), sure)
        differs = next((at for at, (mine, token) in pairs if mine != token), len(text))
        self.truncate(differs)
        self._sure = len(text)

    def read(self, growth: Growth, nodes: Sequence[int]) -> list[Row]:
        (node,) = nodes
        self._read([growth.tokens[node]])
        assert self._last is not None
        return [self._last]
