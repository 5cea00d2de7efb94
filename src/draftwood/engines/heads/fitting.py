"""Whether a head fits a model, whatever engine runs both, and the heads that come with draftwood."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Target
from draftwood.engines.files.formats import GROUP
from draftwood.engines.heads.weights import HeadWeights, read_head
from draftwood.engines.per_model import once
from draftwood.errors import CapabilityError, UsageError
from draftwood.files.paths import named

log = logging.getLogger("draftwood")

Head = TypeVar("Head")

_SHIPPED = Path(__file__).with_name("shipped")


def head_in(file: str | Path, target: Any, fit: Callable[[Any, HeadWeights, str], Head]) -> Head:
    """Return the head in a file, ready to draft for a target; read once per target and state of the file.

    Without a file, the one that comes with draftwood for the model; `UsageError` where none does.
    ``fit(target, weights, name)`` is the engine's, whose errors are raised, and those of `read_head`.
    """
    path = named(file) if file else shipped(target.fingerprint)
    if path is None:
        raise UsageError(
            "no head comes with draftwood for this model: make one with draftwood train head, and write "
            "head:file=FILE"
        )
    place = path / "model.safetensors" if path.is_dir() else path
    try:
        state = place.stat()
    except OSError:
        return fit(target, read_head(place), str(path))  # which says that there is none
    origin = (state.st_size, state.st_mtime_ns)
    return once(target, ("head", place.resolve()), origin, lambda: fit(target, read_head(place), str(path)))


def shipped(fingerprint: str) -> Path | None:
    """Return the head that comes with draftwood for the model with this fingerprint, if there is one."""
    return next(_SHIPPED.glob(f"*-{fingerprint}.safetensors"), None)


def usual(layers: int) -> tuple[int, ...]:
    """Return the layers whose input EAGLE-3 reads: the third, one in the middle, the third from the end."""
    return tuple(sorted({min(2, layers - 1), layers // 2, max(0, layers - 3)}))


def check_fit(name: str, weights: HeadWeights, target: Target, width: int) -> tuple[int, ...]:
    """Return the layers whose states a head reads of a target, which are ``width`` wide.

    Raises `CapabilityError` for another model's head; the log says where it was trained for other weights.
    """
    shape, can = weights.shape, target.capabilities
    count = max(can.hidden)
    for what, its, ours in (
        ("width", shape.width, width),
        ("vocabulary", shape.target_vocab, can.vocab_size),
        ("layers", shape.target_layers or count, count),
    ):
        if its != ours:
            raise CapabilityError(
                f"{name} was made for another model ({what}: {its}, here {ours}): train one for this model "
                "with draftwood train head"
            )
    tensors = weights.tensors
    for part in (
        shape.width,
        *(len(tensors[f"midlayer.{one}_proj.weight"]) for one in ("self_attn.q", "mlp.gate")),
    ):
        if part % GROUP:
            raise CapabilityError(
                f"heads draft whose sizes are multiples of {GROUP}, and one of {name} is {part}: leave it out"
            )
    layers = shape.layers or usual(count)
    if missing := set(layers) - set(can.hidden):
        raise CapabilityError(f"{name} reads layers {sorted(missing)}, which this model does not show")
    if tensors["fc.weight"].shape[1] != len(layers) * width:
        raise CapabilityError(f"{name} does not read {len(layers)} layers: its config.json must name them")
    if weights.target and weights.target != target.fingerprint:
        log.warning("%s was trained for other weights of this shape: fewer of its drafts will be right", name)
    return layers


def fingerprint_rows(count: int) -> NDArray[np.int64]:
    """Return which 64 rows of an embedding of so many make its fingerprint: `torch.linspace` in float32."""
    places, last = np.arange(64, dtype=np.float32), np.float32(count - 1)
    step = last / np.float32(63)
    return np.where(places < 32, step * places, last - step * (np.float32(63) - places)).astype(np.int64)


def fingerprint_of(rows: NDArray[np.int16] | NDArray[np.uint16]) -> str:
    """Return 16 hexadecimal digits that tell models of one shape apart: of the SHA-256 of ``rows``, the bits of
    `fingerprint_rows` of the embedding in bfloat16."""
    return hashlib.sha256(rows.tobytes()).hexdigest()[:16]
