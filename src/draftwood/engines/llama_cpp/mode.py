"""The way of decoding texts: its settings, what a target can do in it, and the cache of the texts."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from draftwood.contracts import Capabilities
from draftwood.engines.llama_cpp.cache import MOST_BRANCHES, Cache
from draftwood.engines.llama_cpp.context import PASS, Settings, exact_settings
from draftwood.engines.llama_cpp.library import CACHE_TYPES
from draftwood.engines.llama_cpp.selftest import exact_width, refuse_unusable, restores, rolls_back
from draftwood.engines.llama_cpp.weights import Weights
from draftwood.errors import CapabilityError, UnknownNameError

_ROLLBACK = 7  # tokens of a pass that can be taken back where layers keep a state: each takes a state's memory
_SPLIT = 512  # tokens of a text that flash attention splits among threads, for some types


class Mode:
    """``width`` is how many tokens of a pass are, bit by bit, passes over one token; 1: not known of any.

    No pass of an exact mode is wider (`widest`), those that read prompts included: a text's scores are the same
    however it came into the cache.

    Where layers keep a state, `Settings.rollback` tokens of a pass can be taken back, or with ``saves_states`` a
    snapshot of before the pass is restored.
    """

    def __init__(self, weights: Weights, settings: Settings, width: int, *, saves_states: bool = False) -> None:
        self._weights, self.settings = weights, settings
        self.exact = width > 1
        self.widest = width if self.exact else PASS  # tokens of a pass, of all texts together
        self.keeps_states, self.saves_states = weights.is_recurrent, saves_states
        most = min(self.widest, MOST_BRANCHES)
        if self.keeps_states and not saves_states:
            most = min(most, 1 + settings.rollback)
        self.capabilities = Capabilities(
            vocab_size=weights.vocab_size,
            max_positions=weights.max_positions,
            trees=(self.exact or weights.is_float) and not self.keeps_states,
            rollback="none" if most == 1 else "snapshot" if saves_states else "truncate",
            batch=True,
            max_pass=most,
            row_cost=weights.row_cost,
        )

    @cached_property
    def cache(self) -> Cache:
        return Cache(self._weights, self.settings)


def chosen_settings(
    threads: int, keys: str | None, values: str | None, flash_attention: bool | None
) -> Settings | None:
    """Return the settings that a user asks for; None where they are left to the engine."""
    if keys is None and values is None and flash_attention is None:
        return None
    for name in (keys, values):
        if name is not None and name not in CACHE_TYPES:
            raise UnknownNameError("cache type", name, CACHE_TYPES)
    of_keys, of_values = (CACHE_TYPES[name or "f16"] for name in (keys, values))
    return Settings(threads, of_keys, of_values, flash_attention is not False)


def mode_of(weights: Weights, threads: int, exact: bool | None, chosen: Settings | None) -> Mode:
    """Return how texts are decoded: exactly where the weights allow it, unless ``exact`` is False.

    Raises `CapabilityError` where ``exact`` is asked for and cannot be.
    """
    own = chosen or Settings(threads)
    if chosen:
        refuse_unusable(weights, chosen)
    ours = replace(own, ordered=True) if chosen else exact_settings(threads)
    saves = False
    if weights.is_recurrent and rolls_back(weights, back := replace(own, rollback=_ROLLBACK)):
        ours, own = replace(ours, rollback=_ROLLBACK), back
    elif weights.is_recurrent:
        saves = restores(weights, own)
        ours = replace(ours, ordered=weights.is_hybrid)
    # Without flash attention a short trial may not show that one row and several round differently.
    never = exact is False or not own.flash_attention or (weights.is_recurrent and not (own.rollback or saves))
    behind = _SPLIT if chosen and not weights.is_recurrent else 0
    width = 1 if never else exact_width(weights, ours, behind)
    if width > 1:
        return Mode(weights, ours, width, saves_states=saves)
    if exact:
        hint = ", or leave keys, values and flash_attention out" if chosen else ""
        raise CapabilityError(
            f"passes over {weights.path} cannot be exact: leave exact out, or take Q4_0 or Q8_0 weights{hint}"
        )
    return Mode(weights, own, 1, saves_states=saves)
