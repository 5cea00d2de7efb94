"""Passes of fixed shapes, so that a GPU can replay them as one graph instead of launching kernel after kernel.

A narrow pass on a GPU is bound by launches. A captured graph starts at once, but its shapes and addresses are
fixed: a pass is padded to the next of a few widths, keys are masked instead of sliced, and inputs keep their
addresses. Source: CUDA graphs in torch, pytorch.org/docs/stable/notes/cuda.html#cuda-graphs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from draftwood.engines.transformers.cache import Arena
from draftwood.engines.transformers.lean import LeanDecoder, States
from draftwood.engines.transformers.pass_rows import PassRows

log = logging.getLogger("draftwood")

WIDTHS = (1, 2, 4, 8, 16, 32, 64)  # rows of a pass; wider ones run as they are


class StaticPasses:
    """The passes over one session at a time, one per width and slot, captured when first needed and made again
    when the arena's buffers are reallocated. The rotary embedding of ``decoder`` must not change with the text.
    Without ``capture`` the same shapes run without a graph (tests on a CPU)."""

    def __init__(self, decoder: LeanDecoder, arena: Arena, *, capture: bool = True) -> None:
        self._decoder, self._arena, self._capture = decoder, arena, capture
        self._works = True
        self._made: dict[tuple[int, int, tuple[int, ...]], StaticPass] = {}
        self._generation = -1

    def run(self, pass_rows: PassRows, tokens: Tensor, hidden: States) -> Tensor | None:
        """Return the logits [rows, vocab] of a pass over one text, or None where no graph can run it.

        The states [rows, width] of the layers that are keys of ``hidden`` are put there.
        """
        rows = pass_rows.rows
        if not self._works or rows > WIDTHS[-1] or any(buffer is None for buffer in self._arena.keys):
            return None  # the first pass of all makes the buffers
        width = next(w for w in WIDTHS if w >= rows)
        if any(offset + width > self._arena.rows_of(window) for window, offset in pass_rows.offsets.items()):
            return None
        self._arena.wrote(pass_rows.slot, width + max(pass_rows.offsets.values()))
        if self._arena.generation != self._generation:
            self._made.clear()
            self._generation = self._arena.generation
        key = (width, pass_rows.slot, tuple(sorted(hidden)))
        if key not in self._made:
            self._made[key] = StaticPass(self._decoder, self._arena, *key, tokens.device)
        try:
            logits, states = self._made[key].run(pass_rows, tokens, capture=self._capture)
            # Copies: the next pass of this width, perhaps another thread's, writes to the same place.
            hidden |= {layer: x[:rows].clone() for layer, x in states.items() if x is not None}
            return logits[:rows].clone()
        except RuntimeError as error:  # what cannot be captured runs as it is
            log.warning("CUDA graphs are off for this model: %s", error)
            self._works = False
            return None


class StaticPass:
    """A pass of one width over one slot, which keeps the states of some layers."""

    def __init__(
        self, decoder: LeanDecoder, arena: Arena, width: int, slot: int, layers: tuple[int, ...],
        device: torch.device,
    ) -> None:  # fmt: skip
        self._decoder, self._arena, self._slot, self._width = decoder, arena, slot, width
        self._layers = layers
        self._ids = torch.zeros(width, dtype=torch.int64, device=device)
        self._positions = torch.zeros(width, dtype=torch.int64, device=device)
        windows = set(arena.windows)
        self._places = {w: torch.zeros(width, dtype=torch.int64, device=device) for w in windows}
        self._masks = {w: torch.zeros((width, arena.rows_of(w)), device=device) for w in windows}
        self._captured: tuple[Any, tuple[Tensor, States]] | None = None

    def run(self, pass_rows: PassRows, tokens: Tensor, *, capture: bool) -> tuple[Tensor, States]:
        """Fill in the rows and run; returns logits [width, vocab] and hidden states [width, width of the model].

        The first ``rows`` of them mean something.
        """
        rows = pass_rows.rows
        self._ids[:rows] = tokens
        self._ids[rows:] = tokens[0]  # rows that mean nothing must not be of a token that spoils the others
        self._positions[:rows] = torch.from_numpy(pass_rows.positions).to(self._ids.device)
        for window, mask in self._masks.items():
            offset = pass_rows.offsets[window]
            self._places[window].copy_(torch.arange(offset, offset + self._width))
            mask.copy_(torch.from_numpy(pass_rows.padded_mask(window, *mask.shape)))
        if not capture:
            return self._pass()
        if self._captured is None:
            self._captured = self._capture()
        graph, found = self._captured
        graph.replay()
        return found

    def _capture(self) -> tuple[Any, tuple[Tensor, States]]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # what libraries allocate at first use must not be part of the graph
            for _ in range(3):
                self._pass()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = self._pass()
        return graph, found

    def _pass(self) -> tuple[Tensor, States]:
        attend: Callable[..., Tensor] = partial(self._through, self._decoder.scaling)
        hidden: States = dict.fromkeys(self._layers)
        return self._decoder(self._ids, self._positions, attend, None, hidden), hidden

    def _through(self, scaling: float, layer: int, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Store and attend over the whole slot; shapes as in `Pass.through`."""
        window = self._arena.windows[layer]
        places, mask = self._places[window], self._masks[window]
        held = []
        for buffer, fresh in zip(self._arena.buffers(layer, keys, values), (keys, values), strict=True):
            buffer[self._slot].index_copy_(1, places, fresh.transpose(0, 1))
            held.append(buffer[self._slot][:, None])
        rows, heads, dim = query.shape
        groups = heads // keys.shape[1]
        wide = query.transpose(0, 1).reshape(-1, groups, rows, dim)
        k, v = (t.expand(-1, groups, -1, -1) for t in held)
        out = scaled_dot_product_attention(wide, k, v, attn_mask=mask.to(query.dtype), scale=scaling)
        return out.reshape(heads, rows, -1).transpose(0, 1).flatten(1)
