"""Finds out whether a trained exit fits a target, and makes it ready to draft on the target's own cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Capabilities
from draftwood.engines.reduced_scores import ReducedScores
from draftwood.engines.trained import once, refuse_other_model, warn_of_other_weights
from draftwood.engines.transformers.exit.network import ExitNetwork
from draftwood.engines.transformers.exit.weights import ExitWeights, read_exit
from draftwood.engines.transformers.self_draft import decoder_of
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.engines.transformers.trained_files import embedding_fingerprint
from draftwood.errors import CapabilityError


class ExitTarget:
    """The first layers of a target and an exit behind them, on the target's sessions (`GrowingTarget.grow`).

    Parameters
    ----------
    part
        The target with these layers alone.
    ids
        The token of each place in the exit's vocabulary, int32[v].
    nbytes
        Of the exit's weights.
    """

    def __init__(self, part: TransformersTarget, ids: NDArray[np.int32], nbytes: int) -> None:
        self._part, self._ids, self.weight_bytes = part, ids, nbytes
        self.lock = part.lock
        self.settle = part.settle

    @property
    def capabilities(self) -> Capabilities:
        """The target's."""
        return self._part.capabilities

    def grow(self, requests: Sequence[tuple[Any, Sequence[int], Sequence[int]]]) -> list[ReducedScores]:
        """As in the contract (`GrowingTarget`)."""
        return [ReducedScores(scores, self._ids) for scores in self._part.grow(requests)]


def exit_of(target: Any, path: Path) -> ExitTarget:
    """Return the exit in this file, ready to draft for a target; read once per target and file.

    Raises
    ------
    CapabilityError
        For targets whose passes draftwood does not run itself, and for an exit that was made for another model.
    ModelError
        For a file that is no exit.
    """
    decoder_of(target)
    return once(target, path, lambda: fitted(target, read_exit(path), str(path)))


def fitted(target: TransformersTarget, weights: ExitWeights, name: str = "this exit") -> ExitTarget:
    """Return an exit for a target; raises `CapabilityError` where it was made for another model."""
    decoder, shape = decoder_of(target), weights.shape
    embedding, rows = target.token_tables()
    facts: Sequence[tuple[str, int, int]] = (
        ("hidden states of width", shape.width, embedding.shape[1]),
        ("a vocabulary of", shape.target_vocab, embedding.shape[0]),
        ("layers, in number", shape.target_layers, target.n_layers),
    )
    refuse_other_model(name, "train-exit", facts)
    if not 0 < shape.layers < target.n_layers:
        raise CapabilityError(f"{name} lies behind {shape.layers} layers of {target.n_layers}: train it again")
    if rows is None:
        raise CapabilityError(f"{name} scores tokens by the model's own weights, which were released: keep them")
    warn_of_other_weights(name, weights.target, embedding_fingerprint(embedding))
    network = ExitNetwork(weights, rows)
    part = target.with_decoder(decoder.leaving(shape.layers, network))
    return ExitTarget(part, weights.ids().numpy().astype(np.int32), network.nbytes)
