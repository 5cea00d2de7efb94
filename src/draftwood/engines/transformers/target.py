"""A transformers model as a target: our own cache, one forward pass per step, trees on any kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.contracts import Capabilities, Ints
from draftwood.engines.transformers.attention import PassGeometry
from draftwood.engines.transformers.cache import Arena, PassCache
from draftwood.engines.transformers.families import layer_windows, refuse_unsupported
from draftwood.engines.transformers.pack import pack
from draftwood.engines.transformers.scores import TorchScores
from draftwood.engines.transformers.shadow import shadow
from draftwood.errors import PromptError
from draftwood.tree import TokenTree


class TransformersTarget:
    """A decoder-only model of transformers that scores token trees.

    The model itself is not touched: passes run on a shadow that shares its weights.

    Parameters
    ----------
    model
        A ``PreTrainedModel`` for causal language modelling.
    chunk
        Most tokens per pass: longer prompts are read in pieces. Bounds the mask (rows x keys) of a long prompt
        and the buffers of windowed layers.
    packed
        Run linear layers on packed weights where the machine can (see `pack`).

    Raises
    ------
    UnsupportedModelError
        For a model type or setting whose passes we cannot answer for, by name.
    """

    def __init__(self, model: Any, *, chunk: int = 1024, packed: bool = True) -> None:
        refuse_unsupported(model)
        config = model.config
        self._model = shadow(model)
        self.packed_layers = pack(self._model) if packed else 0
        self._embedding = model.get_input_embeddings().weight
        windows = layer_windows(config)
        heads = config.num_key_value_heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.arena = Arena(
            windows,
            [heads] * len(windows),
            [dim] * len(windows),
            dtype=self._embedding.dtype,
            device=self._embedding.device,
            chunk=chunk,
        )
        self.capabilities = Capabilities(
            vocab_size=self._embedding.shape[0], max_positions=config.max_position_embeddings, max_pass=chunk
        )

    def open(
        self, prompts: Sequence[Sequence[int]], *, reserve: int = 0
    ) -> list[tuple[TransformersSession, TorchScores]]:
        opened: list[tuple[TransformersSession, TorchScores]] = []
        try:
            for prompt in prompts:
                session = TransformersSession(self, len(prompt) + reserve)
                opened.append((session, None))  # type: ignore[arg-type]  # closed below if reading fails
                opened[-1] = (session, session.extend(prompt))
        except BaseException:
            for session, _ in opened:
                session.close()
            raise
        return opened

    def score(self, requests: Sequence[tuple[TransformersSession, int, TokenTree]]) -> list[TorchScores]:
        return [session.score(root, tree) for session, root, tree in requests]

    @torch.inference_mode()
    def forward(self, ids: Sequence[int] | Ints, cache: PassCache, geometry: PassGeometry, rows: int) -> Any:
        """Run one pass over ``ids``; returns the logits [rows, vocab] of its last ``rows`` tokens."""
        device = self.arena.device
        positions = torch.from_numpy(np.asarray(geometry.positions, dtype=np.int64)).to(device)
        output = self._model(
            input_ids=torch.from_numpy(np.asarray(ids, dtype=np.int64))[None].to(device),
            position_ids=positions[None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=rows,
            geometry=geometry,
        )
        return output.logits[0]


class TransformersSession:
    """One text in the arena. ``length`` rows are committed; what a pass wrote behind them is provisional."""

    replay = 0

    def __init__(self, target: TransformersTarget, rows: int) -> None:
        self._target = target
        self._arena = target.arena
        self._slot: int | None = self._arena.take(rows + 64)  # 64: a usual tree, so that it need not grow
        self._ids: list[int] = []
        self._scored: tuple[int, TokenTree] | None = None
        # Per window width, the position of the text that row 0 of those buffers holds.
        self._first = dict.fromkeys(set(self._arena.windows), 0)

    @property
    def length(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> list[int]:
        """The cached text."""
        return list(self._ids)

    def extend(self, ids: Sequence[int]) -> TorchScores:
        limit = self._target.capabilities.max_positions
        if not len(ids):
            raise PromptError("there is nothing to read: the prompt is empty")
        if self.length + len(ids) > limit:
            raise PromptError(
                f"the text has {self.length + len(ids)} tokens, the model takes at most {limit}: shorten it"
            )
        self._scored = None
        width = self._arena.chunk
        for start in range(0, len(ids), width):
            piece = [int(i) for i in ids[start : start + width]]
            positions = np.arange(self.length, self.length + len(piece))
            logits = self._pass(piece, positions, None, rows=1)
            self._ids += piece
        return TorchScores(logits)

    def score(self, root: int, tree: TokenTree) -> TorchScores:
        """Score ``root`` and the nodes of ``tree`` behind the committed text; nothing is committed."""
        ids = np.concatenate(([root], tree.tokens))
        among = None if tree.is_chain else _with_root(tree.ancestor_mask)
        logits = self._pass(ids, tree.positions(self.length), among, rows=len(ids))
        self._scored = (root, tree)
        return TorchScores(logits)

    def keep(self, path: Sequence[int]) -> None:
        if self._scored is None:
            raise RuntimeError("keep() follows a score(): there is no scored tree to keep from")
        root, tree = self._scored
        self._scored = None
        start = next((i for i, node in enumerate(path) if node != i), len(path))
        if start < len(path):  # rows before the first one that must move are in place already
            nodes = np.asarray(path, dtype=np.int64)
            for window, first in self._first.items():
                base = self.length - first + 1
                rows = torch.from_numpy(nodes[start:] + base).to(self._arena.device)
                self._arena.move_rows(self._slot_index, window, base + start, rows)
        self._ids.append(root)
        if len(path):
            self._ids += tree.tokens[list(path)].tolist()

    def truncate(self, length: int) -> None:
        self._scored = None
        if length >= self.length:
            return
        # A windowed layer must still hold what the tokens after the cut can see.
        lost = any(w is not None and max(0, length - w + 1) < first for w, first in self._first.items())
        ids = self._ids[:length]
        if not lost:
            self._ids = ids
            return
        self._ids, self._first = [], dict.fromkeys(self._first, 0)
        if ids:
            self.extend(ids)

    def fork(self) -> TransformersSession:
        twin = TransformersSession(self._target, self._arena.capacity - 64)
        self._arena.copy_slot(self._slot_index, twin._slot_index)
        twin._ids, twin._first = list(self._ids), dict(self._first)
        return twin

    def close(self) -> None:
        if self._slot is not None:
            self._arena.give_back(self._slot)
            self._slot = None

    @property
    def _slot_index(self) -> int:
        if self._slot is None:
            raise RuntimeError("this session is closed")
        return self._slot

    def _pass(
        self,
        ids: Sequence[int] | Ints,
        positions: NDArray[Any],
        among: NDArray[np.bool_] | None,
        rows: int,
    ) -> torch.Tensor:
        arena, slot = self._arena, self._slot_index
        arena.reserve(self.length + len(ids))
        self._make_room(len(ids))
        offsets = {window: self.length - first for window, first in self._first.items()}
        geometry = PassGeometry(positions, among, offsets, arena.dtype, arena.device)
        logits: torch.Tensor = self._target.forward(ids, PassCache(arena, slot, offsets), geometry, rows)
        return logits

    def _make_room(self, rows: int) -> None:
        """Shift windowed buffers that the next pass would overrun, keeping what the window still reaches."""
        for window, first in self._first.items():
            held = self.length - first
            if window is None or held + rows <= self._arena.rows_of(window):
                continue
            kept = min(window - 1, held)
            source = torch.arange(held - kept, held, device=self._arena.device)
            self._arena.move_rows(self._slot_index, window, 0, source)
            self._first[window] = self.length - kept


def _with_root(among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Prepend the root, which every node sees: bool[n, n] -> bool[n + 1, n + 1]."""
    n = len(among)
    sees = np.zeros((n + 1, n + 1), dtype=np.bool_)
    sees[:, 0] = True
    sees[1:, 1:] = among
    return sees
