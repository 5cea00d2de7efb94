"""Whether a head fits a model, whatever engine runs both, and the heads that come with draftwood."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from draftwood.engines.heads.weights import HeadShape, HeadWeights
from draftwood.engines.trained import refuse_other_model
from draftwood.errors import CapabilityError

_SHIPPED = Path(__file__).with_name("shipped")


def shipped(fingerprint: str) -> Path | None:
    """Return the head that comes with draftwood for the model with this fingerprint; None where there is none."""
    return next(_SHIPPED.glob(f"*-{fingerprint}.safetensors"), None)


def usual(layers: int) -> tuple[int, ...]:
    """Return the layers whose input EAGLE-3 reads: the third, one in the middle, the third from the end."""
    return tuple(sorted({min(2, layers - 1), layers // 2, max(0, layers - 3)}))


def check_model(name: str, shape: HeadShape, sizes: tuple[int, int, int]) -> None:
    """Raise `CapabilityError` where a head is for a model of another width, vocabulary, or number of layers."""
    width, vocabulary, layers = sizes
    facts = (
        ("hidden states of width", shape.width, width),
        ("a vocabulary of", shape.target_vocab, vocabulary),
        ("layers, in number", shape.target_layers or layers, layers),
    )
    refuse_other_model(name, "train-head", facts)


def check_layers(name: str, weights: HeadWeights, layers: Sequence[int], shown: Sequence[int]) -> None:
    """Raise `CapabilityError` where a head reads layers that the model does not show, or too many or few."""
    if missing := set(layers) - set(shown):
        raise CapabilityError(f"{name} reads layers {sorted(missing)}, which this model does not show")
    if weights.tensors["fc.weight"].shape[1] != len(layers) * weights.shape.width:
        raise CapabilityError(
            f"{name} reads another number of layers than {list(layers)}: its config.json names them"
        )
