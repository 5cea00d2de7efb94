"""Drafter ``corpus``: copies what followed the same tokens in indexed files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import DraftTexts, Floats, Noise, Takes, TokenFile
from draftwood.drafters.base import BaseDrafter, TextSession, fixed_rates
from draftwood.drafters.corpus.corpus import Corpus
from draftwood.errors import UsageError
from draftwood.files.paths import named
from draftwood.index.arguments import for_kernel
from draftwood.tree import TokenTree, merge

PRIOR = fixed_rates((
    0.14, 0.31, 0.17, 0.09, 0.035, 0.017,
    0.30, 0.61, 0.24, 0.09, 0.035, 0.013,
    0.58, 0.81, 0.28, 0.11, 0.035, 0.013,
    0.94, 0.99, 0.39, 0.11, 0.035, 0.013,
    0.20, 0.15, 0.11, 0.05, 0.026, 0.011,
))  # fmt: skip
"""Acceptance rate per class, one row of `draftwood.drafters.corpus.kernel` per line. Measured on 22 modules of
the standard library and 135 recorded answers (SmolLM2 tokens), each with a corpus of the others, as if a model
had written them."""

MOST_NODES = 1024  # a larger tree pays on no machine, and growing takes quadratic time


@dataclass(frozen=True)
class CorpusDrafter(BaseDrafter):
    """Continues as indexed files do after the longest suffix of the text that occurs in them (REST).

    Without a corpus it drafts nothing.

    Parameters
    ----------
    file
        A file that ``draftwood corpus build`` wrote; opened at once, so that errors come early.
    max_match
        Longest suffix that is searched for.
    min_match
        Shortest suffix that it uses.
    levels
        From how many suffixes, each shorter than the last, candidates for the next token come.
    corpora
        Opened corpora, including that of ``file``; their candidates go into one tree.
    """

    name: ClassVar[str] = "corpus"
    modules: ClassVar[Sequence[str]] = ("draftwood.drafters.corpus.kernel",)
    prior: ClassVar[Floats] = PRIOR
    takes: ClassVar[Takes] = Takes(corpus=True)

    file: str | None = None
    max_match: int = 32
    min_match: int = 1
    levels: int = 3
    corpora: tuple[Corpus, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.min_match <= self.max_match <= 1024:
            raise UsageError("corpus: min_match must be at least 1, max_match at least that and at most 1024")
        self.check_range("levels", 1, 16)
        if self.file is not None:
            path = named(self.file)
            if not any(corpus.path is not None and path == named(corpus.path) for corpus in self.corpora):
                object.__setattr__(self, "corpora", (Corpus.open(path), *self.corpora))

    @property
    def files(self) -> list[TokenFile]:
        names = [f"the corpus {one.path or 'that was given'}" for one in self.corpora]
        return [TokenFile(name, one.fingerprint, one.path) for name, one in zip(names, self.corpora, strict=True)]

    def with_user_texts(self, texts: DraftTexts) -> CorpusDrafter:
        return replace(self, corpora=(*self.corpora, *texts.corpus))

    def open(self, prompt: Sequence[int], noise: Noise | None) -> CorpusSession:
        return CorpusSession(self, prompt)


class CorpusSession(TextSession):
    """One text, whose end is looked up at every draft."""

    def __init__(self, drafter: CorpusDrafter, prompt: Sequence[int]) -> None:
        from draftwood.drafters.corpus.kernel import grow  # loads kernels, so only when needed

        self._drafter, self._grow = drafter, grow
        self._bound = 0  # no match is longer than the last one plus what was read since
        super().__init__(prompt)

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().extend(ids)
        self._bound = min(self._bound + len(ids), self._drafter.max_match)

    def truncate(self, length: int) -> None:
        super().truncate(length)
        self._bound = self._drafter.max_match

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        nodes = min(nodes, MOST_NODES)
        context = self.text[max(self._length - self._bound, 0) :]
        self.match_length = 0
        if nodes < 1 or not len(context):
            return TokenTree.empty()
        accept_rates = for_kernel(accept_rates, len(PRIOR))
        parts = [part for corpus in self._drafter.corpora if corpus._is_whole for part in corpus.parts]
        trees = [self._grown(part, context, nodes, accept_rates) for part in parts]
        self._bound = self.match_length
        tree = merge([tree for tree in trees if len(tree)])[0]
        if len(tree) <= nodes:
            return tree
        order = np.argsort(-tree.path_belief, kind="stable")  # a parent never comes after its child
        return tree.take(np.sort(order[:nodes]))

    def _grown(self, part: Any, context: NDArray[np.int32], nodes: int, accept_rates: Floats) -> TokenTree:
        drafter, columns = self._drafter, np.empty((3, nodes), dtype=np.int32)
        limits = self._bound, drafter.min_match, drafter.levels
        used, match, _, _ = self._grow((part.tokens, part.suffixes), context, limits, accept_rates, columns)
        self.match_length = max(self.match_length, match)
        tokens, parents, evidence = columns[:, :used]
        return TokenTree.build(tokens, parents, belief=accept_rates[evidence], evidence=evidence)
