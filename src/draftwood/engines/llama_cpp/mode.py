"""A way of decoding texts: its settings, what targets can do in it, and the cache of its texts."""

from __future__ import annotations

from functools import cached_property

from draftwood.contracts import Capabilities
from draftwood.engines.llama_cpp.cache import MOST_BRANCHES, Cache
from draftwood.engines.llama_cpp.context import PASS, Settings
from draftwood.engines.llama_cpp.weights import Weights


class Mode:
    """``width`` is how many tokens of a pass are, bit by bit, passes over one token; 1: not known of any.

    Where layers keep a state, `Settings.rollback` tokens of a pass can be taken back.
    """

    def __init__(self, weights: Weights, settings: Settings, width: int) -> None:
        self._weights, self.settings = weights, settings
        self.exact = width > 1
        self.widest = width if self.exact else PASS  # tokens of a pass, of all texts together
        self.keeps_states = weights.is_recurrent
        most = min(self.widest, MOST_BRANCHES)
        if self.keeps_states:
            most = min(most, 1 + settings.rollback)
        self.capabilities = Capabilities(
            vocab_size=weights.vocab_size,
            max_positions=weights.max_positions,
            trees=(self.exact or weights.is_float) and not self.keeps_states,
            rollback="none" if most == 1 else "truncate",
            batch=True,
            max_pass=most,
        )

    @property
    def is_used(self) -> bool:
        """Whether a text was opened in it."""
        return "cache" in self.__dict__

    @cached_property
    def cache(self) -> Cache:
        return Cache(self._weights, self.settings)
