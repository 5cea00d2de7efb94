"""Drafter ``draft-model``: a smaller model proposes tokens, which the target checks.

Sources: Leviathan and others, "Fast Inference from Transformers via Speculative Decoding", arXiv 2211.17192; Chen
and others, "Accelerating Large Language Model Decoding with Speculative Sampling", arXiv 2302.01318. Trees grown
best first by the draft's own confidence: Li and others, "EAGLE-2", arXiv 2406.16858.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from draftwood.contracts import Floats, Needs, Noise, Target
from draftwood.drafters.base import BaseDrafter
from draftwood.drafters.draft_model.experience import PRIOR, QUANTIZED_PRIOR, experience_with
from draftwood.drafters.draft_model.growth import LOOKED_AT, SAMPLED
from draftwood.drafters.draft_model.reading import ChainReader, OwnReader, Reader, SharedReader
from draftwood.drafters.draft_model.session import ModelSession, draft_together
from draftwood.drafters.load import load_inner
from draftwood.errors import CapabilityError, UsageError
from draftwood.tree import TokenTree


@dataclass(frozen=True)
class DraftTarget:
    """A model that drafts.

    Attributes
    ----------
    target
        The model.
    vocab_size
        Ids from here on are not proposed, since the target lacks them; None: both have the same ids.
    weight_bytes
        Bytes of its weights, without what it shares with the target; None: not known.
    verifier
        The target that it drafts for, if known: the cost of its passes is counted in passes of this target.
    owner
        An object to keep in memory as long as this one: the transformers model whose weights ``target`` uses.
    """

    target: Any
    vocab_size: int | None = None
    weight_bytes: int | None = None
    verifier: Any = field(default=None, repr=False)
    owner: Any = field(default=None, repr=False, compare=False)


class DraftSources(ABC):
    """Where drafters find the models that they draft by; all raise what loading or making the model raises."""

    @abstractmethod
    def named(self, name: str) -> DraftTarget:
        """Return a model by its name, with a cache of its own."""

    @abstractmethod
    def given(self, found: DraftTarget) -> DraftTarget:
        """Return a model that the user gave as an object, with what is known of the target."""

    @abstractmethod
    def cascade(self, name: str, drafters: str, length: int, p_min: float) -> ModelBackedDrafter:
        """Return a drafter that drafts by the named model, which has these ``drafters`` of its own."""

    @abstractmethod
    def early_exit(self, layers: str) -> DraftTarget:
        """Return some of the target's own layers, on its cache."""

    @abstractmethod
    def quantized_self(self) -> DraftTarget:
        """Return the target's own weights in 4 bits."""

    @abstractmethod
    def head(self, file: str, known: DraftTarget | None = None, *, optional: bool = False) -> DraftTarget | None:
        """Return a head that was trained for the target; None for an ``optional`` one that cannot be had.

        One that is ``known`` is used on when its file has become unreadable.
        """

    @abstractmethod
    def mtp(self, *, optional: bool = False) -> DraftTarget | None:
        """Return the target's own block for further tokens; None for an ``optional`` one that it does not have."""


@dataclass(frozen=True)
class ModelBackedDrafter(BaseDrafter):
    """What drafters with a model have in common.

    Parameters
    ----------
    length
        Longest branch that it proposes.
    p_min
        Tokens that the model finds less probable are not proposed; 0: only what a pass costs (`Prices`) decides.
    target
        The model, a `Target` or a `DraftTarget`; None until it is known (`with_models`).
    """

    prior: ClassVar[Floats] = PRIOR
    session_kind: ClassVar[type[ModelSession]] = ModelSession
    batches: ClassVar[bool] = True

    length: int = 16
    p_min: float = 0.0
    target: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.check_range("length", 1, 64)
        self.check_range("p_min", 0, 1)

    @property
    def needs(self) -> Needs:
        return Needs(prices=True, base_tree=True)

    def with_models(self, models: DraftSources) -> ModelBackedDrafter | None:
        """Return the drafter with its model, which ``models`` finds.

        None where it is optional and there is none.
        """
        return self if self.found is None else self.bound(models.given(self.found))

    def bound(self, found: DraftTarget) -> Self:
        """Return a drafter that drafts by this model."""
        self.refuse_states(found.target)
        return self if self.target == found else replace(self, target=found)

    def refuse_states(self, target: Target) -> None:
        """Raise `CapabilityError` for a model that cannot take tokens back."""
        if target.capabilities.rollback != "truncate":
            raise CapabilityError(
                f"the draft model of {self.name!r} cannot take rejected tokens back: choose a model whose layers "
                "keep keys and values only"
            )

    def limited(self, vocab_size: int) -> Self:
        """Return a drafter that proposes no id from ``vocab_size`` on: the target lacks them."""
        found = self.found
        if found is None:
            return self
        known = found.target.capabilities.vocab_size if found.vocab_size is None else found.vocab_size
        return self if known <= vocab_size else replace(self, target=replace(found, vocab_size=vocab_size))

    @property
    def found(self) -> DraftTarget | None:
        """The model, if it is known."""
        known = self.target
        return known if known is None or isinstance(known, DraftTarget) else DraftTarget(known)

    @property
    def models(self) -> tuple[DraftTarget, ...]:
        """The models by which it drafts, as far as they are known."""
        return () if self.found is None else (self.found,)

    def open(self, prompt: Sequence[int], noise: Noise | None) -> ModelSession:
        if (found := self.found) is None:
            raise UsageError(f"{self.name!r} needs its model, which is loaded where the target is known")
        room = found.target.capabilities.max_positions
        if len(prompt) >= room:
            raise CapabilityError(
                f"the prompt has {len(prompt)} tokens for the draft model of {self.name!r}, which takes at most "
                f"{room}: it drafts nothing here"
            )
        return self.session_kind(
            prompt, noise, reader=self.reader(found, LOOKED_AT if noise is None else SAMPLED),
            experience=experience_with(found.target, found.verifier), depth=self.length, p_min=self.p_min,
            room=room, vocab_size=found.vocab_size,
        )  # fmt: skip

    def reader(self, found: DraftTarget, k: int) -> Reader:
        """Return the object that runs this model over one text, and takes the ``k`` best tokens of each row."""
        if self.needs.target_session:
            return SharedReader(found.target, k)
        return (OwnReader if found.target.capabilities.grows else ChainReader)(found.target, k)

    def draft_many(
        self, sessions: Sequence[Any], nodes: Sequence[int], lookahead_nodes: Sequence[int],
        accept_rates: Floats, base_trees: Sequence[TokenTree] | None = None,
    ) -> Sequence[TokenTree]:  # fmt: skip
        """As in the contract (`Drafter.draft_many`): the model's passes are shared, too."""
        return draft_together(sessions, nodes, accept_rates, base_trees)


@dataclass(frozen=True)
class DraftModelDrafter(ModelBackedDrafter):
    """Proposes what a smaller model would write (speculative decoding with a draft model).

    Parameters
    ----------
    model
        The smaller model: anything that ``--model`` takes, of the target's vocabulary.
    drafters
        Drafters for the smaller model itself, as `draftwood.drafters.load.load_inner` reads them: ``ngram``.
    """

    name: ClassVar[str] = "draft-model"

    model: str = ""
    drafters: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        load_inner(self.drafters)  # a wrong name is an error at once

    def with_models(self, models: DraftSources) -> ModelBackedDrafter:
        """Return the drafter with its model loaded, a cascade if that has drafters (`draftwood.drafters.cascade`).

        Raises what loading raises, `UsageError` without a name.
        """
        if not self.model:
            if self.found is None:
                raise UsageError("draft-model needs a model: write draft-model:model=NAME")
            return self.bound(models.given(self.found))
        if self.drafters:
            return models.cascade(self.model, self.drafters, self.length, self.p_min)
        return self.bound(models.named(self.model))


@dataclass(frozen=True)
class EarlyExitDrafter(ModelBackedDrafter):
    """Proposes what the target's first layers would write, on the target's own cache (self-speculation).

    Parameters
    ----------
    layers
        The layers that it runs: a number (the first so many) or ranges like ``0-9.20-29``; empty: the first half.
    """

    name: ClassVar[str] = "early-exit"

    layers: str = ""

    @property
    def needs(self) -> Needs:
        return Needs(prices=True, base_tree=True, target_session=True)

    def with_models(self, models: DraftSources) -> EarlyExitDrafter:
        """Return the drafter with those layers of the target; raises `CapabilityError` where it cannot be had."""
        return self.bound(models.early_exit(self.layers))


@dataclass(frozen=True)
class QuantizedSelfDrafter(ModelBackedDrafter):
    """Proposes what the target's own weights in 4 bits would write: on our own engine, on a cache of their own."""

    name: ClassVar[str] = "quantized-self"
    prior: ClassVar[Floats] = QUANTIZED_PRIOR

    def with_models(self, models: DraftSources) -> QuantizedSelfDrafter:
        """Return the drafter with its copy of the weights; raises `CapabilityError` where there is none."""
        return self.bound(models.quantized_self())
