"""Drafter ``ngram-cache``: what mostly followed the last 1 to 4 tokens in this text, earlier texts, a large one.

Source: llama.cpp's ``ngram-cache`` (``common/ngram-cache``, examples ``lookup``): its levels, thresholds, weights
and files, without its defects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from draftwood.child_safe import ChildSafeLock
from draftwood.contracts import DraftSession, Floats, Noise, Share, TokenFile
from draftwood.drafters.base import BaseDrafter, TextSession, draft_tree, fixed_rates
from draftwood.drafters.llama_cpp.ngram_counts_file import common_tokenizer, read_counts, write_counts
from draftwood.errors import UsageError
from draftwood.files.paths import named
from draftwood.tree import TokenTree

if TYPE_CHECKING:
    from draftwood.drafters.llama_cpp.ngram_counts import NgramCounts

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


@dataclass(frozen=True)
class NgramCacheDrafter(BaseDrafter):
    """Proposes what mostly followed the last tokens, here or in earlier texts (llama.cpp's n-gram cache).

    Parameters
    ----------
    n_draft
        Most tokens it proposes.
    static
        File of counts of a large text, of which n-grams of two tokens are used.
    dynamic
        File of counts of earlier texts, which need not exist yet. The text of each session that closes is added
        for later sessions: speed may then tell one user what another's texts were.
    save
        Write the dynamic level back to its file whenever a session closes.

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
    save: bool = False
    _shared: Shared = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.check_range("n_draft", 1, 1 << 16)
        if self.save and self.dynamic is None:
            raise UsageError("ngram-cache: save=true needs a file to write to: give dynamic=FILE")
        static, dynamic = (named(name) if name is not None else None for name in (self.static, self.dynamic))
        object.__setattr__(self, "_shared", Shared(static, dynamic))

    @property
    def files(self) -> list[TokenFile]:
        shared = self._shared
        path = self.static or self.dynamic
        return [TokenFile("a file of ngram-cache", shared.tokenizer, path, shared.belong_to)]

    def detached(self, share: Share) -> NgramCacheDrafter:
        return replace(self, save=False) if self.dynamic is not None else self

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:
        self._shared.build()  # loads kernels, so only when needed
        return NgramCacheSession(self, prompt)


class Shared:
    """The levels that outlive a session, and their files. One session may write while others read."""

    static: NgramCounts  # both from `build` on
    dynamic: NgramCounts

    def __init__(self, static: Path | None, dynamic: Path | None) -> None:
        self._path, self._lock = dynamic, ChildSafeLock()
        if dynamic is not None and not dynamic.exists():
            dynamic = None
        self._files = tuple(read_counts(path) if path is not None else None for path in (static, dynamic))
        self.tokenizer = common_tokenizer(file for file in self._files if file is not None)
        self._format = self._files[1].format if self._files[1] is not None else "draftwood"

    def belong_to(self, tokenizer: str) -> None:
        """Keep the fingerprint of the tokenizer in use, for the files that are written."""
        self.tokenizer = tokenizer

    def build(self) -> None:
        """Build the levels from the files at the first call."""
        from draftwood.drafters.llama_cpp.ngram_counts import NgramCounts

        with self._lock:
            if self._files:
                levels = [NgramCounts(file.records if file is not None else None) for file in self._files]
                self.static, self.dynamic = levels
                self._files = ()

    def learn(self, text: NDArray[Any], start: int, *, save: bool) -> None:
        """Learn the text of a session that closes, from ``start`` on; what comes before was learnt already."""
        if len(text) <= start:
            return
        with self._lock:
            self.dynamic.read(text[max(0, start - _TAIL) : start], fresh=True, counted=False)
            self.dynamic.read(text[start:])
            if save and self._path is not None and len(self.dynamic):
                records = self.dynamic.records()
                write_counts(self._path, records, format=self._format, tokenizer=self.tokenizer)


class NgramCacheSession(TextSession):
    """One text, each n-gram of it counted once; proposes chains from three levels of counts."""

    _unlearnt = 0  # the dynamic level is to learn the text from here on

    def __init__(self, drafter: NgramCacheDrafter, prompt: Sequence[int]) -> None:
        from draftwood.drafters.llama_cpp.ngram_counts import NgramCounts, propose

        self._drafter, self._shared, self._counts, self._propose = drafter, drafter._shared, NgramCounts(), propose
        super().__init__(prompt)

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        n = min(nodes, self._drafter.n_draft)
        if n < 1 or self._length < 2:  # as llama.cpp, which asks for two tokens
            return TokenTree.empty()
        levels = self._counts, self._shared.dynamic, self._shared.static
        found = self._propose(levels, self.text[-_TAIL:], n)
        tokens, evidence, sizes = found.T
        if len(sizes):
            self.match_length = int(sizes[0])
        return draft_tree(tokens, evidence, accept_rates)

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        self._counts.read(ids)
        super().extend(ids)

    def truncate(self, length: int) -> None:
        if length < self._length:
            super().truncate(length)
            self._counts.clear()
            self._counts.read(self.text)
            self._unlearnt = min(self._unlearnt, self._length)

    def close(self) -> None:
        start = self._unlearnt
        self._unlearnt = self._length  # once, however often it is closed
        if self._drafter.dynamic is not None:
            self._shared.learn(self.text, start, save=self._drafter.save)
