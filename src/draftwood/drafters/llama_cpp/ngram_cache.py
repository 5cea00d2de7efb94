"""Drafter ``ngram-cache``: what mostly followed the last 1 to 4 tokens in this text, earlier texts, a corpus.

Source: llama.cpp's ``ngram-cache`` (``common/ngram-cache``, examples ``lookup``): its levels, thresholds, weights
and files. Its defects are corrected; ``faithful=true`` keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import DraftSession, Floats, Noise, Share, TokenFile
from draftwood.drafters.base import BaseDrafter, TextSession, draft_tree, fixed_rates
from draftwood.drafters.llama_cpp.ngram_cache_shared import Shared, Slot, new_counts, static_of
from draftwood.errors import UsageError
from draftwood.files.paths import named
from draftwood.tree import TokenTree

if TYPE_CHECKING:
    from draftwood.drafters.llama_cpp.ngram_counts import Levels, NgramCounts

PRIOR = fixed_rates((
    *(0.40, 0.52, 0.78, 0.36), *(0.45, 0.74, 0.88, 0.26), *(0.51, 0.83, 0.94, 0.26), *(0.73, 0.91, 0.96, 0.31),
    *(0.78, 0.48, 0.61, 0.80),
    *(0.32, 0.49), *(0.37, 0.65), *(0.45, 0.76), *(0.53, 0.86),
    *(0.31, 0.61, 0.79),
))  # fmt: skip
"""Acceptance rate per evidence class, measured by replaying recorded answers of chats and agents.

Rows: the context level, per size of the n-gram (seen once; 2 or 3 times, always with this token; more often,
always; not always); the context level if the static level has the token too, per size; the dynamic level, per
size (not always, always); the static level alone (share below 70 %, below 90 %, above)."""

_TAIL = 4
_STATIC_LIMIT = 64  # next tokens that a corpus is asked for; a token with a majority is among them


class NextCounts(Protocol):
    """Anything that counts which tokens followed a context, such as `Corpus`."""

    def next_counts(self, context: Sequence[int], limit: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return at most ``limit`` tokens that followed all of ``context``, and how often each did.

        The most frequent first, the lowest id first on a tie; counts are at least 1, and may be estimates. Both
        arrays are empty if the context never occurred.
        """
        ...


@dataclass(frozen=True)
class NgramCacheDrafter(BaseDrafter):
    """Proposes what mostly followed the last tokens, here or in earlier texts (llama.cpp's n-gram cache).

    Parameters
    ----------
    n_draft
        Most tokens it proposes.
    static
        File of counts of a large corpus (``draftwood cache create``), of which the n-grams of two tokens are used;
        or a corpus itself (``draftwood corpus build``).
    dynamic
        File of counts of earlier texts. It need not exist yet, unless ``faithful``.
    learn
        Whether the dynamic level learns the text of each session that closes, for later sessions. By default yes
        if ``dynamic`` names a file. Speed may then tell one user what another's texts were.
    save
        Write the dynamic level back to its file whenever a session closes; otherwise call `write_dynamic`.
    faithful
        Propose as llama.cpp does, defects included: n-grams that span two steps are not counted, counts are kept
        from one request to the next, the dynamic level never learns, and products overflow at 32 bits.
    static_counts
        A static level given as an object: a corpus.

    Raises
    ------
    UsageError
        For options out of range or contradictory, or a missing file.
    FileFormatError, VocabularyError
        If a file cannot be read, or both are of different tokenizers.
    """

    name: ClassVar[str] = "ngram-cache"
    prior: ClassVar[Floats] = PRIOR

    n_draft: int = 8
    static: str | None = None
    dynamic: str | None = None
    learn: bool | None = None
    save: bool = False
    faithful: bool = False
    static_counts: NextCounts | None = field(default=None, repr=False)
    _shared: Shared = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.check_range("n_draft", 1, 1 << 16)
        if self.static is not None and self.static_counts is not None:
            raise UsageError("ngram-cache: static names a file and a corpus was given as well: leave one out")
        if self.save and self.dynamic is None:
            raise UsageError("ngram-cache: save=true needs a file to write to: give dynamic=FILE")
        if self.faithful and (self.learn or self.save):
            raise UsageError(
                "ngram-cache: faithful=true never learns from closed sessions: leave learn and save out"
            )
        paths = [named(name) if name is not None else None for name in (self.static, self.dynamic)]
        learn = self.learns and not self.faithful
        shared = Shared(*paths, learn=learn, save=self.save, may_miss=not self.faithful)
        object.__setattr__(self, "_shared", shared)

    @property
    def learns(self) -> bool:
        """Whether later texts profit from earlier ones."""
        return self.faithful or (self.learn if self.learn is not None else self.dynamic is not None)

    @property
    def files(self) -> list[TokenFile]:
        """The files of counts, and the static level that was given as an object."""
        shared = self._shared
        level = getattr(self.static_counts, "fingerprint", None)
        return [
            TokenFile("a file of ngram-cache", shared.tokenizer, self.static or self.dynamic, shared.belong_to),
            TokenFile("the static level of ngram-cache", level),
        ]

    def detached(self, share: Share) -> NgramCacheDrafter:
        return replace(self, save=False) if self.learns else self

    def write_dynamic(self, path: Path | None = None, *, tokenizer: str | None = None) -> Path:
        """Write the dynamic level to a file, whole or not at all, and return where.

        Parameters
        ----------
        path
            By default the file that ``dynamic`` names.
        tokenizer
            Fingerprint of the tokenizer, if the file that was read held none.

        Raises
        ------
        UsageError
            If no file is named, or nothing was learnt yet.
        FileFormatError
            If it cannot be written; what stood there before is untouched.
        """
        return self._shared.write(path, tokenizer)

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:
        self._shared.build()  # loads kernels, so only when needed
        if self.faithful:
            return FaithfulSession(self, self._shared.take_slot(), prompt)
        return NgramCacheSession(self, new_counts(), prompt)


class _Session(TextSession):
    """Proposes chains from three levels of counts."""

    def __init__(self, drafter: NgramCacheDrafter, counts: NgramCounts, prompt: Sequence[int]) -> None:
        self._drafter, self._shared = drafter, drafter._shared
        self._corpus = self._shared.corpus if drafter.static_counts is None else drafter.static_counts
        self._levels: Levels = self._shared.levels(counts)
        super().__init__(prompt)

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        n = min(nodes, self._drafter.n_draft)
        # As the reference, which asks for two tokens.
        if n < 1 or self._length < 2 or not len(found := self._propose(n)):
            return TokenTree.empty()
        self.match_length = int(found[0, 2])
        evidence = found[:, 1].astype(np.int32)
        return draft_tree(found[:, 0].copy(), evidence, accept_rates[evidence])

    def fork(self) -> Self:
        twin = super().fork()
        twin._levels = replace(self._levels, context=self._levels.context.copy())
        return twin

    def _propose(self, n: int) -> NDArray[np.int32]:
        levels, faithful, tail = self._levels, self._drafter.faithful, self.text[-_TAIL:]
        if self._corpus is None:
            return levels.propose(tail, n, faithful=faithful)
        found = np.empty((n, 3), dtype=np.int32)
        for row in range(n):  # a corpus is asked for each token
            after = self._corpus.next_counts(tail[-2:].tolist(), _STATIC_LIMIT)
            levels.static = static_of(*after, tail[-2:])
            one = levels.propose(tail, 1, faithful=faithful)
            if not len(one):
                return found[:row]
            found[row] = one[0]
            tail = np.append(tail, one[0, :1])[-_TAIL:]
        return found


class NgramCacheSession(_Session):
    """One text, each n-gram of it counted once."""

    _unlearnt = 0  # the dynamic level is to learn the text from here on

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        self._levels.context.read(ids)
        super().extend(ids)

    def truncate(self, length: int) -> None:
        if length < self._length:
            super().truncate(length)
            self._levels.context.clear()
            self._levels.context.read(self.text)
            self._unlearnt = min(self._unlearnt, self._length)

    def fork(self) -> Self:
        twin = super().fork()
        twin._unlearnt = self._length
        return twin

    def close(self) -> None:
        text, start = self.text, self._unlearnt
        super().close()
        self._levels.context.clear()
        self._unlearnt = 0
        self._shared.learn(text, start)


class FaithfulSession(_Session):
    """One text in a slot of llama.cpp's server, which keeps its counts for the next request."""

    def __init__(self, drafter: NgramCacheDrafter, slot: Slot, prompt: Sequence[int]) -> None:
        self._slot = slot
        super().__init__(drafter, slot.counts, prompt)

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        slot = self._slot
        if nodes > 0 and slot.length < self._length:
            # The new tokens alone: n-grams that begin before them are lost, and a single token is not counted.
            slot.counts.read(self.text[slot.length :], fresh=True)
            slot.length = self._length
        return super().draft(nodes, lookahead_nodes, accept_rates)

    def fork(self) -> Self:
        twin = super().fork()
        twin._slot = replace(self._slot, counts=twin._levels.context)
        return twin

    def close(self) -> None:
        super().close()
        slot, self._slot = self._slot, replace(self._slot)  # a second close must not free what another has taken
        slot.taken = False
