"""Drafter ``draft-model``: a smaller model proposes tokens, which the target checks.

Sources: Leviathan and others, "Fast Inference from Transformers via Speculative Decoding", arXiv 2211.17192; Chen
and others, "Accelerating Large Language Model Decoding with Speculative Sampling", arXiv 2302.01318. Trees grown
best first by the draft's own confidence: Li and others, "EAGLE-2", arXiv 2406.16858.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from draftwood.contracts import Floats, Needs, Noise, Target
from draftwood.drafters.base import BaseDrafter
from draftwood.drafters.draft_model.candidates import LOOKED_AT, SAMPLED
from draftwood.drafters.draft_model.evidence import PRIOR
from draftwood.drafters.draft_model.pass_time import PassTime
from draftwood.drafters.draft_model.reading import ChainReader, OwnReader, SharedReader
from draftwood.drafters.draft_model.session import ModelSession, draft_together
from draftwood.errors import CapabilityError, UsageError
from draftwood.tree import TokenTree


@dataclass(frozen=True)
class ModelBackedDrafter(BaseDrafter):
    """What drafters with a model have in common; ``with_models`` of a subclass finds the model.

    Parameters
    ----------
    length
        Longest branch that it proposes.
    p_min
        Tokens of which the model is less sure are not proposed; 0: the planner's prices alone decide.
    """

    prior: ClassVar[Floats] = PRIOR

    length: int = 16
    p_min: float = 0.0
    target: Any = field(default=None, repr=False)
    _pass_time: PassTime = field(default_factory=PassTime, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.check_range("length", 1, 64)
        self.check_range("p_min", 0, 1)

    @property
    def needs(self) -> Needs:
        return Needs(prices=True, base_tree=True)

    def bound(self, target: Target) -> Self:
        """Return a drafter that drafts by this model."""
        if target.capabilities.rollback != "truncate":
            raise CapabilityError(
                f"the draft model of {self.name!r} cannot take rejected tokens back: choose a model whose layers "
                "keep keys and values only"
            )
        return self if self.target is target else replace(self, target=target)

    def open(self, prompt: Sequence[int], noise: Noise | None) -> ModelSession:
        if self.target is None:
            raise UsageError(f"{self.name!r} needs its model, which is loaded where the target is known")
        room = self.target.capabilities.max_positions
        if len(prompt) >= room:
            raise CapabilityError(
                f"the prompt has {len(prompt)} tokens and the draft model of {self.name!r} takes at most {room}: "
                "it drafts nothing here"
            )
        kind = SharedReader if self.needs.target_session else OwnReader
        if kind is OwnReader and not self.target.capabilities.grows:
            kind = ChainReader
        reader = kind(self.target, LOOKED_AT if noise is None else SAMPLED)
        return ModelSession(
            prompt, noise, reader=reader, pass_time=self._pass_time, depth=self.length, p_min=self.p_min, room=room
        )

    def draft_many(
        self, sessions: Sequence[ModelSession], nodes: Sequence[int], lookahead_nodes: Sequence[int],
        accept_rates: Floats, base_trees: Sequence[TokenTree] | None = None,
    ) -> Sequence[TokenTree]:  # fmt: skip
        """As in the contract (`BatchDrafter`): the model's passes are shared, too."""
        return draft_together(sessions, nodes, accept_rates, base_trees)


@dataclass(frozen=True)
class DraftModelDrafter(ModelBackedDrafter):
    """Proposes what a smaller model would write (speculative decoding with a draft model).

    Parameters
    ----------
    model
        The smaller model: anything that ``--model`` takes.
    drafters
        Who drafts for the smaller model, as `draftwood.drafters.load.load_inner` reads it: ``ngram/recycling``.
    """

    name: ClassVar[str] = "draft-model"

    model: str = ""
    drafters: str = ""

    def with_models(self, models: Any) -> ModelBackedDrafter:
        """Return the drafter with its model loaded, a cascade if that has drafters (`draftwood.decoding.cascade`).

        Raises what loading raises, `UsageError` without a name.
        """
        if self.target is not None:
            return self
        if not self.model:
            raise UsageError("draft-model needs a model: write draft-model:model=NAME")
        if self.drafters:
            cascade: ModelBackedDrafter = models.cascade(self)
            return cascade
        return self.bound(models.named(self.model))


@dataclass(frozen=True)
class EarlyExitDrafter(ModelBackedDrafter):
    """Proposes what the target's first layers would write, on the target's own cache (self-speculation).

    Parameters
    ----------
    layers
        The layers that it runs: a number (the first so many) or ranges like ``0-9.20-29``; empty: as many as
        ``draftwood profile --early-exit`` found best, or the first half.
    """

    name: ClassVar[str] = "early-exit"

    layers: str = ""

    @property
    def needs(self) -> Needs:
        return Needs(prices=True, base_tree=True, target_session=True)

    def with_models(self, models: Any) -> EarlyExitDrafter:
        """Return the drafter with those layers of the target; raises `CapabilityError` where it cannot be had."""
        return self.bound(models.early_exit(self.layers))


@dataclass(frozen=True)
class QuantizedSelfDrafter(ModelBackedDrafter):
    """Proposes what the target's own weights in few bits would write, on the target's own cache.

    Parameters
    ----------
    bits
        4 or 8.
    """

    name: ClassVar[str] = "quantized-self"

    bits: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits not in (4, 8):
            raise UsageError(f"quantized-self: bits must be 4 or 8, not {self.bits}")

    @property
    def needs(self) -> Needs:
        return Needs(prices=True, base_tree=True, target_session=True)

    def with_models(self, models: Any) -> QuantizedSelfDrafter:
        """Return the drafter with its copy of the weights; raises `CapabilityError` where none is fast."""
        return self.bound(models.quantized_self(self.bits))
