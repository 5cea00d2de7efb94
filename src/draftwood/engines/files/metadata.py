"""Numbers of a file's metadata, checked as they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from draftwood.engines.files.families import Family
from draftwood.engines.files.rotary import yarn_growth
from draftwood.engines.files.shapes import Scaling
from draftwood.errors import ModelError, UnsupportedModelError

MOST_LAYERS, MOST_WIDTH = 1024, 1 << 20
MOST_INNER = 1 << 20
"""No model has more; metadata that say so are damaged."""
_LARGEST = 1e30  # of numbers that are computed with as float32


class Keys:
    """Numbers of a file's metadata under its architecture's name."""

    def __init__(self, metadata: Mapping[str, Any], family: Family) -> None:
        self._metadata, self.family = metadata, family

    def get(self, name: str, default: Any = None) -> Any:
        return self._metadata.get(f"{self.family.architecture}.{name}", self.family.missing.get(name, default))

    def _wrong(self, name: str, found: Any) -> ModelError:
        return ModelError(f"the file says {self.family.architecture}.{name} is {found!r:.40}: get the file again")

    def whole(self, name: str, default: int | None = None, most: int = 1 << 24, least: int = 1) -> int:
        """Return a whole number, or that of a list of equal ones; `ModelError` for one missing or out of range."""
        found = self.get(name, default)
        if isinstance(found, list) and found and isinstance(found[0], int):
            if any(one != found[0] for one in found):
                raise UnsupportedModelError(
                    f"the CPU engine does not run models whose layers differ in {name}: take another engine"
                )
            found = found[0]
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
            raise self._wrong(name, found)
        return found

    def each(
        self, name: str, layers: int, default: Sequence[int] | None = None, most: int = 1 << 24, least: int = 1
    ) -> Sequence[int]:
        """Return a whole number of each layer, which files say once or in a list; raises as `whole`."""
        found = self.get(name, default)
        if not isinstance(found, list | tuple):
            return [self.whole(name, None, most, least)] * layers
        some = found[:layers]
        if len(some) < layers or not all(type(one) is int and least <= one <= most for one in some):
            raise self._wrong(name, found)
        if not any(some):
            raise self._wrong(name, 0)
        return some

    def real(self, name: str, default: float | None = None, *, positive: bool = False) -> float:
        """Return a float32 number from 0 on; 0 stands for the default where it is ``positive``."""
        found = self.get(name, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= _LARGEST:
            raise self._wrong(name, found)
        if not positive:
            return float(found)
        if 0 < found < 1 / _LARGEST:
            raise self._wrong(name, found)
        return float(found or default or 0)

    def truth(self, name: str, *, default: bool) -> bool:
        found = self.get(name, default)
        if not isinstance(found, bool):
            raise self._wrong(name, found)
        return found

    def base(self, name: str, default: float) -> float:
        """Return a base of rotary positions."""
        found = self.real(name, default, positive=True)
        if found <= 1:
            raise ModelError(f"the file says rotary positions have the base {found}: get the file again")
        return found

    def lacking(self, name: str, layers: int) -> list[bool]:
        """Return which layers have 0 of a number."""
        found = self.get(name)
        if not isinstance(found, list):
            return [False] * layers
        if len(found) != layers:
            raise self._wrong(name, found)
        return [one == 0 for one in found]

    def recurrent(self, layers: int) -> list[bool]:
        """Return which layers have a delta net in place of attention."""
        name = "attention.recurrent_layers"
        found = self.get(name)
        if found is None:
            every = self.whole("full_attention_interval", 4)
            return [(layer + 1) % every != 0 for layer in range(layers)]
        if not isinstance(found, list) or len(found) < layers or not all(one in (0, 1) for one in found):
            raise self._wrong(name, found)
        return [bool(one) for one in found[:layers]]

    def pattern(self, layers: int) -> list[bool]:
        """Return which layers have a window."""
        name = "attention.sliding_window_pattern"
        found = self.get(name, self.family.every)
        if isinstance(found, list) and len(found) >= layers and all(isinstance(one, bool) for one in found):
            return found[:layers]
        if isinstance(found, bool) or not isinstance(found, int) or found < 0:
            raise self._wrong(name, found)
        return [not found or (layer + 1) % found != 0 for layer in range(layers)]

    def turning(self, windows: Sequence[int]) -> list[bool]:
        """Return which layers have rotary positions; ``windows`` are those of all layers."""
        name, still, layers = "attention.rope_pattern", self.family.still, len(windows)
        found = self.get(name)
        if found is None and self.family.still_without_window and any(windows):
            return [window > 0 for window in windows]
        if found is None:
            return [not still or (layer + 1) % still != 0 for layer in range(layers)]
        if not isinstance(found, list) or len(found) < layers or not all(isinstance(one, bool) for one in found):
            raise self._wrong(name, found)
        return found[:layers]

    def scaling(self) -> Scaling:
        factor = self.real("rope.scaling.factor", self.real("rope.scale_linear", 0.0)) or 1.0
        kind = self.get("rope.scaling.type", "linear")
        if kind not in ("none", "linear", "yarn", "longrope"):
            raise UnsupportedModelError(
                f"the CPU engine does not know positions that are scaled by {kind!r:.40}: take another engine"
            )
        share = self.get("rope.scaling.yarn_ext_factor", 1)
        if kind == "yarn" and share not in (1, -1):  # -1 stands for the usual, 1
            raise UnsupportedModelError(
                f"the CPU engine runs no yarn with yarn_ext_factor {share!r:.40}: take another engine"
            )
        size = self.real("rope.scaling.attn_factor", 1.0, positive=True)
        if "latent_attention" in self.family.mixers and kind == "yarn":
            if self.real("rope.scaling.yarn_log_multiplier", 0.0):  # scores grow instead: see `_query_scale`
                size /= yarn_growth(factor)
        elif self.family.yarn_multiplier and kind == "yarn":
            size /= yarn_growth(factor, self.real("rope.scaling.yarn_log_multiplier", 0.0))
        original = self.whole("rope.scaling.original_context_length", 0, 1 << 30, least=0)
        return Scaling(
            kind, factor, original or self.whole("context_length", most=1 << 30),
            size * self.real("rope.scaling.yarn_attn_factor", 1.0, positive=True),
            self.real("rope.scaling.yarn_beta_fast", 32.0, positive=True),
            self.real("rope.scaling.yarn_beta_slow", 1.0, positive=True),
            self.truth("rope.scaling.yarn_truncate", default=True),
        )  # fmt: skip
