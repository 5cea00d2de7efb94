"""The target: a model that scores trees of draft tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import CapabilityError
from draftwood.tree import TokenTree

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a target can do, declared before a request starts.

    Attributes
    ----------
    vocab_size
        Token ids lie in ``[0, vocab_size)``.
    max_positions
        The longest text, prompt included.
    trees
        False: it scores chains only.
    rollback
        How rejected tokens leave the cache: cut off (``truncate``), by restoring a snapshot and reading the
        accepted ones again (``snapshot``), or not at all (``none``: then nothing is drafted).
    batch
        Several sessions share one pass.
    top_k
        `Scores.top_k` is offered.
    hidden
        Layers whose hidden states it can keep. Number ``i`` is what layer ``i`` reads, counted from 0; one more
        than the last layer is what tokens are scored by, after the final norm.
    max_pass
        Most tokens of one scoring pass, the root included.
    row_cost
        What the scores of one more token of text that is read cost, as a share of reading it; 0: not known.
    grows
        It has `Target.grow` and `Target.settle`: a draft model can grow a tree level by level.
    widths
        Sizes to which passes are padded, ascending; larger passes are not padded.
    """

    vocab_size: int
    max_positions: int
    trees: bool = True
    rollback: Literal["truncate", "snapshot", "none"] = "truncate"
    batch: bool = False
    top_k: bool = True
    hidden: tuple[int, ...] = ()
    max_pass: int = 1 << 16
    row_cost: float = 0.0
    grows: bool = False
    widths: tuple[int, ...] = ()

    def filled(self, tokens: int) -> int:
        """Return the padded size of a pass over so many tokens."""
        at = bisect_left(self.widths, tokens)
        return self.widths[at] if at < len(self.widths) else tokens


class ModelFacts(NamedTuple):
    """What a model is, None where that is not known.

    ``family`` is the name of its architecture (``llama``), ``weights`` how many numbers it has, ``kind`` the type
    that most of them have (``Q4_1``).
    """

    family: str | None = None
    weights: int | None = None
    kind: str | None = None


class Scores(Protocol):
    """The scores of each row of one pass, computed when asked for."""

    def argmax(self, row: int) -> int:
        """Best token by the raw scores of this row, the lowest id on a tie; -1 if one is NaN or all are -inf."""
        ...

    def raw(self, row: int) -> Any:
        """Raw scores of one row, [vocab], in the target's own array type; not to be written to."""
        ...

    def numpy(self, array: Any) -> Floats:
        """Convert a row of the target's own array type to float32[vocab]; may share memory."""
        ...

    def top_k(self, k: int) -> tuple[Ints, Floats]:
        """Ids int32[rows, k] and probabilities float32[rows, k] of the best tokens of all rows, best first.

        With a vocabulary smaller than k, ``min(k, vocab)`` columns. The first column is `argmax`. A row with a
        NaN, or without a finite best score, gets arbitrary ids of the vocabulary with probability 0.
        """
        ...

    def hidden(self, layer: int) -> Any:
        """Hidden states of a layer that the session keeps, [rows, width]; `CapabilityError` for others."""
        ...


@dataclass(frozen=True, slots=True)
class Watch:
    """The receiver of scores of a text while a target reads it.

    Attributes
    ----------
    show
        ``show(positions, scores)``, once per pass over such tokens, in order: row ``i`` belongs to the token at
        ``positions[i]`` of the text. The rows must be read before the call returns.
    wanted
        Positions of the tokens, ascending; None: of all that were not cached already.
    hidden
        Layers whose hidden states are to be seen, of all tokens.
    show_hidden
        ``show_hidden(first, states)``, once per pass over the text, in order: ``states`` has for each of these
        layers the hidden states [n, width] of the tokens from position ``first`` on. They may be kept.
    """

    show: Callable[[Positions, Scores], None]
    wanted: Positions | None = None
    hidden: tuple[int, ...] = ()
    show_hidden: Callable[[int, Mapping[int, Any]], None] | None = None

    def among(self, first: int, count: int) -> Positions:
        """Return which of ``count`` tokens from position ``first`` on are wanted, counted from ``first``."""
        if self.wanted is None:
            return np.arange(count)
        low, high = np.searchsorted(self.wanted, (first, first + count))
        return self.wanted[low:high] - first


class TargetSession(ABC):
    """One text in the target's cache."""

    hidden: tuple[int, ...] = ()
    """Layers whose states scoring passes keep, some of `Capabilities.hidden`; set anew before any pass."""

    @property
    def replay(self) -> int:
        """Committed tokens that the next pass reads again because a snapshot was restored."""
        return 0

    @property
    def cache_bytes(self) -> int | None:
        """Bytes that the cached tokens take; None: not known."""
        return None

    @property
    @abstractmethod
    def length(self) -> int:
        """Cached tokens: during decoding, every committed one but the last."""

    @abstractmethod
    def keep(self, path: Sequence[int]) -> None:
        """After a pass: commit the root and these nodes of the scored tree (a path), drop the rest."""

    @abstractmethod
    def truncate(self, length: int) -> None:
        """Cut the cached text to its first ``length`` tokens, or to fewer; the caller reads on from there."""

    def close(self) -> None:
        """Free the cache; closing twice is harmless."""


class Prefix(Protocol):
    """What a target has computed of the beginning of a text, outside of any session.

    It may have ``reach(length)``: with how many of its tokens, at most ``length``, a text can begin. It may have
    ``pages``, arrays that it may share with other prefixes: their bytes are part of ``nbytes``.
    """

    @property
    def ids(self) -> Sequence[int]: ...

    @property
    def nbytes(self) -> int: ...


class StoredForm(NamedTuple):
    """The form in which prefixes of a target outlive the process: each one then has ``pages`` and `states`.

    A page is an array of any type with so many ``tokens`` of the text; the last one of a prefix may have fewer,
    and is not stored. ``states()`` are arrays by length, a multiple of ``tokens``, that a text needs to go on
    from there. No array is ever written to. A page, and a state, is the same for all texts that begin alike.
    """

    name: str  # of all that their bits depend on beside tokens: weights, code
    tokens: int
    page_bytes: int
    state_bytes: int  # 0: there are no states, and a text goes on from the end of any page


class Target(ABC):
    """A model that scores trees. Requests may share it; it owns the cache, in which each session is a slot."""

    capabilities: Capabilities
    engine: str = ""
    """Name of the engine that computes its passes, as ``--engine`` takes it; empty: another one."""
    device: Any = None
    """The torch device of its scores; None: they are NumPy arrays."""
    tokens_read: int = 0
    """Tokens of all prompts that were read so far, for progress displays."""
    generation_config: Any = None
    """Defaults of requests, as attributes that are named as in transformers; None: it has none."""

    @property
    def setting(self) -> Any:
        """What the cost of its passes depends on (`draftwood.local.findings.Setting`); None: not known."""
        return None

    @property
    def facts(self) -> ModelFacts:
        """What the model is, for lists of models."""
        return ModelFacts()

    @property
    def fingerprint(self) -> str:
        """A digest of its token embeddings, by which a trained head names its model; empty: not known."""
        return ""

    @property
    def weight_bytes(self) -> int | None:
        """Bytes of weights that a pass reads; None: not known."""
        return None

    head_pays: bool = False
    """Whether the head that comes with draftwood for a model is worth its time here (LOG.md, 2026-11-25)."""

    def contents(self) -> Any:
        """Return a value that changes with the model's weights and code, which makes its cache invalid."""
        return None

    def pass_times(self) -> Mapping[int, float]:
        """Return the seconds of passes over a few tokens, by their number; nothing where they are not known."""
        return {}

    @abstractmethod
    def open(
        self, prompts: Sequence[Sequence[int]], *, reserve: int = 0, watch: Sequence[Watch] | None = None
    ) -> Sequence[tuple[Any, Scores]]:
        """Read the prompts; per prompt a `TargetSession` and the scores of its last token as row 0.

        ``reserve`` is how many more tokens per prompt the caller expects to commit; ``watch`` has one per prompt.
        """

    @abstractmethod
    def extend(
        self, texts: Sequence[tuple[Any, Sequence[int]]], watch: Sequence[Watch] | None = None
    ) -> Sequence[Scores]:
        """Read more text into sessions of this target, each given once, in shared passes where it can.

        For each (session, ids) the scores of its last token as row 0; ``watch`` as in `open`.
        """

    @abstractmethod
    def score(self, requests: Sequence[tuple[Any, int, TokenTree]]) -> Sequence[Scores]:
        """One pass: for each (session of this target, root token, tree) scores of the root and of every node.

        If a session is scored again without `TargetSession.keep`, the earlier pass is undone. A pass over a single
        root must depend on that text alone, whatever the cache held before.
        """

    def save(self, session: Any) -> Prefix | None:
        """Copy what a session has committed, for other texts that begin alike; None where that cannot be."""
        return None

    def resume(self, prefix: Any, length: int, *, reserve: int = 0) -> Any:
        """Open a session whose committed text is the first ``length`` tokens of what `save` returned, or fewer.

        The caller reads on from the session's ``length``. ``reserve`` as in `open`.
        """
        raise CapabilityError("this target keeps no prefixes")

    def stored_form(self) -> StoredForm | None:
        """Return the form in which its prefixes can be stored; None where they cannot.

        May take a second per GB of weights, which it reads; raises `ModelError` where these have changed.
        """
        return None

    def restored(self, ids: Sequence[int], pages: Sequence[Any], state: Any) -> Prefix:
        """Return the prefix with these tokens, whole pages of them, as `save` once did.

        ``pages`` and ``state`` (None where there are none) are arrays of bytes, uint8[...], of the sizes of its
        `stored_form`, and are not written to.
        """
        raise CapabilityError("this target stores no prefixes")

    def grow(self, requests: Sequence[tuple[Any, Sequence[int], Sequence[int]]]) -> Sequence[Scores]:
        """One pass, for draft models (`Capabilities.grows`): read nodes of a tree after the cached text.

        Per request (session, tokens, parents); a row of scores per new node. ``parents`` are numbers of earlier
        nodes, counted through all `grow` calls since the last other call, -1 the end of the cached text. Nothing
        is committed: all other calls but `settle` forget the grown nodes.
        """
        raise CapabilityError("this target grows no trees: its capabilities do not say that it does")

    def settle(self, session: Any, path: Sequence[int]) -> None:
        """Commit grown nodes of a session, a path from the end of the cached text, and forget the others."""
        raise CapabilityError("this target grows no trees: its capabilities do not say that it does")

    def early_exit(self, layers: str = "") -> Any:
        """Return some of its layers as a draft model on its own cache, for `grow` (`Needs.target_session`).

        ``layers`` is a number (the first so many) or ranges, as in ``0-9.20-29``; empty: the first half.
        `UsageError` for layers that it does not have, `CapabilityError` where it runs no part of them.
        """
        raise CapabilityError(
            "early-exit needs the engine cpu, or a model of transformers whose layers draftwood runs itself "
            "(Llama-like ones): use another drafter"
        )

    def quantized_self(self) -> Target:
        """Return a target of its weights in 4 bits; `CapabilityError` where that would save nothing."""
        raise CapabilityError("quantized-self needs the engine cpu or transformers: name a draft model instead")

    def head(self, file: str = "") -> Any:
        """Return the head in ``file``, which drafts by its hidden states and has ``weight_bytes``.

        Without a file, the one that comes with draftwood: `UsageError` where none does. `ModelError` for a file
        that is no head, `CapabilityError` for one of another model, or where heads are not known.
        """
        raise CapabilityError("head needs the engine cpu or transformers, and hidden states: leave it out")

    def mtp(self) -> Any:
        """Return the block for further tokens (MTP, ``nextn``) of the model's file, which drafts as a head does.

        `CapabilityError` where the file has none, or the engine does not run it.
        """
        raise CapabilityError(
            "mtp drafts by a block for further tokens in the model's file, and this one has none, or its engine "
            "runs none: leave it out"
        )
