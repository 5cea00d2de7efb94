"""A GGUF file or a folder as a target: our own pass over its weights, exact to the last bit."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from draftwood.contracts import Capabilities, ModelFacts, StoredForm, Target, Watch
from draftwood.engines.committed import check_room, locked
from draftwood.engines.cpu.code.cells import PAGE
from draftwood.engines.cpu.code.instructions import Instructions
from draftwood.engines.cpu.code.records import WIDEST
from draftwood.engines.cpu.model import CpuModel, pass_times
from draftwood.engines.cpu.passes import check_ids
from draftwood.engines.cpu.phases import Without
from draftwood.engines.cpu.session import CpuSession, Grown, SavedPages, groups, grow
from draftwood.engines.cpu.weights import Report
from draftwood.engines.files.formats import FORMATS
from draftwood.engines.files.gguf_file import GgufFile
from draftwood.engines.files.gguf_types import bfloat16_bits
from draftwood.engines.files.hub_model import HubModel
from draftwood.engines.heads.fitting import fingerprint_of, fingerprint_rows, head_in
from draftwood.engines.lent_scores import RowScores
from draftwood.engines.per_model import once
from draftwood.engines.rounding import EXACT
from draftwood.engines.self_draft import read_layers
from draftwood.errors import CapabilityError, UsageError
from draftwood.local.findings import Setting
from draftwood.tree import TokenTree

Request = tuple[CpuSession, int, TokenTree]
_WITH_STATES = 64
"""Rows of a pass with states, of which each node keeps some memory: 0.7 MB in a model of 0.8B, 3.4 MB in 27B."""


class CpuTarget(Target):
    """A model that scores token trees on the processor. Every row has the bits that it has alone.

    ``source`` is a GGUF file, or the first of several; or a folder that transformers reads, with weights of
    safetensors; or what was opened of these already (``model.weights.file`` of another target). ``threads`` None:
    one per core of this process. ``instructions`` None: the fastest set of this processor; all give the same bits.
    ``report`` and ``becomes`` are as of `Weights`, whose errors are raised too. ``beside`` is called while other
    threads pack the weights.
    """

    engine = "cpu"
    exact = True

    def __init__(
        self, source: str | os.PathLike[str] | GgufFile | HubModel, *, threads: int | None = None,
        instructions: Instructions | None = None, report: Report | None = None, becomes: str | None = None,
        beside: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        place = source if isinstance(source, GgufFile | HubModel) else Path(source)
        self.model = CpuModel(
            place, threads=threads, instructions=instructions, report=report, becomes=becomes, beside=beside
        )
        self.lock = self.model.lock
        self.tokens_read = 0  # of all prompts so far, for progress displays
        shape = self.model.weights.shape
        matrices = [one for layer in self.model.weights.matrices for one in layer.values()]
        others = sum(one.outputs * one.inputs * (shape.used if one.expert_bytes else 1) for one in matrices)
        self.capabilities = Capabilities(
            shape.vocabulary, shape.max_positions, batch=True, hidden=tuple(range(shape.layers + 1)),
            max_pass=_WITH_STATES if shape.states.heads else WIDEST, grows=True,
            row_cost=shape.vocabulary * shape.width / max(1, others),
        )  # fmt: skip

    @cached_property
    def generation_config(self) -> SimpleNamespace:
        """The model's own settings of requests, as ``generation_config`` of a model of transformers has them."""
        file = self.model.weights.file
        return SimpleNamespace(**file.defaults | {"eos_token_id": sorted(file.end_ids)})

    @cached_property
    def fingerprint(self) -> str:
        """The same as of the model of transformers made of its file; see `Target.fingerprint`."""
        weights = self.model.weights
        rows = fingerprint_rows(weights.shape.vocabulary)
        return fingerprint_of(bfloat16_bits(weights.floats(weights.embedding, rows)))

    @property
    def setting(self) -> Setting:
        """What the cost of its passes depends on."""
        model = self.model
        formats = f"{model.weights.kind} {model.instructions.name}{EXACT}"
        return Setting(str(model.weights.path), formats, model.threads)

    @property
    def facts(self) -> ModelFacts:
        """As of `Target.facts`; ``kind`` is the file's, from which the weights in memory may be made."""
        file, kinds = self.model.weights.file, Counter[str]()
        for tensor in file.tensors.values():
            kinds[tensor.kind] += prod(tensor.shape)
        family = file.metadata.get("general.architecture")
        return ModelFacts(
            None if family is None else str(family), kinds.total(), max(kinds, key=kinds.__getitem__)
        )

    @locked
    def pass_times(self) -> dict[int, float]:
        """Return the seconds of passes over a few tokens, by their number; measured once per model and machine."""
        return pass_times(self.model)

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that a pass reads; of mixtures, those of all experts."""
        return self.model.weights.nbytes

    def early_exit(self, layers: str = "") -> CpuPart:
        """Return what runs only these layers, on this target's sessions, for `grow`; see `Target.early_exit`.

        Keys and values of the committed text are those of the whole model.
        """
        shape = self.model.weights.shape
        chosen = read_layers(layers, shape.layers)
        for layer in chosen:
            if (source := shape.sizes[layer].source) not in chosen:
                raise UsageError(f"early-exit: layer {layer} reads the keys of layer {source}: add it to layers")
        return once(self, chosen, self.model, lambda: CpuPart(self.model, chosen, self.capabilities))

    def quantized_self(self) -> CpuTarget:
        """Return a target of the same weights in 4 bits; `CapabilityError` if they are in few bits already."""
        weights = self.model.weights
        if (kind := weights.kind) in FORMATS:
            raise CapabilityError(
                f"quantized-self brings nothing here, the target's weights are {kind} already: leave it out"
            )

        def made() -> CpuTarget:
            weights.file.check_unchanged()  # it is read once more
            return CpuTarget(weights.file, threads=self.model.threads, becomes="int4")

        return once(self, "int4", None, made)

    def head(self, file: str = "") -> Any:
        """As of `Target.head`."""
        from draftwood.engines.cpu.head.target import fitted

        return head_in(file, self, fitted)

    def mtp(self) -> Any:
        """As of `Target.mtp`."""
        if self.model.weights.next_layer is None:
            return super().mtp()
        from draftwood.engines.cpu.head.target import next_head

        return once(self, "mtp", self.model, lambda: next_head(self))

    @locked
    def open(
        self, prompts: Sequence[Sequence[int]], *, reserve: int = 0, watch: Sequence[Watch] | None = None
    ) -> list[tuple[CpuSession, RowScores]]:
        del reserve  # pages come as they are written
        sessions = [CpuSession(self.model) for _ in prompts]
        return list(zip(sessions, self.extend(list(zip(sessions, prompts, strict=True)), watch), strict=True))

    @locked
    def save(self, session: CpuSession) -> SavedPages | None:
        return SavedPages(session) if session.length else None

    @locked
    def resume(self, prefix: SavedPages, length: int, *, reserve: int = 0) -> CpuSession:
        """As in `draftwood.contracts.Target`; scores after it are the same to the last bit."""
        del reserve
        return prefix.resumed(self.model, length)

    def stored_form(self) -> StoredForm | None:
        return self.model.stored_form()

    def restored(self, ids: Sequence[int], pages: Sequence[Any], state: Any) -> SavedPages:
        rest, size = self.model.restored_rest(len(ids), state), self.model.page_bytes
        if len(ids) != len(pages) * PAGE or any(page.nbytes != size for page in pages):
            raise UsageError(
                f"{len(ids)} tokens are stored in whole pages of {PAGE}, {size} bytes each: give these"
            )
        return SavedPages(CpuSession(self.model, [page.view(np.int16) for page in pages], ids, rest))

    @locked
    def extend(
        self, texts: Sequence[tuple[CpuSession, Sequence[int]]], watch: Sequence[Watch] | None = None
    ) -> list[RowScores]:
        for session, ids in texts:
            session.begin(self.model)
            check_ids(ids, self.capabilities.vocab_size)
            check_room(session.length, ids, self.capabilities.max_positions)
        return [self._read(*text, None if watch is None else watch[i]) for i, text in enumerate(texts)]

    def _read(self, session: CpuSession, ids: Sequence[int], watch: Watch | None) -> RowScores:
        """Read more of one text; prompts gain nothing by sharing a pass."""
        tokens, last = np.asarray(ids, dtype=np.int32), None
        layers = () if watch is None or watch.show_hidden is None else watch.hidden
        start, end = 0, session.length + len(tokens)
        while start < len(tokens):
            first = session.length
            most = min(self.model.program.most_rows(end), session.stop(end) - first)
            part = tokens[start : start + most]
            wanted = [] if watch is None else watch.among(first, len(part)).tolist()
            start += len(part)
            is_last = start == len(tokens)
            rows = wanted if not is_last or (wanted and wanted[-1] == len(part) - 1) else [*wanted, len(part) - 1]
            scores, choices = self.model.run([session.rows(part, scored=rows, is_text=True)], layers)
            session.committed(part.tolist())
            states = self.model.states(layers, slice(0, len(part)))
            views = [scores[: len(wanted)], scores[len(rows) - 1 : len(rows)]]
            shown, last = self.model.lent.add(views, self.model, [choices[: len(wanted)], choices[-1:]])
            if watch is not None and wanted:
                watch.show(first + np.asarray(wanted), shown)
            if watch is not None and watch.show_hidden is not None and layers:
                watch.show_hidden(first, states)
            self.tokens_read += len(part)
        assert last is not None
        return last

    @locked
    def score(self, requests: Sequence[Request]) -> list[RowScores]:
        """One pass over the roots and trees of all requests; several where they have more rows than one takes."""
        if any(len(tree) >= WIDEST for _, _, tree in requests):
            raise CapabilityError(f"this target scores trees of at most {WIDEST - 1} tokens: cut the draft")
        found: list[RowScores] = []
        for group in groups(requests, lambda request: 1 + len(request[2])):
            found += self._one_pass(group)
        return found

    @locked
    def grow(self, requests: Sequence[Grown]) -> list[RowScores]:
        return grow(self.model, requests)

    @staticmethod
    def settle(session: CpuSession, path: Sequence[int]) -> None:
        session.settle(path)

    def _one_pass(self, requests: Sequence[Request]) -> list[RowScores]:
        texts = []
        for session, root, tree in requests:
            session.begin(self.model)
            base, ways = session.length, None
            if not tree.is_chain:
                ways = [[base]]
                for cell, parent in enumerate(tree.parents.tolist(), base + 1):
                    ways.append([*ways[1 + parent], cell])
            texts.append(session.rows([root, *tree.tokens.tolist()], ways))
        found = self.model.score(texts, [session.hidden for session, _, _ in requests])
        for session, root, tree in requests:
            session.scored(root, tree)
        return found


class CpuPart:
    """Some layers of a target, and its norm and scores after them, on the target's sessions.

    What it has read is never committed: the layers that it leaves out have made no keys and values of it.
    """

    weight_bytes = 0

    def __init__(self, model: CpuModel, layers: tuple[int, ...], capabilities: Capabilities) -> None:
        self._model, self.capabilities, self.lock = model, capabilities, model.lock
        self._without = tuple(Without(i) for i in range(model.weights.shape.layers) if i not in layers)

    @locked
    def grow(self, requests: Sequence[Grown]) -> list[RowScores]:
        return grow(self._model, requests, self._without)
