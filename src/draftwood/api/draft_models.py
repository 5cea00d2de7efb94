"""Finds the models of drafters that have one: loads them by name, or derives them from the target."""

from __future__ import annotations

import gc
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import ref

from draftwood.api.learned import learned
from draftwood.api.target import target_of
from draftwood.child_safe import ChildSafeLock
from draftwood.contracts import Drafter, Target
from draftwood.drafters.draft_model.drafter import DraftSources, DraftTarget
from draftwood.drafters.load import load_inner
from draftwood.engines.per_model import once
from draftwood.engines.tokens.fingerprint import tokenizer_fingerprint
from draftwood.errors import CapabilityError, ModelError, UsageError, VocabularyError
from draftwood.models.engine import LLAMA_CPP, choose, first_line
from draftwood.planning.load import DEFAULT
from draftwood.planning.load import load as load_planner

if TYPE_CHECKING:
    from draftwood.drafters.cascade.drafter import CascadeDrafter

log = logging.getLogger("draftwood")

_NO_MEMORY = (
    "out of memory", "alloc_failed", "not enough memory", "can't allocate", "cannot allocate", "failed to allocate"
)  # fmt: skip
_FILLER = re.compile(r"\[PAD\d+\]")  # what converters call rows of a vocabulary without a token
_SHOWN = 3  # differences that an error names
_compared: set[tuple[str, str]] = set()  # fingerprints of tokenizers with the same tokens


class LoadedModels:
    """Draft models by name. The one used last stays loaded, and so do those that a drafter refers to.

    ``load`` returns the model and the tokenizer of a name.
    """

    def __init__(self, load: Callable[[str], tuple[Any, Any]]) -> None:
        self._load, self._lock = load, ChildSafeLock()
        self._latest: Any = None
        self._known: dict[str, tuple[Callable[[], Any], Any]] = {}  # weak references to models; tokenizers

    def get(self, name: str) -> tuple[Any, Any]:
        """Return a model and its tokenizer; raises what loading raises."""
        with self._lock:
            self._known = {key: kept for key, kept in self._known.items() if kept[0]() is not None}
            known, tokenizer = self._known.get(name, (lambda: None, None))
            model = known()
            if model is None:
                self._latest = None
                gc.collect()  # models hold reference cycles
                model, tokenizer = self._load(name)
                self._known[name] = ref(model), tokenizer
            self._latest = model
            return model, tokenizer


def _load(name: str) -> tuple[Any, Any]:
    """Load a model to draft by: its passes need not be exact to the last bit."""
    from draftwood.models.load import load

    with needing_room(name):
        return load(name, exact=False) if choose(name, None)[0] == LLAMA_CPP else load(name)


@contextmanager
def needing_room(name: str) -> Iterator[None]:
    """Turn an error for lack of memory into a `ModelError` that names the model."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in _NO_MEMORY)):
            raise
        raise ModelError(
            f"no room for the draft model {name} beside its target ({first_line(error)}): choose a smaller one"
        ) from error


LOADED = LoadedModels(_load)
"""The draft models of this process."""


class DraftModels(DraftSources):
    """The models that drafters may draft by for this target and its tokenizer, each None if unknown."""

    def __init__(self, target: Target | None = None, tokenizer: Any = None) -> None:
        self.target, self.tokenizer = target, tokenizer

    def named(self, name: str) -> DraftTarget:
        """Return a model by its name, with a cache of its own; it stays loaded for later calls.

        Raises what `draftwood.load` raises, and `VocabularyError` for another vocabulary than the target's.
        """
        model, tokenizer = LOADED.get(name)
        with needing_room(name):
            draft = target_of(model)
        size = None if self.target is None else self.target.capabilities.vocab_size
        self._compare(name, tokenizer)
        return DraftTarget(draft, size, draft.weight_bytes, self.target, model)

    def given(self, found: DraftTarget) -> DraftTarget:
        """Return a model that the user gave as an object, with what is known of the target."""
        if self.target is None:
            return found
        size, own = found.vocab_size, self.target.capabilities.vocab_size
        return replace(found, vocab_size=own if size is None else min(own, size), verifier=self.target)

    def _compare(self, name: str, tokenizer: Any) -> None:
        """Raise `VocabularyError` where the target's ids mean something else to this draft model."""
        if self.tokenizer is None or self.target is None:
            return
        pair = tokenizer_fingerprint(self.tokenizer), tokenizer_fingerprint(tokenizer)
        if pair[0] != pair[1] and pair not in _compared:
            refuse_other_vocabulary(name, self.tokenizer, tokenizer)
            _compared.add(pair)

    def cascade(self, name: str, drafters: str, length: int, p_min: float) -> CascadeDrafter:
        """Return a drafter that drafts by this model with drafters of its own, which have their models too.

        What the model's planner learns is kept with the model. Raises what `draftwood.load` and the inner
        drafters raise.
        """
        from draftwood.drafters.cascade.drafter import CascadeDrafter

        inner = load_inner(drafters)
        found = self.named(name)
        model, tokenizer = LOADED.get(name)
        return CascadeDrafter(
            drafters=with_models(inner, DraftModels(found.target, tokenizer)), target=found,
            length=length, p_min=p_min, model=name,
            planner=load_planner(DEFAULT, learned(model)),
        )  # fmt: skip

    def early_exit(self, layers: str) -> DraftTarget:
        """Return some of the target's own layers, on its cache; raises as `Target.early_exit`."""
        return DraftTarget(self._known.early_exit(layers), weight_bytes=0)

    def quantized_self(self) -> DraftTarget:
        """Return the target's own weights in 4 bits, on our own engine; raises as `Target.quantized_self`."""
        found = self._known.quantized_self()
        return DraftTarget(found, weight_bytes=found.weight_bytes, verifier=self.target)

    def head(self, file: str, known: DraftTarget | None = None, *, optional: bool = False) -> DraftTarget | None:
        """Return a head that was trained for the target; without ``file``, the one that comes with draftwood.

        Raises as `Target.head`. An ``optional`` one is None then, and for a file the log says why, once; without a
        file it is also None where that has not paid (`Target.head_pays`). One that is ``known`` is used on when
        its file has become unreadable.
        """
        if optional and not file and (self.target is None or not self.target.head_pays):
            return None
        try:
            found = self._known.head(file)
        except (CapabilityError, ModelError, UsageError) as error:
            if known is not None and known.verifier is self.target:
                return known
            if not optional or self.target is None:
                raise
            said = f"{error}; decoding goes on without it"
            return once(self.target, "no head", said, lambda: log.warning(said)) if file else None
        return DraftTarget(found, weight_bytes=found.weight_bytes, verifier=self.target)

    def mtp(self, *, optional: bool = False) -> DraftTarget | None:
        """Return the target's own block for further tokens; None for an ``optional`` one that it does not have.

        Raises as `Target.mtp`.
        """
        try:
            found = self._known.mtp()
        except CapabilityError:
            if not optional:
                raise
            return None
        return DraftTarget(found, weight_bytes=found.weight_bytes, verifier=self.target)

    @property
    def _known(self) -> Target:
        """The target, for models that are made of it."""
        if self.target is None:
            raise CapabilityError("a drafter that is made of the target needs one: name a draft model instead")
        return self.target


def with_models(drafters: Sequence[Drafter], models: DraftModels) -> tuple[Drafter, ...]:
    """Return the drafters with the models that they draft by; raises what finding a model raises.

    Drafters that are optional and find no model are left out.
    """
    bound = (drafter.with_models(models) for drafter in drafters)
    return tuple(d for d in bound if d is not None)


def refuse_other_vocabulary(name: str, target: Any, draft: Any) -> None:
    """Raise `VocabularyError` where the tokenizer of the draft model ``name`` gives an id to another token.

    Ids that only one of them knows do not count: output layers are padded with rows without a token.
    """
    ours, theirs = _names(target), _names(draft)
    both = sorted(ours.keys() & theirs.keys())
    different = [token for token in both if ours[token] != theirs[token]]
    if both and not different:
        return
    shown = "; ".join(f"{i} is {ours[i]!r} and {theirs[i]!r} there" for i in different[:_SHOWN])
    raise VocabularyError(
        f"the draft model {name} has another vocabulary than its target ({len(different):,} of {len(both):,} ids "
        f"differ{': ' if shown else ''}{shown}): choose a draft model of the target's own family"
    )


def _names(tokenizer: Any) -> dict[int, str]:
    return {token: name for name, token in tokenizer.get_vocab().items() if not _FILLER.fullmatch(name)}
