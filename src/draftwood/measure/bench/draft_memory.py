"""What drafters with models take in memory: weights and caches that are not the target's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from draftwood.contracts import Drafter
from draftwood.decoding.sequence import ActiveSequence


def memory_of(drafters: Sequence[Drafter], sequences: Sequence[ActiveSequence]) -> tuple[int | None, int | None]:
    """Return bytes of weights, a model that several drafters share counted once, and bytes of the caches of these
    texts; None where no drafter has a model, or one does not tell."""
    models: list[Any] = [model for drafter in drafters for model in getattr(drafter, "models", ())]
    weights = {id(model.target): model.weight_bytes for model in models}
    caches = [cache for sequence in sequences for cache in sequence.draft_caches()]
    return _sum(weights.values()), _sum(caches)


def _sum(every: Iterable[int | None]) -> int | None:
    found = list(every)
    known = [each for each in found if each is not None]
    return sum(known) if known and len(known) == len(found) else None
