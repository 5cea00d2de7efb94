"""The seams: what a drafter, a target, a rule and a planner promise each other. Protocols and their values only.

Rows: a pass over a tree gives ``1 + len(tree)`` rows, row 0 for the root (the last committed token), row
``1 + i`` for node ``i``. Positions count from 0 at the first token of the prompt.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from draftwood.step import Step
from draftwood.tree import TokenTree

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


# --- targets -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a target can do; declared, so that nothing is discovered in mid-text.

    Attributes
    ----------
    vocab_size
        Token ids lie in ``[0, vocab_size)``.
    max_positions
        The longest text, prompt included.
    trees
        False: chains only.
    rollback
        How rejected rows leave the cache: cut off, restored and replayed, or not at all (then no drafts).
    batch
        Several sessions share one pass.
    top_k
        `Scores.top_k` is offered.
    hidden
        Layers whose hidden states `Scores.hidden` gives.
    max_pass
        Most tokens one scoring pass may hold, the root included.
    widths
        Widths to which passes are filled up, ascending: one over more tokens costs nothing up to the next of them.
        Empty, and above the last: a pass is as wide as what it scores.
    """

    vocab_size: int
    max_positions: int
    trees: bool = True
    rollback: Literal["truncate", "snapshot", "none"] = "truncate"
    batch: bool = False
    top_k: bool = True
    hidden: tuple[int, ...] = ()
    max_pass: int = 1 << 16
    widths: tuple[int, ...] = ()

    def filled(self, tokens: int) -> int:
        """Return how wide a pass over so many tokens is."""
        at = bisect_left(self.widths, tokens)
        return self.widths[at] if at < len(self.widths) else tokens


class Scores(Protocol):
    """What one pass says about each row; everything is computed when asked for."""

    def argmax(self, row: int) -> int:
        """Best token by the raw scores of this row, the lowest id on a tie; -1 if one is NaN or all are -inf."""
        ...

    def raw(self, row: int) -> Any:
        """Raw scores of one row, [vocab], in the target's own array type; not to be written to."""
        ...

    def numpy(self, array: Any) -> Floats:
        """Bring a row of the target's own array type here as float32[vocab]; may share memory."""
        ...

    def top_k(self, k: int) -> tuple[Ints, Floats]:
        """Ids int32[rows, k] and probabilities float32[rows, k] of the best tokens of all rows, best first.

        Of a smaller vocabulary all: ``min(k, vocab)`` columns. The first is `argmax`. A row with a NaN, or without
        a finite best, has ids of the vocabulary and probabilities 0: rows off the path may be anything.
        """
        ...

    def hidden(self, layer: int) -> Any:
        """Hidden states of a declared layer, [rows, width], in the target's own array type."""
        ...


Watch = Callable[[int, Scores], None]
"""Sees the scores of text that is read: ``watch(first, scores)``, where row ``i`` belongs to the token at position
``first + i``. It must read them before it returns. Called once per chunk, in order; each token that `Target.open`
or `Target.extend` was given comes once, except those that a cache held already."""


class TargetSession(Protocol):
    """One text in the target's cache."""

    @property
    def length(self) -> int:
        """Tokens that the cache stands for: during decoding, every committed one but the last."""
        ...

    @property
    def replay(self) -> int:
        """Committed tokens that the next pass must read again, after a target restored a snapshot; else 0."""
        ...

    def keep(self, path: Sequence[int]) -> None:
        """After a pass: commit the root and these nodes of the scored tree (a path), drop the rest."""
        ...

    def truncate(self, length: int) -> None:
        """Cut the cached text to its first ``length`` tokens, or to fewer where the rest must be read again.

        Whoever cuts then reads on from `length` (`Target.extend`).
        """
        ...

    def fork(self) -> TargetSession:
        """Return an independent copy."""
        ...

    def close(self) -> None:
        """Give the slot back; closing twice is harmless."""
        ...


class Target(Protocol):
    """A model that scores trees. Shareable; it owns the cache, a session is a slot in it and does not know it."""

    @property
    def capabilities(self) -> Capabilities: ...

    def open(
        self, prompts: Sequence[Sequence[int]], *, reserve: int = 0, watch: Sequence[Watch] | None = None
    ) -> Sequence[tuple[TargetSession, Scores]]:
        """Read the prompts; per prompt a session and the scores of its last token as row 0.

        ``reserve`` is how many more tokens per prompt the caller expects to commit; ``watch``, one per
        prompt, see the scores of all tokens that are read, at the price of computing them.
        """
        ...

    def extend(
        self, texts: Sequence[tuple[Any, Sequence[int]]], watch: Sequence[Watch] | None = None
    ) -> Sequence[Scores]:
        """Read more text into sessions of this target, each given once, in passes that they share where they can.

        For each (session, ids) the scores of its last token as row 0; ``watch``, one per text, as for `open`.
        """
        ...

    def score(self, requests: Sequence[tuple[Any, int, TokenTree]]) -> Sequence[Scores]:
        """One pass: for each (session of this target, root token, tree) scores of the root and of every node.

        A session whose pass was not kept may be scored again: the earlier pass is taken back. A pass over a single
        root must not read anything but that text, whatever was in the cache before: it is what decides where a
        row of a wider pass is broken.
        """
        ...


# --- noise and rules ---------------------------------------------------------------------------------------


class Noise(Protocol):
    """Keyed noise: a function of (seed, sequence, position, token), so reading it consumes nothing."""

    @property
    def temperature(self) -> float:
        """What log-probabilities are divided by before the noise is added; the largest sum is chosen."""
        ...

    def gumbel(self, position: int, ids: NDArray[Any]) -> NDArray[np.float64]:
        """Gumbel noise of these tokens at this position of the text, float64[len(ids)]."""
        ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen from the scores.

    Attributes
    ----------
    temperature
        0 is greedy; the settings below it then have no effect, `repetition_penalty` excepted.
    top_k, top_p, min_p
        Restrict the support, applied in this order after the temperature; None leaves it whole.
    repetition_penalty
        Scores of tokens already in the text are divided (positive) or multiplied (negative) by it
        (CTRL, arXiv 1909.05858).
    seed
        Keys the noise; the same seed gives the same text.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


Processor = Callable[[NDArray[np.int64], Any], Any]
"""``processor(prefix int64[length], row) -> row``: called once per emitted token, in order, with the committed
text; the row has the target's own array type."""

Ended = Callable[[int], "str | None"]
"""Told each emitted token in order; answers why the text ends with it, or None."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule decided about one scored tree.

    Attributes
    ----------
    path
        Accepted nodes, from the first below the root.
    emitted
        What the target takes at the root and at each node of the path: the accepted tokens and its own next
        one, which is missing where the text ends with an accepted node.
    finish
        Why the text ends here, or None.
    error
        Why nothing can be chosen at the last node of the path; the text ends with that node.
    """

    path: tuple[int, ...]
    emitted: tuple[int, ...]
    finish: str | None = None
    error: Exception | None = None


class RuleSession(Protocol):
    """The rule's side of one request: owns the committed text, the noise and the processors."""

    @property
    def noise(self) -> Noise | None:
        """The noise that decides, for drafters to read; None when greedy."""
        ...

    def verify(self, tree: TokenTree, scores: Scores, ended: Ended) -> Verdict:
        """Walk from the root, accept while the target's own choice is a child, stop where the text ends.

        Raises where nothing can be chosen at the root; below it the verdict has what was accepted, and the error.
        """
        ...


class Rule(Protocol):
    """Why the output is still the model's own."""

    def open(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        processors: Sequence[Processor] = (),
        sequence: int = 0,
    ) -> RuleSession:
        """Start a request. ``sequence`` is the number of the returned sequence, never the row of a batch."""
        ...


# --- drafters ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Needs:
    """What a drafter asks of the target beyond tokens.

    Attributes
    ----------
    top_k
        So many best tokens of every scored row, with their probabilities.
    hidden
        Hidden states of these layers.
    prompt
        The ``top_k`` of the prompt's rows too, and of other text that is read and not written: `PromptWatcher`.
    probes
        At least so many probes in one pass, so a target with trees whose passes hold them beside the root.
    choice
        What the target would take at rows off the path too, as far as the ``top_k`` tell: `Feedback.choice`.
    stem
        What the other drafters of the set propose in the same step, to go on behind it: `Brancher`.
    """

    top_k: int = 0
    hidden: tuple[int, ...] = ()
    prompt: bool = False
    lookahead_nodes: int = 0
    choice: bool = False
    base_tree: bool = False


@dataclass(frozen=True, slots=True)
class Takes:
    """Which of the texts that a user brings a drafter drafts from.

    Attributes
    ----------
    prediction, memory, corpus, context
        Whether it drafts from the texts that the user expects, from earlier answers (`Memory`), from indexed
        files (`Corpus`), and from further texts.
    memory_tokens
        How many tokens a memory should hold that is opened for this drafter; None: the memory's own default.
    """

    prediction: bool = False
    memory: bool = False
    corpus: bool = False
    context: bool = False
    memory_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class DraftTexts:
    """What a user brought; each field is empty where nothing was brought or the drafter does not take it.

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
    """Token ids that a drafter has opened, so that they can be compared with the tokenizer in use.

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


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a pass taught, as one source sees it. All arrays are read-only.

    Attributes
    ----------
    tree
        The scored tree, all sources together.
    proposal
        What this source had proposed (before pruning).
    node_map : int32[len(proposal)]
        Where each proposed node went in ``tree``, -1 where it was pruned.
    path
        Accepted nodes of ``tree``.
    emitted
        Tokens that were committed: the path's, then the target's own (see `Verdict`).
    choice : int32[1 + len(tree)]
        What the target takes at each row: exact on the path, elsewhere from the raw top-k and noise where a
        drafter of the set asked for it (`Needs.choice`), else -1 (unknown), as where a row is broken.
    top_k
        Ids int32[rows, k] and probabilities float32[rows, k] of all rows where this source declared it, else None;
        see `Scores.top_k` for small vocabularies and broken rows.
    hidden
        Declared layer -> hidden states [rows, width] of all rows, in the target's own array type.
    source
        Index of this source in the set.

    A node is a label for beliefs only if its parent was accepted; proposals that the planner pruned are labels
    too where that holds.
    """

    tree: TokenTree
    proposal: TokenTree
    node_map: Ints
    path: tuple[int, ...]
    emitted: tuple[int, ...]
    choice: Ints
    top_k: tuple[Ints, Floats] | None = None
    hidden: Mapping[int, Any] = field(default_factory=dict)
    source: int = 0


class DraftSession(Protocol):
    """A drafter's side of one request. Sees committed tokens only, and feedback on what it proposed."""

    @property
    def match_length(self) -> int:
        """How many committed tokens the last draft's match covered; 0 for drafters that do not match."""
        ...

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        """Propose at most ``nodes`` draft nodes and ``probes`` probes after the last committed token.

        ``accept_rates`` float32[n_evidence] is the acceptance rate now believed for each evidence class: the only
        belief to go by when choosing what to grow.
        """
        ...

    def learn(self, feedback: Feedback) -> None:
        """Take in what a pass emitted and taught."""
        ...

    def extend(self, ids: Sequence[int]) -> None:
        """Take in text that the target read and did not write: the next turn of a conversation."""
        ...

    def begin_answer(self, ids: Sequence[int]) -> None:
        """Take in the first token of an answer: the prompt or the turn before it was read to its end.

        What `learn` brings belongs to the same answer. Sessions without this method, as drafters written for
        0.1.0 have them, get the token through `extend`.
        """
        ...

    def fork(self) -> DraftSession:
        """Return an independent copy."""
        ...

    def truncate(self, length: int) -> None:
        """Cut the committed text to its first ``length`` tokens (may rebuild)."""
        ...

    def close(self) -> None:
        """Let go of everything; closing twice is harmless."""
        ...


class PromptWatcher(Protocol):
    """What the sessions of drafters that need `Needs.prompt` can do besides."""

    def observe(self, first: int, ids: Ints, probabilities: Floats) -> None:
        """Take in the best tokens after each of the committed tokens from position ``first`` on.

        ``ids`` int32[n, k] and ``probabilities`` float32[n, k], as in `Feedback.top_k`. Comes after `open` or
        `extend`, in pieces; tokens that a cache knew already are left out.
        """
        ...


class Brancher(Protocol):
    """What the sessions of drafters that need `Needs.stem` can do besides."""

    def branch(self, base_tree: TokenTree, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        """Like `DraftSession.draft`, knowing the draft nodes that the others of the set propose in this step.

        Branches may go on behind nodes of ``stem``, which then stand in the returned tree too.
        """
        ...


class Drafter(Protocol):
    """A way to propose continuations. Shareable and frozen: hyper-parameters and shared memory only."""

    @property
    def name(self) -> str:
        """Shown as the source of tokens."""
        ...

    @property
    def prior(self) -> Floats:
        """Acceptance rate expected of each evidence class before anything is known, float32[n_evidence]."""
        ...

    @property
    def needs(self) -> Needs: ...

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:
        """Start a request. ``noise`` is the rule's (None when greedy): readable, never consumed."""
        ...


Share = Callable[[Any], Any]
"""``share(thing)``: a copy of it (``thing.copy()``), the same one for all drafters that share the thing."""


class TextDrafter(Drafter, Protocol):
    """What drafters of user's texts and of files have besides; `BaseDrafter` has all of it, doing nothing."""

    @property
    def takes(self) -> Takes: ...

    @property
    def files(self) -> Sequence[TokenFile]:
        """Token ids that it has opened, each with the tokenizer that they belong to."""
        ...

    def with_user_texts(self, texts: DraftTexts) -> Drafter:
        """Return the drafter that drafts from these texts, too."""
        ...

    def detached(self, share: Share) -> Drafter:
        """Return a drafter that begins with the same knowledge, writes no file and teaches no other drafter."""
        ...

    def remember(self, ids: Sequence[int]) -> None:
        """Take in an answer that was written without this drafter."""
        ...


# --- planners ----------------------------------------------------------------------------------------------


class Declaration(Protocol):
    """What a planner may know of a drafter: what it declares, read once."""

    @property
    def name(self) -> str: ...

    @property
    def label(self) -> str:
        """Name and options: what is learnt of a drafter is kept under it."""
        ...

    @property
    def prior(self) -> Floats: ...

    @property
    def needs(self) -> Needs: ...


class State(Protocol):
    """What a planner may know of a request under way."""

    @property
    def drafters(self) -> Sequence[Declaration | None]:
        """The set in order; None where a drafter was disabled for this request."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def length(self) -> int:
        """Committed tokens, prompt included."""
        ...

    @property
    def remaining(self) -> int:
        """Tokens that may still be emitted, at least 1."""
        ...

    @property
    def ids(self) -> Sequence[int]:
        """Committed tokens, prompt included; not to be written to."""
        ...

    @property
    def greedy(self) -> bool: ...

    @property
    def traced(self) -> bool:
        """Whether somebody will read why a step was planned as it was: `Step.trace`."""
        ...

    @property
    def step(self) -> Step:
        """Record of the step under way, of the last one in `Planner.ask`.

        In `Planner.learn` it knows its pass's seconds, by the loop's clock. Planners may write its ``held``,
        ``temperature``, ``battery`` and, where traced, ``trace``.
        """
        ...


@dataclass(frozen=True, slots=True)
class Ask:
    """What one source is asked for in one step."""

    nodes: int
    lookahead_nodes: int
    accept_rates: Floats


@dataclass(frozen=True, slots=True)
class Plan:
    """What is scored for one request: the pruned tree, and per source where its nodes went (-1: pruned)."""

    tree: TokenTree
    node_map: tuple[Ints, ...]


class PlannerSession(Protocol):
    """A planner's side of one call: of texts that share each pass. Used by one thread at a time."""

    def ask(self, states: Sequence[State]) -> list[list[Ask]]:
        """Per request and source of its set: how much to ask for."""
        ...

    def plan(self, states: Sequence[State], proposals: Sequence[Sequence[TokenTree]]) -> list[Plan]:
        """Merge each request's proposals (one tree per source of its set) and prune them to what pays."""
        ...

    def learn(self, states: Sequence[State], feedback: Sequence[Sequence[Feedback]]) -> None:
        """Take in what the pass taught, per request and source."""
        ...


class Planner(Protocol):
    """Decides how much is drafted and how much of it is checked, possibly nothing. Owns the beliefs.

    Calls and threads may share it: what it knows between `PlannerSession.ask` and `PlannerSession.learn` belongs
    to the session; what it has learnt is its own, behind a lock.
    """

    def open(self) -> PlannerSession:
        """Start a call; a session needs no closing."""
        ...
