"""A clock that stands until it is set, and sensors that say what was written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from draftwood.planning.policies.sensors import Watched


@dataclass
class Clock:
    """Seconds, as set."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def at_once(job: Callable[[], None]) -> None:
    """Read a sensor without a thread."""
    job()


def scripted(read: Callable[[], Any], every: float = 0.0, clock: Callable[[], float] | None = None) -> Watched:
    """A sensor that is read whenever it is asked, unless ``every`` says otherwise."""
    return Watched(read, every, clock or Clock(), at_once)
