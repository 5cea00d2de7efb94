"""What a head has read of one text: pairs of the target's hidden state at a token, and the token that follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats, Ints
from draftwood.drafters.draft_model.reading import Reader

Longs = NDArray[np.int64]
_LONGEST = 128
"""Most tokens that one draft reads, the latest, of a prompt or of what came while the head rested: more cost more
than they bring (LOG.md, 2026-11-26)."""


class TreeRequest(NamedTuple):
    """What a head is asked for that reads a text and grows a tree after it in one call."""

    key: Longs  # of the noise (`draftwood.verify.noise.KeyedNoise.key`)
    # Six: position of the tree's first token; most passes after the one that reads the text; greatest depth;
    # tokens looked at per node; most children of a node; most nodes. The first two become nodes and passes.
    sizes: Longs
    # Five: temperature, 0 without noise; mean belief in a best child; what reading a surely reached node brings,
    # and what it costs, both in plain passes; least confidence of a token.
    worth: NDArray[np.float64]
    rates: Floats  # accept rates by evidence class
    firsts: Longs
    bounds: NDArray[np.float64]  # both of `draftwood.drafters.draft_model.experience`
    ends: Ints  # tokens after which nothing is read


class HeadReader(Reader):
    """Reads the hidden states that the target has shown.

    ``target`` is a head of an engine. States may be missing where the drafter rested: the head then sees less of
    the text.
    """

    def __init__(self, target: Any, k: int) -> None:
        super().__init__(target, k)
        self._session = target.open()
        self._waiting: list[tuple[int, list[Any]]] = []  # first position, states [n, width] per layer; ascending
        self._last: Any = None  # states of the last pair
        self._chosen: tuple[Any, ...] = ()  # positions, states and tokens that the next call reads

    def see(self, first: int, states: Mapping[int, Any]) -> None:
        """Take the target's states at the tokens from position ``first`` on."""
        self._waiting.append((first, [states[layer] for layer in self.target.layers]))
        end = first + len(self._waiting[-1][1][0])
        while self._waiting[0][0] + len(self._waiting[0][1][0]) < end - _LONGEST:  # too old to be read
            del self._waiting[0]

    def covers(self, length: int) -> bool:
        """Whether the state was shown that a draft after so many tokens needs: that of the last but one."""
        if self._last is not None and self._session.positions[-1] == length - 2:
            return True
        return any(first <= length - 2 < first + len(states[0]) for first, states in self._waiting)

    def unread(self, length: int) -> int:
        last = self._session.positions[-1] if self._session.length else -2
        return min(length - 2 - last, _LONGEST)

    def begin(self, text: Ints) -> None:
        """Choose what `grow` reads: the text's new pairs, or its last one again."""
        positions, parts = self._pairs(len(text))
        if not positions:  # drafted once more after the same text
            positions, parts = self._session.positions[-1:], [self._last]
            self._session.truncate(positions[0])
        self._last = [layer[-1:] for layer in parts[-1]]
        self._chosen = positions, parts, text[1:][positions].tolist()

    def grow(self, asked: TreeRequest) -> Any:
        """Read what was chosen, and grow a tree (`draftwood.engines.heads.text.GrownTree`)."""
        return self.target.read_and_grow(self._session, *self._chosen, asked)

    def _pairs(self, length: int) -> tuple[list[int], list[list[Any]]]:
        """Return positions and states of the new pairs in a text of this length.

        States whose next token is not known yet, or which were read before, are left out; the former wait on.
        """
        waiting, self._waiting = self._waiting, []
        known = self._session.positions[-1] + 1 if self._session.length else 0
        positions: list[int] = []
        parts: list[list[Any]] = []
        for first, states in waiting:
            end = first + len(states[0])
            low, high = max(first, known, length - _LONGEST), min(end, length - 1)
            if low < high:
                positions += range(low, high)
                parts.append([layer[low - first : high - first] for layer in states])
                known = high
            if end > length - 1:
                start = max(first, length - 1)
                self._waiting.append((start, [layer[start - first :] for layer in states]))
        return positions, parts

    def truncate(self, length: int) -> None:
        if self._session.length and self._session.positions[-1] >= length - 1:
            self._last = None
        self._session.truncate(max(0, length - 1))
        # The state of the text's last token holds, whatever will follow it.
        kept = [(first, [layer[: max(0, length - first)] for layer in states]) for first, states in self._waiting]
        self._waiting = [(first, states) for first, states in kept if len(states[0])]

    def save(self) -> Any:
        return self._session.copied() if self._session.length else None

    def resume(self, saved: Any, length: int) -> None:
        self._session = saved.copied()
        self._session.truncate(max(0, length - 1))  # a pair needs the token after its state, too

    @property
    def cache_bytes(self) -> int | None:
        return int(self._session.cache_bytes)

    def close(self) -> None:
        self._waiting, self._last, self._chosen = [], None, ()
        self._session.close()
