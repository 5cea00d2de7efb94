"""A transformers model as a target: our own cache, one forward pass per step for all texts and their trees."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwood.child_safe import ChildSafeLock
from draftwood.contracts import Capabilities, ModelFacts, Positions, Watch
from draftwood.engines.committed import check_room, locked
from draftwood.engines.transformers.attention import UNDER_WAY, Pass, PassCache
from draftwood.engines.transformers.cache import Arena, SavedRows
from draftwood.engines.transformers.families import (
    cache_name,
    forward_parameters,
    layer_windows,
    max_positions,
    one_pass,
    refuse_unsupported,
    row_cost,
    text_config,
)
from draftwood.engines.transformers.lean import States
from draftwood.engines.transformers.lean import lean as lean_pass
from draftwood.engines.transformers.pack import WIDTHS, pack
from draftwood.engines.transformers.scores import WATCHED, TorchScores
from draftwood.engines.transformers.session import SPARE, PassRows, TransformersSession
from draftwood.engines.transformers.shadow import ModelTarget, shadow
from draftwood.errors import UnsupportedModelError
from draftwood.tree import TokenTree

_NONE: Positions = np.empty(0, dtype=np.int64)
_RESERVE = 1024
"""Most cache rows made in advance: a request's limit may be far above what it writes, and the cache can grow."""


class _Part(NamedTuple):
    """What a pass reads of one text. ``rows`` are scored: ``wanted`` for drafters, and the last token's."""

    text: int
    ids: NDArray[np.int64]
    rows: Positions
    wanted: int


class TransformersTarget(ModelTarget):
    """A decoder-only model of transformers that scores token trees, several texts in one pass.

    Passes run on a shadow that shares the model's weights. Models whose layers keep more than keys and values
    raise `UnsupportedModelError`: they are for `NativeTarget`. ``chunk`` is the most tokens of one text per pass,
    which bounds the mask of a long prompt; ``packed`` runs linear layers on
    packed weights where the machine can (see `pack`); ``lean`` runs passes without transformers' modules where the
    model's are understood.
    """

    def __init__(
        self, model: Any, *, trees: bool = True, chunk: int = 1024, packed: bool = True, lean: bool = True
    ) -> None:
        refuse_unsupported(model)
        super().__init__(model)
        config = text_config(model)
        windows = layer_windows(config)
        if windows is None:
            raise UnsupportedModelError(f"{config.model_type} has layers of another kind than attention")
        self._model = shadow(model)
        self.decoder = lean_pass(self._model, packed=packed) if lean else None  # None: modules run the passes
        self.packing = pack(self._model, packed=packed) if self.decoder is None else self.decoder.packing
        fills = self.packing is not None or (self.decoder is not None and self.decoder.fills)
        self.owns_weights = self.decoder is not None and self.packing is not None
        embedding = model.get_input_embeddings().weight
        self.device: torch.device = embedding.device
        self._takes = forward_parameters(self._model)
        self._carrier = cache_name(self._takes)
        self.lock = ChildSafeLock()
        self.tokens_read = 0  # of all prompts so far, for progress displays
        self.arena, self._chunk = Arena(windows), chunk
        self.capabilities = Capabilities(
            vocab_size=embedding.shape[0],
            max_positions=max_positions(config),
            trees=trees,
            batch="position_ids" in self._takes,  # without it, the model numbers the rows of a pass through
            max_pass=chunk,
            row_cost=row_cost(model),
            grows=trees,
            widths=WIDTHS if fills else (),
            hidden=tuple(range(len(windows) + 1)),
        )

    @property
    def n_layers(self) -> int:
        """How many layers the model has."""
        return len(self.arena.windows)

    @property
    def fingerprint(self) -> str:
        """As of `Target.fingerprint`."""
        from draftwood.engines.transformers.head import embedding_fingerprint

        return embedding_fingerprint(self.token_tables()[0])

    def token_tables(self) -> tuple[Tensor, Tensor | None]:
        """Return the embedding [vocab, width], and the rows that score tokens, [vocab, width]; None: released."""
        head = self._model.get_output_embeddings()
        rows = None if head is None or not head.weight.numel() else head.weight.detach()
        return self._model.get_input_embeddings().weight.detach(), rows

    @property
    def facts(self) -> ModelFacts:
        """As of `Target.facts`; packed weights are not counted."""
        config = self._model.config
        return ModelFacts(config.model_type, None, str(self._model.dtype).removeprefix("torch."))

    def early_exit(self, layers: str = "") -> Any:
        """As of `Target.early_exit`: on this target's sessions."""
        from draftwood.engines.transformers.self_draft import early_exit

        return super().early_exit(layers) if self.decoder is None else early_exit(self, layers)

    def head(self, file: str = "") -> Any:
        """As of `Target.head`."""
        from draftwood.engines.heads.fitting import head_in
        from draftwood.engines.transformers.head import fitted

        return head_in(file, self, fitted)

    @locked
    def open(
        self, prompts: Sequence[Sequence[int]], *, reserve: int = 0, watch: Sequence[Watch] | None = None
    ) -> list[tuple[TransformersSession, TorchScores]]:
        sessions: list[TransformersSession] = []
        longest = max(map(len, prompts), default=0) + min(reserve, _RESERVE)
        self.arena.prepare(len(prompts), longest + SPARE)
        try:
            sessions.extend(TransformersSession(self.arena, self.lock, longest) for _ in prompts)
            return list(zip(sessions, self.extend(list(zip(sessions, prompts, strict=True)), watch), strict=True))
        except BaseException:
            for session in sessions:
                session.close()
            raise

    @locked
    def save(self, session: TransformersSession) -> SavedRows | None:
        return self.arena.save(session.slot, session.ids)

    @locked
    def resume(self, prefix: SavedRows, length: int, *, reserve: int = 0) -> TransformersSession:
        rows = length + min(reserve, _RESERVE)
        self.arena.prepare(1, rows + SPARE)
        session = TransformersSession(self.arena, self.lock, rows)
        self.arena.fill(session.slot, prefix, length)
        session.commit(prefix.ids[:length])
        return session

    @locked
    def extend(
        self, texts: Sequence[tuple[TransformersSession, Sequence[int]]], watch: Sequence[Watch] | None = None
    ) -> list[TorchScores]:
        if len(texts) > 1 and not self.capabilities.batch:
            return [self.extend([text], watch and watch[i : i + 1])[0] for i, text in enumerate(texts)]
        for session, whole in texts:
            check_room(session.length, whole, self.capabilities.max_positions)
        left: list[NDArray[np.int64]] = [np.asarray(ids, dtype=np.int64) for _, ids in texts]
        last: list[Tensor | None] = [None] * len(texts)
        while any(len(ids) for ids in left):
            parts = self._parts([session for session, _ in texts], left, watch)
            starts = np.cumsum([0, *(len(part.ids) for part in parts)])
            rows = [start + part.rows for start, part in zip(starts, parts, strict=False)]
            all_rows = [texts[part.text][0].pass_rows(len(part.ids)) for part in parts]
            hidden: States = {} if watch is None else dict.fromkeys(layer for w in watch for layer in w.hidden)
            logits = self._run(all_rows, [part.ids for part in parts], np.concatenate(rows), hidden)
            several = logits.split([len(part.rows) for part in parts])
            for part, start, scores in zip(parts, starts, several, strict=False):
                session = texts[part.text][0]
                last[part.text] = scores[-1] if watch is None else scores[-1].clone()  # not a view that keeps all
                if watch is not None and part.wanted:
                    positions = session.length + part.rows[: part.wanted]
                    watch[part.text].show(positions, TorchScores(scores[: part.wanted]))
                if watch is not None and (show := watch[part.text].show_hidden) is not None:
                    states = _rows(hidden, start, start + len(part.ids))
                    show(session.length, {layer: states[layer] for layer in watch[part.text].hidden})
                session.commit(part.ids)
                left[part.text] = left[part.text][len(part.ids) :]
                self.tokens_read += len(part.ids)
        return [TorchScores(row[None]) for row in last if row is not None]

    def _parts(
        self, sessions: Sequence[TransformersSession], left: Sequence[NDArray[np.int64]],
        watch: Sequence[Watch] | None,
    ) -> list[_Part]:  # fmt: skip
        """Choose what the next pass reads: at most ``chunk`` tokens and `WATCHED` rows of scores in all."""
        tokens, rows, parts = self._chunk, WATCHED, []
        for text, ids in enumerate(left):
            ids = ids[:tokens]
            wanted = _NONE if watch is None else watch[text].among(sessions[text].length, len(ids))
            if len(wanted) > rows:
                ids, wanted = ids[: wanted[rows]], wanted[:rows]
            if not len(ids):
                continue
            tokens, rows, end = tokens - len(ids), rows - len(wanted), len(ids) - 1
            scored = wanted if len(wanted) and wanted[-1] == end else np.append(wanted, end)
            parts.append(_Part(text, ids, scored, len(wanted)))
        return parts

    @locked
    def score(self, requests: Sequence[tuple[TransformersSession, int, TokenTree]]) -> list[TorchScores]:
        """One pass over the roots and trees of all requests; one for each where texts cannot share it."""
        if len(requests) > 1 and not self.capabilities.batch:
            return [self.score([request])[0] for request in requests]
        all_rows, ids = [], []
        for session, root, tree in requests:
            ids.append(np.concatenate(([root], tree.tokens)))
            all_rows.append(session.tree_rows(root, tree))
        hidden: States = dict.fromkeys(layer for session, _, _ in requests for layer in session.hidden)
        logits = self._run(all_rows, ids, None, hidden)
        ends = [(s.first, s.first + s.rows) for s in all_rows]
        return [TorchScores(logits[low:high], _rows(hidden, low, high)) for low, high in ends]

    @locked
    def grow(
        self, requests: Sequence[tuple[TransformersSession, Sequence[int], Sequence[int]]]
    ) -> list[TorchScores]:
        """As in the contract (`Target`); sessions may be those of another target with the same arena."""
        if len(requests) > 1 and not self.capabilities.batch:
            return [self.grow([request])[0] for request in requests]
        all_rows = [session.grown_rows(tokens, parents) for session, tokens, parents in requests]
        ids = [np.asarray(tokens, dtype=np.int64) for _, tokens, _ in requests]
        logits = self._run(all_rows, ids, None, {})
        if bool(logits[:, 0].isnan().any()):
            for session, _, _ in requests:
                session.spoil()
        return [TorchScores(logits[s.first : s.first + s.rows]) for s in all_rows]

    @staticmethod
    def settle(session: TransformersSession, path: Sequence[int]) -> None:
        session.settle(path)

    @one_pass
    def _run(self, all_rows: Sequence[PassRows], ids: Sequence[NDArray[Any]], rows: Any, hidden: States) -> Tensor:
        """Run one pass; returns the logits [rows, vocab] of these rows of it (None: of all).

        The states of all its rows at the layers that are keys of ``hidden`` are put there.
        """
        geometry = Pass(self.arena, all_rows)
        tokens = torch.from_numpy(np.concatenate(ids).astype(np.int64)).to(self.device)
        where = torch.from_numpy(geometry.positions).to(self.device)
        wanted = None if rows is None else torch.from_numpy(rows).to(self.device)
        if self.decoder is not None:
            return self.decoder(tokens, where, partial(geometry.through, self.decoder.scaling), wanted, hidden)
        return self._forward(geometry, tokens, where, wanted, hidden)

    def _forward(
        self, geometry: Pass, tokens: Tensor, where: Tensor, wanted: Tensor | None, hidden: States
    ) -> Tensor:
        """Run the pass through the shadow's modules."""
        inputs: dict[str, Any] = {"input_ids": tokens[None], self._carrier: PassCache(geometry)}
        inputs["use_cache"] = True
        if "position_ids" in self._takes:
            inputs["position_ids"] = where[None]
        in_forward = "logits_to_keep" in self._takes
        if in_forward:
            inputs["logits_to_keep"] = 0 if wanted is None else wanted
        if hidden:
            inputs["output_hidden_states"] = True
        token = UNDER_WAY.set(geometry)
        try:
            found = self._model(**inputs)
        finally:
            UNDER_WAY.reset(token)
        hidden |= {layer: found.hidden_states[layer][0] for layer in hidden}
        logits: Tensor = found.logits[0]
        return logits if in_forward or wanted is None else logits[wanted.to(logits.device)]


def _rows(hidden: States, first: int, end: int) -> dict[int, Tensor]:
    """Return these rows of the states of a pass."""
    return {layer: states[first:end] for layer, states in hidden.items() if states is not None}
