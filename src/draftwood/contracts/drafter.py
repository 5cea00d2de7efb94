"""The drafter: proposes tokens that may come next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from draftwood.contracts.rule import Noise
from draftwood.contracts.target import Floats, Ints
from draftwood.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Needs:
    """What a drafter asks of the target beyond the emitted tokens."""

    top_k: int = 0  # this many best tokens of every scored row, with their probabilities
    hidden: tuple[int, ...] = ()
    """Hidden states of these layers, except while it rests: `DraftSession.observe_hidden`, `Feedback.hidden`."""
    prompt: bool = False
    """The ``top_k`` of the prompt's rows too, and of later turns': `DraftSession.observe`."""
    prompt_cost: float = inf
    """How much longer reading may take for that, as a share of its time. If finite, only the last occurrence of
    each token is scored, of as many of the latest tokens as `Capabilities.row_cost` allows."""
    lookahead_nodes: int = 0  # at least this many lookahead nodes in one pass
    choice: bool = False
    """The target's choice at rows off the accepted path too, as far as the ``top_k`` tells: `Feedback.choice`."""
    base_tree: bool = False
    """The other drafters' proposals of the same step, to append branches to: `DraftSession.branch`."""
    prices: bool = False
    """Present cost of a token, for drafters that run passes: `DraftSession.prices`, `DraftSession.ends`."""
    target_session: bool = False
    """The target's session of the text, whose cache the drafter's own passes share: `DraftSession.follow`."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What drafting is worth at present, for drafters that run passes of their own."""

    pass_s: float = 0.0  # seconds of the target's pass over one token; 0: not known, and the others mean nothing
    token: float = 1.0  # time per emitted token at present, drafting included, as a multiple of ``pass_s``
    node: float = 0.0  # what one more draft node adds to the target's pass, as a multiple of ``pass_s``


@dataclass(frozen=True, slots=True)
class Takes:
    """Which of the user's texts a drafter drafts from."""

    prediction: bool = False  # texts that the user expects
    memory: bool = False  # earlier answers (`Memory`)
    corpus: bool = False  # indexed files (`Corpus`)
    context: bool = False  # further texts
    memory_tokens: int | None = None  # size of a memory that is opened for it; None: the memory's own default


@dataclass(frozen=True, slots=True)
class DraftTexts:
    """The user's texts; a field is empty if none was given or the drafter does not take it."""

    prediction: tuple[tuple[int, ...], ...] = ()  # token ids of each text
    memory: Any = None  # a `Memory`
    corpus: tuple[Any, ...] = ()  # opened corpora
    context: tuple[tuple[int, ...], ...] = ()  # token ids of each text


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Token ids that a drafter has opened; their tokenizer is compared with the one in use."""

    name: str  # in error messages: ``the corpus /home/me/code.dwc``
    tokenizer: str | None  # fingerprint of the tokenizer whose ids these are; None: not known
    path: Any = None  # None: the ids were given as an object
    accept: Callable[[str], None] | None = None  # called with the fingerprint in use once both agree


class Feedback(NamedTuple):
    """The result of a pass, for one drafter of the set. All arrays are read-only.

    Attributes
    ----------
    tree, proposal
        The scored tree of all drafters, and what this one had proposed.
    node_map : int32[len(proposal)]
        Index in ``tree`` of each proposed node, -1 where it was pruned.
    path
        Accepted nodes of ``tree``.
    emitted
        Tokens that were committed: the path's, then the target's own (see `Verdict`).
    choice : int32[1 + len(tree)]
        What the target chooses at each row. Exact on the path; elsewhere estimated from the raw top-k and the
        noise if a drafter of the set asked for it (`Needs.choice`), otherwise -1 (unknown). -1 in broken rows.
    top_k
        Ids int32[rows, k] and probabilities float32[rows, k] of all rows, as `Scores.top_k`; None: not declared.
    hidden
        Layer -> hidden states [rows, width] of all rows, of the layers it declared; empty while it rests.
    source
        Index of this drafter in the set.

    Acceptance rates can be learnt only from nodes whose parent was accepted, pruned ones included.
    """

    tree: TokenTree
    proposal: TokenTree
    node_map: Ints
    path: tuple[int, ...]
    emitted: tuple[int, ...]
    choice: Ints
    top_k: tuple[Ints, Floats] | None = None
    hidden: Mapping[int, Any] = MappingProxyType({})
    source: int = 0


class SavedReading(Protocol):
    """What a drafter's session has learnt of a text beyond its tokens."""

    @property
    def nbytes(self) -> int: ...


class DraftSession(ABC):
    """A drafter's side of one request. Sees committed tokens only, and feedback on what it proposed.

    `draft`, `extend` and `truncate` must be written, and the methods for what `Drafter.needs` asks for; the rest
    has defaults.
    """

    match_length: int = 0
    """How many committed tokens the last draft's match covered; 0 for drafters that do not match."""
    stages: tuple[Any, ...] = ()
    """What each stage of a cascade did in the last draft (`draftwood.step.StageStep`)."""
    prices: Prices = Prices()
    """Set before each draft, as `ends` is, for drafters with `Needs.prices`."""
    ends: frozenset[int] = frozenset()
    """Tokens that end the text: nothing need be proposed after them."""

    @abstractmethod
    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        """Propose at most ``nodes`` draft nodes and ``lookahead_nodes`` lookahead nodes after the committed text.

        ``accept_rates`` float32[n_evidence] is the current estimate of the acceptance rate of each evidence class;
        the choice of what to propose must rest on nothing else.
        """

    def branch(self, base_tree: TokenTree, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        """Like `draft`, for drafters with `Needs.base_tree`: ``base_tree`` holds the draft nodes of the others.

        Branches may start at nodes of ``base_tree``, which are then part of the returned tree too.
        """
        raise NotImplementedError("a drafter with Needs.base_tree must write branch()")

    def learn(self, feedback: Feedback) -> None:
        """Take in the result of a pass and the tokens that it emitted.

        Several passes in which this drafter was not asked may come as one, with all their tokens and no tree.
        """
        self.extend(feedback.emitted)

    @abstractmethod
    def extend(self, ids: Sequence[int]) -> None:
        """Take in text that the target read and did not write: the next turn of a conversation."""

    def begin_answer(self, ids: Sequence[int]) -> None:
        """Take in the first token of an answer; what `learn` brings later continues this answer."""
        self.extend(ids)

    def observe(self, first: int, ids: Ints, probabilities: Floats) -> None:
        """Take in the best tokens after each of the committed tokens from position ``first`` on (`Needs.prompt`).

        ``ids`` int32[n, k] and ``probabilities`` float32[n, k]; a row that was not scored has probabilities 0.
        Called after `Drafter.open` or `extend`, several times for a long text; not for cached tokens.
        """
        raise NotImplementedError("a drafter with Needs.prompt must write observe()")

    def observe_hidden(self, first: int, states: Mapping[int, Any]) -> None:
        """Take in the hidden states of the committed tokens from position ``first`` on (`Needs.hidden`).

        ``states`` has for each declared layer an array [n, width] of the target's own type. Called as `observe`.
        """
        raise NotImplementedError("a drafter with Needs.hidden must write observe_hidden()")

    def save(self) -> SavedReading | None:
        """Copy what was learnt of the text beyond its tokens, for texts that begin alike; None: nothing."""
        return None

    def resume(self, saved: Any, length: int) -> None:
        """Take over what `save` of an equal drafter gave for a text with the same first ``length`` tokens.

        Called right after `Drafter.open`, before `observe`. ``saved`` is shared, and not to be changed.
        """
        raise NotImplementedError("a session that writes save() must write resume()")

    def follow(self, session: Any) -> None:
        """Take the target's session of this text, once, before the first draft (`Needs.target_session`).

        The drafter may run passes over it (`Target.grow`), which the target's next pass undoes.
        """
        raise NotImplementedError("a drafter with Needs.target_session must write follow()")

    @property
    def cache_bytes(self) -> int | None:
        """Bytes that the cached tokens take in caches of its own; None: not known."""
        return None

    @abstractmethod
    def truncate(self, length: int) -> None:
        """Cut the committed text to its first ``length`` tokens (may rebuild)."""

    def close(self) -> None:
        """Free everything; closing twice is harmless."""


Share = Callable[[Any], Any]
"""``share(thing)``: a copy of it (``thing.copy()``), the same copy for all drafters that share the thing."""


class Drafter(ABC):
    """Proposes continuations. Requests may share it; it is frozen: options and shared memory only.

    Subclass as a frozen dataclass, whose fields are the options that users write after the name
    (``name:key=value``). By default it needs nothing from the target and has one evidence class.
    """

    name: ClassVar[str] = ""
    """Shown as the source of tokens."""
    modules: ClassVar[Sequence[str]] = ()
    """Modules that are slow to import: a thread imports them while the target reads the prompt."""
    batches: ClassVar[bool] = False
    """Whether its requests are drafted for together, by `draft_many`."""

    @property
    def needs(self) -> Needs:
        return Needs()

    @property
    def prior(self) -> Floats:
        """Acceptance rate of each evidence class that is assumed at first, float32[n_evidence]."""
        return np.full(1, 0.5, dtype=np.float32)

    @property
    def copies_text(self) -> bool:
        """Whether all that it proposes stood in the text before: then little of it is right until the text begins
        to repeat itself, and planners may wait for that."""
        return False

    @property
    def takes(self) -> Takes:
        return Takes()

    @property
    def files(self) -> Sequence[TokenFile]:
        """Token ids that it has opened, each with the tokenizer that they belong to."""
        return ()

    @property
    def models(self) -> Sequence[Any]:
        """Its models, each with ``target`` and ``weight_bytes`` (those of its own; None: not known)."""
        return ()

    @abstractmethod
    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:
        """Start a request. ``noise`` is the rule's (None when greedy); reading it does not change it."""

    def draft_many(
        self, sessions: Sequence[Any], nodes: Sequence[int], lookahead_nodes: Sequence[int], accept_rates: Floats,
        base_trees: Sequence[TokenTree] | None = None,
    ) -> Sequence[TokenTree]:  # fmt: skip
        """Return one tree per session of this drafter: what its `DraftSession.draft` or `branch` would return.

        If this raises, no session may have changed: from then on all sessions are asked one by one.
        ``base_trees`` are given to drafters with `Needs.base_tree`.
        """
        raise NotImplementedError("a drafter with batches = True must write draft_many()")

    def with_models(self, models: Any) -> Drafter | None:
        """Return a drafter that is ready to be opened; an equal one if called again with the same target.

        ``models`` finds models to draft by, for this target. None: it has none for this drafter, so leave it out.
        """
        return self

    def with_user_texts(self, texts: DraftTexts) -> Drafter:
        """Return a drafter that drafts from these texts, too."""
        return self

    def detached(self, share: Share) -> Drafter:
        """Return a drafter with the same knowledge at first, which writes no file and affects no other drafter."""
        return self

    def remember(self, ids: Sequence[int]) -> None:
        """Take in an answer that was written without this drafter."""
