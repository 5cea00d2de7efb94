"""The first line of a session: what runs, how fast it can be, what a text can hold, and what is drafted from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from draftwood.measure.wording import count
from draftwood.models.engine import CPU, LLAMA_CPP, TRANSFORMERS

_WIDTH = 159  # characters of the line


class Opening(NamedTuple):
    """What the line says; None is not known. ``speed``: bytes of memory per second, ``read``: those of a token."""

    engine: str
    instructions: str | None
    threads: int | None
    speed: int | None
    read: int | None
    context: int | None
    drafters: Sequence[str]
    temperature: float | None = None

    def __str__(self) -> str:
        how = [self.instructions or "", f"{count(self.threads, 'thread')}" if self.threads else ""]
        parts = [self.engine + (f" ({', '.join(filter(None, how))})" if any(how) else "")]
        if self.speed and self.read:
            most = self.speed / self.read
            parts += [
                f"memory {self.speed / 1e9:.1f} GB/s",
                f"at best {most:.{int(most < 10)}f} tokens/s undrafted",
            ]
        elif self.read:
            parts.append("speed not known before draftwood info MODEL")
        if self.context:
            parts.append(f"context {self.context:,}")
        parts.append(f"drafts from {'+'.join(self.drafters)}" if self.drafters else "no drafts")
        if self.temperature is not None:
            parts.append(f"temperature {self.temperature:g}")
        said = ", ".join(parts)
        return said if len(said) <= _WIDTH else f"{said[: _WIDTH - 1]}…"


def opening(model: Any, drafters: Sequence[str], temperature: float) -> str:
    """Return the line for a loaded model; nothing is measured for it, so that it delays no start."""
    from draftwood.api.target import target_of
    from draftwood.engines.cpu.target import CpuTarget
    from draftwood.local.memory_speed import known_speed
    from draftwood.models.forecast import read_of

    target = target_of(model)
    longest = target.capabilities.max_positions
    if not isinstance(target, CpuTarget):
        engine = LLAMA_CPP if type(target).__module__.startswith("draftwood.engines.llama_cpp") else TRANSFORMERS
        return str(Opening(engine, None, None, None, None, longest, drafters, temperature))
    own = target.model
    speed, read = known_speed(own.threads), read_of(own.weights)
    return str(Opening(CPU, own.instructions.name, own.threads, speed, read, longest, drafters, temperature))
