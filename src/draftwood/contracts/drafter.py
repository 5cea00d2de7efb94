"""The drafter: proposes tokens that may come next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from draftwood.contracts.rule import Noise
from draftwood.contracts.target import Floats, Ints
from draftwood.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Needs:
    """What a drafter asks of the target beyond the emitted tokens.

    Attributes
    ----------
    top_k
        This many best tokens of every scored row, with their probabilities.
    hidden
        Hidden states of these layers (`Capabilities.hidden`), of all text that the target reads or scores:
        `HiddenWatcher`, `Feedback.hidden`.
    prompt
        The ``top_k`` of the prompt's rows too, and of later turns that the target reads: `PromptWatcher`.
    prompt_cost
        By how much that may lengthen the reading, as a share of it: then only the last row of each token is
        scored, of the latest tokens, as many as `Capabilities.row_cost` allows, and the others have probability 0.
        By default all rows are.
    lookahead_nodes
        At least this many lookahead nodes in one pass; the target must score trees, in passes large enough.
    choice
        The target's choice at rows off the accepted path too, as far as the ``top_k`` tell: `Feedback.choice`.
    base_tree
        The proposals of the set's other drafters in the same step, to append branches to: `Brancher`.
    prices
        What a token is worth: the drafter runs passes of its own, and ends where another one does not pay. Its
        sessions have an attribute ``prices`` (`Prices`), set before each draft, and ``ends``, the ids of tokens
        that end the text (a frozenset): nothing need be proposed behind them.
    target_session
        The target's session of the text, whose cache the drafter's own passes share: `Follower`.
    """

    top_k: int = 0
    hidden: tuple[int, ...] = ()
    prompt: bool = False
    prompt_cost: float = inf
    lookahead_nodes: int = 0
    choice: bool = False
    base_tree: bool = False
    prices: bool = False
    target_session: bool = False


@dataclass(frozen=True, slots=True)
class Prices:
    """What drafting is worth at present, for drafters that run passes of their own.

    Attributes
    ----------
    pass_s
        Seconds of the target's pass over one token; 0: not known, and the others mean nothing.
    token
        Time per emitted token at present, all drafting included, as a multiple of ``pass_s``. Drafting pays if it
        brings more than one token in this time.
    node
        What one more draft node adds to the target's pass, as a multiple of ``pass_s``.
    """

    pass_s: float = 0.0
    token: float = 1.0
    node: float = 0.0


@dataclass(frozen=True, slots=True)
class Takes:
    """Which of the user's texts a drafter drafts from.

    Attributes
    ----------
    prediction, memory, corpus, context
        Texts that the user expects, earlier answers (`Memory`), indexed files (`Corpus`), and further texts.
    memory_tokens
        Size of a memory that is opened for this drafter; None: the memory's own default.
    """

    prediction: bool = False
    memory: bool = False
    corpus: bool = False
    context: bool = False
    memory_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class DraftTexts:
    """The user's texts; a field is empty if none was given or the drafter does not take it.

    Attributes
    ----------
    prediction, context
        Token ids of each text.
    memory
        A `Memory`.
    corpus
        Opened corpora.
    """

    prediction: tuple[tuple[int, ...], ...] = ()
    memory: Any = None
    corpus: tuple[Any, ...] = ()
    context: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Token ids that a drafter has opened; their tokenizer is compared with the one in use.

    Attributes
    ----------
    name
        What an error message calls it: ``the corpus /home/me/code.dwc``.
    tokenizer
        Fingerprint of the tokenizer whose ids these are (`draftwood.models.fingerprint`); None: not known.
    path
        The file; None: the ids were given as an object.
    accept
        Called with the fingerprint of the tokenizer in use once both agree, for ids that are written back later.
    """

    name: str
    tokenizer: str | None
    path: Any = None
    accept: Callable[[str], None] | None = None


class Feedback(NamedTuple):
    """The result of a pass, for one drafter of the set. All arrays are read-only.

    Attributes
    ----------
    tree
        The scored tree, all drafters' proposals together.
    proposal
        What this drafter had proposed (before pruning).
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
        Ids int32[rows, k] and probabilities float32[rows, k] of all rows where this drafter declared it, else
        None; see `Scores.top_k` for small vocabularies and broken rows.
    hidden
        Layer -> hidden states [rows, width] of all rows, in the target's own array type: of all layers that
        drafters of the set declared.
    source
        Index of this drafter in the set.

    A node says something about acceptance rates only if its parent was accepted; then pruned nodes do too.
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


class DraftSession(Protocol):
    """A drafter's side of one request. Sees committed tokens only, and feedback on what it proposed."""

    @property
    def match_length(self) -> int:
        """How many committed tokens the last draft's match covered; 0 for drafters that do not match."""
        ...

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        """Propose at most ``nodes`` draft nodes and ``lookahead_nodes`` lookahead nodes after the committed text.

        ``accept_rates`` float32[n_evidence] is the current estimate of the acceptance rate of each evidence class;
        the choice of what to propose must rest on nothing else.
        """
        ...

    def learn(self, feedback: Feedback) -> None:
        """Take in the result of a pass and the tokens that it emitted."""
        ...

    def extend(self, ids: Sequence[int]) -> None:
        """Take in text that the target read and did not write: the next turn of a conversation."""
        ...

    def begin_answer(self, ids: Sequence[int]) -> None:
        """Take in the first token of an answer: the prompt or the turn before it is complete.

        What `learn` brings belongs to the same answer. Sessions without this method (of drafters written for
        0.1.0) get the token through `extend`.
        """
        ...

    def fork(self) -> DraftSession:
        """Return an independent copy."""
        ...

    def truncate(self, length: int) -> None:
        """Cut the committed text to its first ``length`` tokens (may rebuild)."""
        ...

    def close(self) -> None:
        """Free everything; closing twice is harmless."""
        ...


class PromptWatcher(Protocol):
    """What sessions of drafters with `Needs.prompt` have besides."""

    def observe(self, first: int, ids: Ints, probabilities: Floats) -> None:
        """Take in the best tokens after each of the committed tokens from position ``first`` on.

        ``ids`` int32[n, k] and ``probabilities`` float32[n, k], as in `Feedback.top_k`; a row that was not scored
        has probabilities 0. Called after `open` or `extend`, several times for a long text; tokens that were
        cached already are left out.
        """
        ...


class HiddenWatcher(Protocol):
    """What sessions of drafters with `Needs.hidden` have besides."""

    def observe_hidden(self, first: int, states: Mapping[int, Any]) -> None:
        """Take in the hidden states of the committed tokens from position ``first`` on.

        ``states`` has for each declared layer an array [n, width] of the target's own type. Called after `open` or
        `extend`, several times for a long text; tokens that were cached already are left out.
        """
        ...


class SavedReading(Protocol):
    """What a drafter's session has learnt of a text beyond its tokens."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        ...


class ResumingSession(Protocol):
    """What sessions have besides that learn more from reading a text than its tokens, and can hand it on.

    A server keeps what was read of ended texts. A later text that begins alike is read from where they part, so
    its drafters are shown nothing of the common beginning: they take it from here.
    """

    def save(self) -> SavedReading | None:
        """Copy what was learnt of the committed text; None if that is nothing. The session goes on unchanged."""
        ...

    def resume(self, saved: Any, length: int) -> None:
        """Take over what `save` of an equal drafter gave for a text with the same first ``length`` tokens.

        Called right after `Drafter.open`, before `PromptWatcher.observe` and `HiddenWatcher.observe_hidden`, which
        show the rest of the text. ``saved`` may be used by several sessions at once, and is not changed.
        """
        ...


class Brancher(Protocol):
    """What sessions of drafters with `Needs.base_tree` have besides."""

    def branch(self, base_tree: TokenTree, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        """Like `DraftSession.draft`, but ``base_tree`` holds the draft nodes of the set's other drafters.

        Branches may start at nodes of ``base_tree``, which are then part of the returned tree too.
        """
        ...


class Follower(Protocol):
    """What sessions of drafters with `Needs.target_session` have besides."""

    def follow(self, session: Any) -> None:
        """Take the target's session of this text, once, before the first draft.

        Between the target's passes the drafter may run passes over it (`GrowingTarget.grow`), which the target's
        next pass undoes.
        """
        ...


class ModelDrafter(Protocol):
    """What drafters that own a model have besides: the model is found when the target is known."""

    def with_models(self, models: Any) -> Drafter | None:
        """Return a drafter that is ready to be opened; ``models`` loads models and derives them from the target
        (`draftwood.api.draft_models.DraftModels`). Called again with the same target, it returns an equal drafter.
        None: there is no model, and the drafter is to be left out.

        The drafter may tell what its models take: ``models`` lists them, each with ``target`` and ``weight_bytes``
        (bytes of weights that are not the target's own, None: not known), and its sessions have ``cache_bytes``
        (bytes that the cached tokens take in caches of its own).
        """
        ...


class Drafter(Protocol):
    """Proposes continuations. Requests may share it; it is frozen: options and shared memory only."""

    @property
    def name(self) -> str:
        """Shown as the source of tokens."""
        ...

    @property
    def prior(self) -> Floats:
        """Acceptance rate of each evidence class that is assumed at first, float32[n_evidence]."""
        ...

    @property
    def needs(self) -> Needs: ...

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:
        """Start a request. ``noise`` is the rule's (None when greedy); reading it does not change it."""
        ...


class BatchDrafter(Drafter, Protocol):
    """What a drafter may have besides, to be asked once for all texts that share a pass."""

    def draft_many(
        self,
        sessions: Sequence[Any],
        nodes: Sequence[int],
        lookahead_nodes: Sequence[int],
        accept_rates: Floats,
    ) -> Sequence[TokenTree]:
        """Return one tree per session of this drafter: what its `DraftSession.draft` would return.

        ``nodes`` and ``lookahead_nodes`` are given per session. Afterwards each session's ``match_length`` is that
        of its tree. Where this raises, nothing may have changed: all sessions are asked one by one then, in this
        step and later. Drafters with `Needs.base_tree` get one more argument: the base tree of each session.
        """
        ...


class KernelDrafter(Drafter, Protocol):
    """What a drafter may have besides, to be opened sooner in a new process."""

    @property
    def modules(self) -> Sequence[str]:
        """Full names of modules that `open` needs and that take long to import: another thread begins to import
        them while the target reads the prompt.
        """
        ...


Share = Callable[[Any], Any]
"""``share(thing)``: a copy of it (``thing.copy()``), the same copy for all drafters that share the thing."""


class TextDrafter(Drafter, Protocol):
    """What drafters of the user's texts and of files have besides; `BaseDrafter` has all of it, doing nothing."""

    @property
    def takes(self) -> Takes: ...

    @property
    def files(self) -> Sequence[TokenFile]:
        """Token ids that it has opened, each with the tokenizer that they belong to."""
        ...

    def with_user_texts(self, texts: DraftTexts) -> Drafter:
        """Return a drafter that drafts from these texts, too."""
        ...

    def detached(self, share: Share) -> Drafter:
        """Return a drafter with the same knowledge at first, which writes no file and affects no other drafter."""
        ...

    def remember(self, ids: Sequence[int]) -> None:
        """Take in an answer that was written without this drafter."""
        ...
