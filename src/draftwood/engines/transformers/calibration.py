"""How large the inputs of each linear layer are, which tells where an error of a weight matters.

An error of a weight changes a layer's output by as much as its input is large, and some inputs are a hundred times
larger than others. One pass over random tokens shows most of that: measured on smollm2 it serves quantising nearly
as well as text does, and needs no tokenizer. Weighting squared errors so is the diagonal of what GPTQ minimises
(Frantar et al., 2022).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from draftwood.engines.transformers.pack import Packing
from draftwood.engines.transformers.target import TransformersTarget

_TOKENS = 128


class Watching(Packing):
    """Makes products as they are, and sums the squares of their inputs; ``packed`` has packed copies of weights
    that were released, in the order of the products."""

    fills = False

    def __init__(self, packed: Sequence[Tensor] = ()) -> None:
        super().__init__()
        self._packed = packed
        self.squares: list[Tensor | None] = []
        """Per product in the order in which the pass was put together, float32[in]; None: it has not run."""

    def product(self, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> Callable[[Tensor], Tensor]:
        number = len(self.squares)
        self.squares.append(None)
        whole = [self._packed[number].to_dense()] if number < len(self._packed) else [w.detach() for w in weights]
        bias = self._bias(weights, biases)

        def run(x: Tensor) -> Tensor:
            squares = x.reshape(-1, x.shape[-1]).float().square().sum(0)
            before = self.squares[number]
            self.squares[number] = squares if before is None else before + squares
            y = torch.cat([linear(x, weight) for weight in whole], -1)
            return y if bias is None else y + bias

        return run


def input_squares(model: object, like: TransformersTarget, packed: Sequence[Tensor] = ()) -> list[Tensor | None]:
    """Return `Watching.squares` after one pass of ``model`` in the way of ``like``, a target of it."""
    watching = Watching(packed)
    target = TransformersTarget(model, trees=like.capabilities.trees, lean=like.is_lean, packing=watching)
    tokens = min(_TOKENS, like.capabilities.max_positions)
    ids = np.random.default_rng(0).integers(0, like.capabilities.vocab_size, tokens).tolist()
    ((session, _),) = target.open([ids])
    session.close()
    return watching.squares
