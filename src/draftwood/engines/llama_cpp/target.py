"""A GGUF file as a target: llama.cpp computes passes in this process, over a cache that grows with the texts."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from threading import RLock
from types import SimpleNamespace

from draftwood.contracts import Capabilities, ModelFacts, Target, Watch
from draftwood.engines.committed import check_room, locked
from draftwood.engines.files.gguf_file import sampling_of
from draftwood.engines.lent_scores import RowScores
from draftwood.engines.llama_cpp.cache import MOST_BRANCHES, NONE, Cache
from draftwood.engines.llama_cpp.context import PASS, ContextSettings, PassRow, exact_settings, threads_here
from draftwood.engines.llama_cpp.library import takes_layers
from draftwood.engines.llama_cpp.selftest import exact_width, pass_times, restores
from draftwood.engines.llama_cpp.session import LlamaSession, SavedState, SnapshotSession
from draftwood.engines.llama_cpp.weights import LlamaWeights
from draftwood.engines.rounding import EXACT, FAST
from draftwood.errors import CapabilityError
from draftwood.local.findings import Setting
from draftwood.tree import TokenTree

Request = tuple[LlamaSession, int, TokenTree]


class LlamaTarget(Target):
    """A model of llama.cpp that scores token trees, several texts in one pass.

    ``threads`` None: see `threads_here`. ``gpu_layers``: layers on a graphics card, -1 for as many as fit; builds
    without one ignore it. ``exact``:

    - True: settings under which each row of scores is, bit by bit, that of a pass over one token
    (`exact_settings`),
      so that a text with drafts is the text without, and the same however its prompt was read.
    - False: llama.cpp's own settings; with quantised weights a draft, or reading a prompt in other parts, may then
      change a token where two were almost equally likely, and drafts are chains.
    - None: exact where these weights can be, as `exact_width` tries once.

    Raises `CapabilityError` where llama.cpp is not installed, or of a layout that is not known here, or ``exact``
    is asked for and cannot be; and `ModelNotFoundError`, `ModelError` or `UnsupportedModelError` for a file that
    is missing, damaged, or of a model that does not write text.
    """

    engine = "llama.cpp"

    def __init__(
        self, path: str | os.PathLike[str], *, threads: int | None = None, exact: bool | None = None,
        gpu_layers: int = -1,
    ) -> None:  # fmt: skip
        weights = self.weights = LlamaWeights(Path(path), gpu_layers=gpu_layers)
        self._settings, width, self._saves = _way(weights, threads_here(threads), exact)
        self.exact = width > 1  # neither drafts nor the way a prompt is read change a bit
        # Tokens of a pass, of all texts together: so a text's scores are the same however it came into the cache.
        self._widest = width if self.exact else PASS
        self._keeps_states = weights.is_recurrent
        most = 1 if self._keeps_states and not self._saves else min(self._widest, MOST_BRANCHES)
        self.capabilities = Capabilities(
            vocab_size=weights.vocab_size,
            max_positions=weights.max_positions,
            trees=(self.exact or weights.is_float) and not self._keeps_states,
            rollback="none" if most == 1 else "snapshot" if self._saves else "truncate",
            batch=True,
            max_pass=most,
            row_cost=weights.row_cost,
        )
        self.lock = RLock()
        self.tokens_read = 0  # of all prompts so far, for progress displays

    @cached_property
    def cache(self) -> Cache:
        """The cache of all its texts."""
        return Cache(self.weights, self._settings, self._widest)

    @cached_property
    def generation_config(self) -> SimpleNamespace:
        """What the api takes from a model of transformers under the same name."""
        own = sampling_of(self.weights.metadata)
        return SimpleNamespace(**own, eos_token_id=sorted(self.weights.end_ids))

    @property
    def setting(self) -> Setting:
        """What the cost of its passes depends on."""
        formats = self.weights.number_format + (EXACT if self.exact else FAST)
        layers = self.weights.gpu_layers if takes_layers() else 0
        device = {0: "cpu", -1: "gpu"}.get(layers, f"gpu:{layers}")
        return Setting(str(self.weights.path), formats, self._settings.threads, device)

    @property
    def facts(self) -> ModelFacts:
        """As of `Target.facts`; the number of weights is said by some files only."""
        count = self.weights.metadata("general.parameter_count") or ""
        kind, family = self.weights.number_format, self.weights.metadata("general.architecture")
        return ModelFacts(family, int(count) if count.isdigit() else None, kind)

    @locked
    def pass_times(self) -> dict[int, float]:
        """Return the seconds of passes over a few tokens, by their number; measured once per file and machine."""
        if self._keeps_states or (most := self.capabilities.max_pass) == 1:
            return {}
        return pass_times(self.weights, self._settings, most)

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that a pass reads at most: embeddings count even where they are only looked up."""
        return self.weights.size

    def quantized_self(self) -> Target:
        """Raise `CapabilityError`: llama.cpp's own tool quantises files."""
        raise CapabilityError(
            "quantized-self makes no smaller copy of a GGUF file for llama.cpp: write draft-model:model=FILE "
            "with a Q4_0 file of the same model, or run it on the engine cpu"
        )

    @locked
    def open(
        self, prompts: Sequence[Sequence[int]], *, reserve: int = 0, watch: Sequence[Watch] | None = None
    ) -> list[tuple[LlamaSession, RowScores]]:
        del reserve  # the cache grows with the texts
        self.weights.check_unchanged()
        sessions: list[LlamaSession] = []
        try:
            sessions.extend(self._session() for _ in prompts)
            return list(zip(sessions, self.extend(list(zip(sessions, prompts, strict=True)), watch), strict=True))
        except BaseException:
            for session in sessions:
                session.close()
            raise

    def _session(self) -> LlamaSession:
        return (SnapshotSession if self._saves else LlamaSession)(self.cache, self.lock)

    @locked
    def save(self, session: LlamaSession) -> SavedState | None:
        # Where layers have a window, older cells are gone, and a state belongs to one length alone.
        if self.weights.window or self._keeps_states:
            return None
        session.undo()
        ids = tuple(session.ids)
        return SavedState(ids, self.cache.copied(session.text)) if ids else None

    @locked
    def resume(self, prefix: SavedState, length: int, *, reserve: int = 0) -> LlamaSession:
        del reserve  # the cache grows with the texts
        self.weights.check_unchanged()
        session = self._session()
        try:
            self.cache.paste(session.text, prefix.cells, len(prefix.ids))
            session.commit(prefix.ids)
            session.truncate(length)
        except BaseException:
            session.close()
            raise
        return session

    @locked
    def extend(
        self, texts: Sequence[tuple[LlamaSession, Sequence[int]]], watch: Sequence[Watch] | None = None
    ) -> list[RowScores]:
        for session, ids in texts:
            check_room(session.length, ids, self.capabilities.max_positions)
        # One after another: prompts gain nothing by sharing a pass, and each text is the same as alone.
        return [self._read(*text, None if watch is None else watch[i]) for i, text in enumerate(texts)]

    def _read(self, session: LlamaSession, ids: Sequence[int], watch: Watch | None) -> RowScores:
        session.undo()
        first = session.length
        with self.cache.reading(session.text, len(ids)) as read:
            for start in range(0, len(ids), self._widest):  # alike whether watched or not: fast ones round
                part = ids[start : start + self._widest]
                wanted = NONE if watch is None else watch.among(first + start, len(part))
                shown, last = read(part, wanted)
                if watch is not None and len(wanted):
                    watch.show(first + start + wanted, shown)
                self.tokens_read += len(part)
        session.commit(ids)
        return last

    @locked
    def score(self, requests: Sequence[Request]) -> list[RowScores]:
        """One pass over the roots and trees of all requests; several where they need more than fits one."""
        can = self.capabilities
        for session, _, tree in requests:
            if 1 + len(tree) > can.max_pass or not (can.trees or tree.is_chain):
                shape = "trees" if can.trees else "chains"
                raise CapabilityError(
                    f"this target scores {shape} of at most {can.max_pass - 1} tokens: cut the draft"
                )
            session.prepare(tree)
        if len(requests) == 1:
            return self._one_pass(requests)
        found: dict[int, RowScores] = {}
        left = list(range(len(requests)))
        if self._keeps_states:
            left.sort(key=lambda i: _is_alone(requests[i]))  # the others share the first pass
        while left:
            scores = self._one_pass([requests[i] for i in left])
            found |= zip(left, scores, strict=False)
            del left[: len(scores)]
        return [found[i] for i in range(len(requests))]

    def _one_pass(self, requests: Sequence[Request]) -> list[RowScores]:
        """Score the first of these requests, as many as one pass takes."""
        cache, tokens = self.cache, list(accumulate([one.replay + 1 + len(tree) for one, _, tree in requests]))
        fits = bisect_right(tokens, self._widest)
        if self._keeps_states:
            fits = min(fits, next((i for i, request in enumerate(requests) if _is_alone(request)), fits))
        requests = requests[: max(1, fits)]
        if self._keeps_states and len(requests) > 1:
            cache.lose_passes()
        cache.make_room(tokens[len(requests) - 1])
        rows: list[PassRow] = []
        ends: list[int] = []
        for i, (session, root, tree) in enumerate(requests):
            added = session.rows(root, tree, is_last=i == len(requests) - 1)
            if added is None and rows:
                break
            if added is None:
                cache.start_over()
                added = session.rows(root, tree, is_last=len(requests) == 1)
            assert added is not None, "trees have no more leaves than a cache has sequences for"
            rows += added
            ends.append(len(rows))
        return cache.score(rows, ends, requests[0][0].replay)


def _way(weights: LlamaWeights, threads: int, exact: bool | None) -> tuple[ContextSettings, int, bool]:
    """Return the settings of passes, the tokens of an exact one (1: none is), and whether states are saved."""
    own, ours, saves = ContextSettings(threads), exact_settings(threads), False
    if weights.is_recurrent:
        saves, ours = restores(weights, own), replace(ours, ordered=weights.is_hybrid)
    width = 1 if exact is False or (weights.is_recurrent and not saves) else exact_width(weights, ours)
    if exact and width == 1:
        raise CapabilityError(
            f"passes over {weights.path} cannot be exact: leave exact out, or take Q4_0 or Q8_0 weights"
        )
    return (ours if width > 1 else own), width, saves


def _is_alone(request: Request) -> bool:
    """Whether a text that keeps a state takes a pass for itself.

    With a draft it would go back wrongly by tokens of a pass that other texts share. With tokens to read again it
    would save nothing: the library computes texts with unequal numbers of tokens one after another.
    """
    session, _, tree = request
    return bool(len(tree) or session.replay)
