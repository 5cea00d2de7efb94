"""A model's block for further tokens (MTP) in plain numpy, one token at a time, with the engine's bits."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from tests.oracles.cpu_arithmetic import Floats
from tests.oracles.cpu_pass import Layer, Pass, norm


class NextRow(NamedTuple):
    """What the block says after a token."""

    state: Floats  # [width], the state of the next pair
    scores: Floats  # [vocabulary], of the token after this one


def read(model: Pass, state: Floats, token: int, kept: list[Any]) -> NextRow:
    """Read a pair: the state [width] at a token (the model's, after its last norm) and the token that follows.

    ``x = eh_proj @ (norm(embedding of the token), norm(state))`` goes through the layer after the model's own,
    whose cache is ``kept``. The norm of what comes out is the state of the next pair, and scores the token after
    this one.
    """
    shape = model.shape
    alone = copy(model)
    sizes = (replace(shape.attention, source=0),)
    blocks = ((shape.family.mixers[0], shape.blocks[-1][1]),)
    alone.shape = replace(shape, blocks=blocks, sizes=sizes, windows=(0,), turning=(True,))
    layer = Layer(alone, 0)
    layer._start = f"blk.{shape.layers}."
    with np.errstate(all="ignore"):
        halves = layer.norm("nextn.enorm", model.embedding(token)), layer.norm("nextn.hnorm", state)
        x = layer.run(layer.product("nextn.eh_proj", np.concatenate(halves)), kept)
        weight = layer.vector("nextn.shared_head_norm.weight")
        last = model.vector(f"{shape.family.last_norm}.weight") if weight is None else weight
        found = norm(x, last, shape.epsilon)
        return NextRow(found, model.scores(found))
