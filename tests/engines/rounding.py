"""How far two right ways to compute the same scores may lie apart: from the arithmetic, not from one machine.

A float32 sum depends on its order, and kernels choose theirs by processor. The difference between the model's own
float32 and float64 passes shows how large the effect is. Another correct kernel is off by as much again, and the
largest of thousands of scores by a few times that. So tolerances are about 16 times the model's own error; a row
that sees one wrong token is off by a thousand times that error. `test_rounding.py` checks that the tolerances are
at least 8 times the error on the machine it runs on.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

MARGIN = 16

ATTENTION = 2e-4
"""Share of the largest score, for the tiny models of `tests.engines.tiny`: they are off by 1e-5 of it."""
RECURRENT = 8e-4
"""The same where states are carried: a scan multiplies what it rounds."""

TOLERANCE = 12 * ATTENTION
"""For scores of `tests.engines.tiny`, which reach 12."""


def own_rounding(model: Any, seed: int = 0, tokens: int = 64) -> float:
    """Largest difference of a model's float32 and float64 scores of a text, as a share of the largest score."""
    vocab = model.get_input_embeddings().weight.shape[0]
    ids = torch.from_numpy(np.random.default_rng(seed).integers(0, vocab, tokens))[None]
    with torch.no_grad():
        single, double = model(ids).logits, copy.deepcopy(model).double()(ids).logits
    return float((single.double() - double).abs().max() / double.abs().max())
