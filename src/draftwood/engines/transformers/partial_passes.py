"""What parts of a model would have drafted in texts that the whole model has written, many rows in one pass.

A draft by some of the layers reads the keys and values that the whole model has left of the committed text, and
only those of the tokens drafted since are its own (`self_draft`). So a part need not read a text again: here the
rows of whole answers are computed together, each as if the committed text ended just before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cosine_similarity

from draftwood.engines.transformers.lean import Attend, Turning
from draftwood.engines.transformers.self_draft import decoder_of
from draftwood.engines.transformers.target import TransformersTarget

Own = list[tuple[Tensor, Tensor]]
"""Keys and values [rows, key-value heads, dim] that a part has made itself, one pair per token drafted."""

Matches = NDArray[np.bool_]
OnLayer = Callable[[int], None]


class _Text(NamedTuple):
    """One text: its rows among those of all texts, its first row's position, the model's keys and values."""

    rows: slice
    start: int
    keys: list[Tensor]  # per layer [tokens, key-value heads, dim]
    values: list[Tensor]


class PartialPasses:
    """Answers of a model, and what it left of them in each layer.

    A row stands for a token of an answer (the last of the prompt included) behind which a token of the model
    follows. Memory: keys and values of all tokens, and the hidden states of all rows, in every layer.

    Parameters
    ----------
    target
        The model, with a `decoder`.
    texts
        Pairs of prompt and answer, as token ids, none of them empty.

    Raises
    ------
    CapabilityError
        For targets whose passes draftwood does not run itself, layer by layer.
    """

    @torch.inference_mode()
    def __init__(self, target: TransformersTarget, texts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> None:
        self._decoder = decoder_of(target)
        self._windows, self._device = target.arena.windows, target.device
        self.n_layers = self._decoder.n_layers
        self.lengths = [len(answer) for _, answer in texts]  # rows of each text
        self._texts: list[_Text] = []
        states: list[list[Tensor]] = [[] for _ in range(self.n_layers + 1)]
        ends = np.cumsum([0, *self.lengths]).tolist()
        for (prompt, answer), (low, high) in zip(texts, pairwise(ends), strict=True):
            text, found = self._read([*prompt, *answer[:-1]], len(prompt) - 1, slice(low, high))
            self._texts.append(text)
            for all_texts, state in zip(states, found, strict=True):
                all_texts.append(state)
        self._states = [
            torch.cat(every) for every in states
        ]  # what goes into each layer, then what the last gives
        self._wanted = torch.tensor([t for _, answer in texts for t in answer], device=self._device)
        positions = [
            torch.arange(text.start, text.start + n) for text, n in zip(self._texts, self.lengths, strict=True)
        ]
        self._turning: Turning = self._decoder.begin(self._wanted, torch.cat(positions).to(self._device))[1]

    @property
    def rows(self) -> int:
        """Rows of all texts."""
        return len(self._wanted)

    @torch.inference_mode()
    def exit_matches(self, layers: int) -> Matches:
        """Return in which rows the first so many layers foretell the next token, bool[rows]."""
        return self._foretold(self._states[layers])

    @torch.inference_mode()
    def matches(self, layers: Sequence[int], depth: int = 1) -> Matches:
        """Return in which rows these layers foretell the next token as the d-th token drafted, bool[depth, rows].

        The d - 1 tokens drafted before are the text's. Rows that have no such tokens before them are False.
        """
        chosen = sorted(layers)
        if chosen == list(range(len(chosen))):  # what they see of drafted tokens is what the model itself leaves
            found = np.repeat(self.exit_matches(len(chosen))[None], depth, 0)
        else:
            drafted: list[dict[int, tuple[Tensor, Tensor]]] = []
            passes = []
            for _ in range(depth):
                x, own = self._states[0], {}
                for number in chosen:
                    x, own[number] = self._layer(number, x, [before[number] for before in drafted])
                drafted.append(own)
                passes.append(self._foretold(x))
            found = np.stack(passes)
        inside = np.concatenate([np.arange(n) for n in self.lengths])
        return found & (inside >= np.arange(depth)[:, None])

    @torch.inference_mode()
    def shortlist(self, on_layer: OnLayer = lambda _number: None) -> list[tuple[int, ...]]:
        """Return for each number of layers from 1 to all but one the layers that change the hidden states least.

        By dynamic programming: of the ways to run k of the first i layers, the one is kept whose states are most
        like the whole model's there, by the mean cosine. Source: Chen and others, "CLaSp: In-Context Layer Skip
        for Self-Speculative Decoding", arXiv 2505.24196. They search anew at every step, for its last token.
        """
        best: dict[int, tuple[Tensor, tuple[int, ...]]] = {0: (self._states[0], ())}  # by the number of layers run
        for number in range(self.n_layers):
            on_layer(number)
            whole = self._states[number + 1]
            ways: dict[int, list[tuple[Tensor, tuple[int, ...]]]] = {}
            for count, (x, layers) in best.items():
                ways.setdefault(count, []).append((x, layers))
                ways.setdefault(count + 1, []).append((self._layer(number, x, [])[0], (*layers, number)))
            best = {count: max(some, key=lambda way: _likeness(way[0], whole)) for count, some in ways.items()}
        return [best[count][1] for count in range(1, self.n_layers)]

    def _foretold(self, x: Tensor) -> Matches:
        found: Matches = (self._decoder.logits(x).argmax(-1) == self._wanted).cpu().numpy()
        return found

    def _read(self, ids: Sequence[int], start: int, rows: slice) -> tuple[_Text, list[Tensor]]:
        """Run the whole model over a text; returns it and the states of its rows, from position ``start`` on."""
        keys, values = list[Tensor](), list[Tensor]()

        def attend(number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys.append(k.clone())
            values.append(v.clone())
            return _attention(q, k, v, self._visible(number, 0, len(ids), 0), [], self._decoder.scaling)

        where = torch.arange(len(ids), device=self._device)
        x, turning = self._decoder.begin(torch.tensor(ids, device=self._device), where)
        states = [x[start:]]
        for number in range(self.n_layers):
            x = self._decoder.layer(number, x, turning, attend)
            states.append(x[start:].clone())
        return _Text(rows, start, keys, values), states

    def _layer(self, number: int, x: Tensor, before: Own) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run one layer over all rows, behind ``before``, its keys and values of tokens drafted so far; returns
        the states and its own keys and values."""
        made: list[tuple[Tensor, Tensor]] = []

        def attend(index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            made.append((k, v))
            parts = [self._attend(text, index, q, [*before, (k, v)]) for text in self._texts]
            return torch.cat(parts)

        step: Attend = attend
        return self._decoder.layer(number, x, self._turning, step), made[0]

    def _attend(self, text: _Text, index: int, q: Tensor, own: Own) -> Tensor:
        rows, keys = text.rows, text.keys[index]
        mine = [(k[rows], v[rows]) for k, v in own]
        # The latest pair belongs to a row itself, the one before it to the row before.
        mine = [(k.roll(back, 0), v.roll(back, 0)) for back, (k, v) in enumerate(reversed(mine))]
        visible = self._visible(index, text.start, rows.stop - rows.start, len(mine), len(keys))
        window = self._windows[index]
        near = mine if window is None else mine[:window]
        return _attention(q[rows], keys, text.values[index], visible, near, self._decoder.scaling)

    def _visible(self, index: int, start: int, rows: int, drafted: int, tokens: int | None = None) -> Tensor:
        """Which cached tokens rows see, bool[rows, tokens]: in the window, before the last ``drafted`` ones."""
        at = torch.arange(start, start + rows, device=self._device)[:, None]
        back = at - torch.arange(start + rows if tokens is None else tokens, device=self._device)
        window = self._windows[index]
        seen = back >= drafted
        return seen if window is None else seen & (back < window)


def _attention(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, own: Own, scaling: float) -> Tensor:
    """Attend with q [n, heads, dim] over k, v [tokens, key-value heads, dim], as far as ``visible`` bool[n,
    tokens], and over each row's own of every pair [n, key-value heads, dim]; returns [n, heads * dim]."""
    n, heads, dim = q.shape
    kv_heads = k.shape[1]
    grouped = q.view(n, kv_heads, heads // kv_heads, dim).float()
    products = torch.einsum("nhgd,thd->nhgt", grouped, k.float()).masked_fill_(~visible[:, None, None], -torch.inf)
    mine = [torch.einsum("nhgd,nhd->nhg", grouped, pair[0].float())[..., None] for pair in own]
    weights = (torch.cat([products, *mine], -1) * scaling).softmax(-1)
    out = torch.einsum("nhgt,thd->nhgd", weights[..., : len(k)], v.float())
    for place, pair in enumerate(own, len(k)):
        out += weights[..., place, None] * pair[1].float()[:, :, None]
    return out.reshape(n, heads * dim).to(q.dtype)


def _likeness(x: Tensor, whole: Tensor) -> float:
    return float(cosine_similarity(x.float(), whole.float(), dim=-1).mean())
