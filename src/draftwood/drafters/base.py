"""What drafters are made of: sessions that hold the committed text, trees from arrays, rates from a file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from draftwood.contracts import Drafter, DraftSession, Feedback, Floats
from draftwood.errors import UsageError, number
from draftwood.tree import SHARED, TokenTree, constant, sealed


class BaseDrafter(Drafter):
    """A drafter whose options are checked."""

    def check_range(self, option: str, low: float, high: float) -> None:
        """Raise `UsageError` if the value of this option is neither None nor between ``low`` and ``high``."""
        value = getattr(self, option)
        if value is not None:
            said = f"{self.name}: {option} must lie between {low} and {high}, not {{}}"
            number(value, low, high, said, whole=high > 1)


_FEW = 64  # tokens


def fixed_rates(rates: ArrayLike) -> Floats:
    """Return acceptance rates as a read-only float32 array of one dimension."""
    array = np.array(rates, dtype=np.float32).ravel()
    array.flags.writeable = False
    return array


def read_rates(module_file: str) -> Floats:
    """Return the acceptance rates in ``prior.txt`` in a module's folder, written there in thousandths."""
    lines = Path(module_file).with_name("prior.txt").read_text(encoding="utf-8").splitlines()
    numbers = [number for line in lines if not line.startswith("#") for number in line.split()]
    return fixed_rates(np.array(numbers, dtype=np.float64) / 1000)


def draft_tree(
    tokens: Sequence[int] | NDArray[Any],
    evidence: ArrayLike,
    accept_rates: Floats,
    parents: ArrayLike | None = None,
) -> TokenTree:
    """Return a tree of tokens int32[n], a chain without ``parents``, believed in as much as the accept rates of
    their ``evidence`` classes say. Siblings must differ. The arguments are copied.
    """
    n = len(tokens)
    if not n:
        return TokenTree.empty()
    columns = np.empty((3, n), dtype=np.int32)
    columns[0], columns[2] = tokens, evidence
    columns[1] = shared_columns(n)[0] if parents is None else parents
    return grown_tree(columns, accept_rates[columns[2]])


def grown_tree(
    columns: NDArray[np.int32], belief: Floats, reached: Floats | None = None, draft_prob: Floats | None = None
) -> TokenTree:
    """Return the tree that one of our kernels has grown; the arrays become the tree's own, and read-only.

    ``columns`` int32[3 or more, n] holds tokens, parents and evidence classes; ``belief`` float32[n] the accept
    rates; ``reached`` float32[n], where it is known, how likely each node is reached and right; ``draft_prob``
    float32[n], what a drafting model gave each token.
    """
    _, source, nan, drafts = shared_columns(len(belief))
    for array in (columns, belief):
        if array.flags.writeable:
            (array if array.base is None else array.base).flags.writeable = False  # so no view can be unlocked
            array.flags.writeable = False
    known = {} if reached is None else {"path_belief": reached}
    return TokenTree.grown(
        tokens=columns[0], parents=columns[1], belief=belief, source=source, evidence=columns[2],
        draft_prob=nan if draft_prob is None else draft_prob, lookahead=drafts, **known,
    )  # fmt: skip


@lru_cache(maxsize=256)
def shared_columns(n: int) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats, NDArray[np.bool_]]:
    """Columns for n nodes: parents of a chain, source 0, unknown draft probability, no lookahead nodes."""
    chain, nan, drafts = _SHARED if n <= SHARED else _columns(n)
    return chain[:n], constant(0, n), nan[:n], drafts[:n]


def _columns(n: int) -> tuple[NDArray[np.int32], Floats, NDArray[np.bool_]]:
    chain, nan = np.arange(-1, n - 1, dtype=np.int32), np.full(n, np.nan, dtype=np.float32)
    return sealed(chain), sealed(nan), sealed(np.zeros(n, dtype=np.bool_))


_SHARED = _columns(SHARED)


def checked_ids(ids: ArrayLike, what: str) -> NDArray[np.int64]:
    """Return token ids as an array; raise `UsageError` about ``what`` unless it is one sequence of token ids."""
    array = np.asarray(ids)
    known = array.ndim == 1 and (not array.size or array.dtype.kind in "iu")
    if not known or (array.size and (array.min() < 0 or array.max() >= 1 << 31)):
        raise UsageError(f"{what} must be a sequence of token ids: tokenise the text first")
    return array.astype(np.int64)


class TextSession(DraftSession):
    """A session that holds the committed text and learns from tokens only. Subclasses write `draft`, and override
    `extend` and `truncate` where they index the text."""

    def __init__(self, ids: Sequence[int] | NDArray[Any] = ()) -> None:
        self._buffer = np.empty(max(1024, 2 * len(ids)), dtype=np.int32)
        self._length = 0
        self.extend(ids)

    @property
    def text(self) -> NDArray[np.int32]:
        """The committed text, int32[length]; a view."""
        return self._buffer[: self._length]

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        end = self._length + len(ids)
        if end > len(self._buffer):
            bigger = np.empty(2 * end, dtype=np.int32)
            bigger[: self._length] = self.text
            self._buffer = bigger
        new = self._buffer[self._length : end]
        new[:] = ids
        few = len(ids) < _FEW  # then Python's own function is faster
        if len(new) and (min(ids) if few else new.min()) < 0:  # for kernels, these are the ends of texts
            raise UsageError("token ids must not be negative")
        self._length = end

    def truncate(self, length: int) -> None:
        self._length = max(0, min(length, self._length))


class AnswerSession(TextSession):
    """Follows the committed text and remembers where the latest answer begins: ``start``, or the text's length."""

    start = 0

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().extend(ids)
        self.start = self._length

    def begin_answer(self, ids: Sequence[int] | NDArray[Any]) -> None:
        self.start = self._length
        super().extend(ids)

    def learn(self, feedback: Feedback) -> None:
        super().extend(feedback.emitted)

    def truncate(self, length: int) -> None:
        super().truncate(length)
        self.start = min(self.start, self._length)
