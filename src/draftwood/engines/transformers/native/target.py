"""Any decoder-only model of transformers by its own forward pass and cache, text by text: for recurrent and hybrid
models, and those that bypass transformers' attention interface, which `TransformersTarget` cannot take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftwood.child_safe import ChildSafeLock
from draftwood.contracts import Capabilities, Watch
from draftwood.engines.transformers.families import max_positions, refuse_unsupported, row_cost, text_config
from draftwood.engines.transformers.native.passes import NativePasses
from draftwood.engines.transformers.native.session import NativeSession
from draftwood.engines.transformers.pack import WIDTHS
from draftwood.engines.transformers.scores import TorchScores
from draftwood.engines.transformers.shadow import ModelTarget
from draftwood.tree import TokenTree


class NativeTarget(ModelTarget):
    """A decoder-only model that scores chains by its own forward pass, on a shadow that shares its weights. Only a
    trial tells whether it is right (see `selftest`), since models differ in how they read several tokens after a
    state.

    ``step_by_step`` takes one token per pass and no drafts, and prompts in one pass, for models that read several
    tokens correctly only from an empty cache. ``chunk`` and ``packed`` as in `TransformersTarget`. Raises
    `UnsupportedModelError` for models that keep no cache.
    """

    def __init__(
        self, model: Any, *, step_by_step: bool = False, chunk: int = 1024, packed: bool = True
    ) -> None:  # fmt: skip
        refuse_unsupported(model)
        super().__init__(model)
        self._passes = passes = NativePasses(model, packed=packed)
        self.packing, self.device = passes.packing, passes.device
        self.lock = ChildSafeLock()
        self._piece = None if step_by_step else chunk
        self.capabilities = Capabilities(
            vocab_size=model.get_input_embeddings().weight.shape[0],
            max_positions=max_positions(text_config(model)),
            trees=False,
            rollback="none" if step_by_step else "snapshot" if passes.kept.stateful else "truncate",
            max_pass=1 if step_by_step else chunk,
            row_cost=row_cost(model),
            widths=WIDTHS if self.packing is not None else (),
        )

    def open(
        self, prompts: Sequence[Sequence[int]], *, reserve: int = 0, watch: Sequence[Watch] | None = None
    ) -> list[tuple[NativeSession, TorchScores]]:
        del reserve
        sessions = [NativeSession(self._passes, self.lock, self.capabilities, self._piece) for _ in prompts]
        return list(zip(sessions, self.extend(list(zip(sessions, prompts, strict=True)), watch), strict=True))

    def extend(
        self, texts: Sequence[tuple[NativeSession, Sequence[int]]], watch: Sequence[Watch] | None = None
    ) -> list[TorchScores]:
        return [session.read(ids, None if watch is None else watch[i]) for i, (session, ids) in enumerate(texts)]

    def score(self, requests: Sequence[tuple[NativeSession, int, TokenTree]]) -> list[TorchScores]:
        """One pass per request: these models' states cannot share one."""
        return [session.score(root, tree) for session, root, tree in requests]
