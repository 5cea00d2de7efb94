"""Finds the models of drafters that have one: loads them by name, or derives them from the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftwood.api.learned import learned, planner_of
from draftwood.api.loaded_models import LoadedModels, allowed
from draftwood.api.target import target_of
from draftwood.contracts import Drafter, Target
from draftwood.decoding.cascade import CascadeDrafter
from draftwood.drafters.draft_model.drafter import DraftModelDrafter
from draftwood.drafters.load import load_inner
from draftwood.errors import CapabilityError, VocabularyError
from draftwood.planning.load import DEFAULT


def _load(name: str) -> tuple[Any, Any]:
    from draftwood.models import load

    return load(name)


LOADED = LoadedModels(_load, allowed)
"""What `DraftModels.named` has loaded in this process."""


class DraftModels:
    """The models that drafters of one target may draft by.

    Parameters
    ----------
    target, model
        What is drafted for, and the model of transformers behind it, if there is one.
    tokenizer
        Its tokenizer; None: vocabularies are not compared.
    """

    def __init__(self, target: Target, model: Any, tokenizer: Any = None) -> None:
        self.target, self.model, self.tokenizer = target, model, tokenizer

    def named(self, name: str) -> Target:
        """Return a model by its name, as a target with a cache of its own; it stays loaded for later calls."""
        model, tokenizer = LOADED.get(name)
        draft = target_of(model, now=True)
        self._compare(name, tokenizer)
        return draft

    def cascade(self, drafter: DraftModelDrafter) -> CascadeDrafter:
        """Return a drafter that drafts by its model with drafters of its own, which have their models too.

        What the model's planner learns is kept with the model. Raises what `draftwood.load` and the inner
        drafters raise.
        """
        inner = load_inner(drafter.drafters)
        target = self.named(drafter.model)
        model, tokenizer = LOADED.get(drafter.model)
        return CascadeDrafter(
            drafters=with_models(inner, DraftModels(target, model, tokenizer)), target=target,
            length=drafter.length, p_min=drafter.p_min, model=drafter.model,
            planner=planner_of(DEFAULT, learned(model), tokenizer),
        )  # fmt: skip

    def _compare(self, name: str, tokenizer: Any) -> None:
        if self.tokenizer is None or not hasattr(self.tokenizer, "get_vocab"):
            return
        mine, theirs = self.tokenizer.get_vocab(), tokenizer.get_vocab()
        if mine != theirs:
            differing = [token for token, number in mine.items() if theirs.get(token) != number]
            raise VocabularyError(
                f"the draft model {name} has another vocabulary ({len(differing)} tokens differ, as "
                f"{differing[:3]})"
            )

    def early_exit(self, layers: str) -> Target:
        """Return some of the target's own layers, on its cache; raises what `self_draft.early_exit` raises."""
        self._only_transformers("early-exit")
        from draftwood.engines.transformers.self_draft import early_exit

        return early_exit(self.target, layers)

    def quantized_self(self, bits: int) -> Target:
        """Return the target's own weights in so many bits, on its cache."""
        self._only_transformers("quantized-self")
        from draftwood.engines.transformers.self_draft import quantized_self

        return quantized_self(self.target, self.model, bits)

    def _only_transformers(self, name: str) -> None:
        if not type(self.target).__module__.startswith("draftwood.engines.transformers"):
            raise CapabilityError(f"{name} works on models of transformers only: name a draft model instead")


def with_models(drafters: Sequence[Drafter], models: DraftModels) -> tuple[Drafter, ...]:
    """Return the drafters, those that have a model with theirs; raises what finding it raises."""
    every: Sequence[Any] = drafters
    return tuple(d.with_models(models) if hasattr(d, "with_models") else d for d in every)
