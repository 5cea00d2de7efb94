"""Temperature and battery of this machine, read in a thread so that no step waits for a sensor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

EVERY = 1.0
"""Seconds between readings, at least."""

_FROZEN = 5.0  # seconds without an answer after which a sensor counts as frozen
_SHARE = 0.02  # of the time that reading may take: a slow sensor is read less often
_PAUSE = 30.0  # seconds between readings, at most, however long one took
_OLD = 60.0  # seconds after which an answer counts no more: above pause and reading, or it would flicker
_LOWEST, _HIGHEST = 1.0, 150.0  # degrees; sensors without a reading say 0, -273 or 65261.85

T = TypeVar("T")
Start = Callable[[Callable[[], None]], object]


class Charge(NamedTuple):
    """What a battery says: its charge as a share in [0, 1], and whether it is plugged in."""

    share: float
    plugged: bool


class Watched(Generic[T]):
    """The last answer of a sensor that may be slow, raise, talk nonsense or freeze; asking takes microseconds.

    It is read at most once per second, in a thread of its own, since a call that froze cannot be interrupted. One
    that has not answered for 5 seconds is given up until it does. However long a reading took, 30 seconds after it
    (``every`` if that is more) it is read again, and an answer older than 60 (twice ``every``) counts no more.

    Parameters
    ----------
    read
        Asks the sensor; answers None where there is none.
    every
        Seconds between readings, at least.
    clock
        Tells seconds.
    start
        Runs a reading beside the text; scripted sensors may run at once.

    Attributes
    ----------
    answered
        Whether it was read at all.
    given_up
        Whether it is frozen now.
    stale
        Whether its last answer, when asked for, was too old to count.
    """

    def __init__(
        self,
        read: Callable[[], T | None],
        every: float = EVERY,
        clock: Callable[[], float] = monotonic,
        start: Start | None = None,
    ) -> None:
        self._read, self._every, self._clock = read, every, clock
        self._start = start or _beside
        self._value: T | None = None
        self._since: float | None = None  # when it was asked or, later, when it answered
        self._taken = 0.0  # when it answered
        self._wait = every
        self._busy = False
        self.given_up = self.stale = False
        self.answered = False

    def __call__(self) -> T | None:
        """Return the last answer, None without a recent one, and see to it that the next is on its way."""
        now = self._clock()
        since = self._wait if self._since is None else now - self._since
        if self._busy:
            self.given_up = self.given_up or since >= _FROZEN
        elif not 0 <= since < self._wait:  # a clock that was set back is no reason to wait
            self._since, self._busy = now, True
            try:
                self._start(self._take)
            except RuntimeError:  # no more threads
                self._busy = False
        self.stale = self._value is not None and now - self._taken > max(_OLD, 2 * self._every)
        return None if self.given_up or self.stale else self._value

    def _take(self) -> None:
        started = self._clock()
        try:
            found = self._read()
        except Exception:  # whatever a driver thinks of
            found = None
        self._since = self._taken = self._clock()
        self._wait = max(self._every, min(_PAUSE, (self._taken - started) / _SHARE))
        self._value, self.answered = found, True
        self.given_up = self._busy = False


def _beside(job: Callable[[], None]) -> None:
    threading.Thread(target=job, name="draftwood-sensor", daemon=True).start()


def temperature() -> float | None:
    """Return degrees Celsius of the hottest sensor of this machine, GPUs included; None where none tells."""
    return hottest([*_processors(), *_devices()])


def hottest(degrees: list[Any]) -> float | None:
    """Return the highest of those that a machine can have."""
    sane = [float(d) for d in degrees if isinstance(d, int | float) and _LOWEST <= d <= _HIGHEST]
    return max(sane, default=None)


def battery() -> Charge | None:
    """Return the battery's charge; None without a battery."""
    try:
        import psutil

        found = psutil.sensors_battery()  # does not exist on every system
        share, plugged = float(found.percent) / 100, bool(found.power_plugged)
    except Exception:  # not installed, no battery, or this system does not tell
        return None
    return Charge(share, plugged) if 0 <= share <= 1 else None


def _processors() -> list[Any]:
    try:
        import psutil

        read = psutil.sensors_temperatures()  # does not exist on every system
        return [entry.current for entries in read.values() for entry in entries]
    except Exception:  # not installed, or this system does not tell
        return []


def _devices() -> list[Any]:
    """NVIDIA devices, where nvidia-ml-py is installed."""
    try:
        import pynvml  # type: ignore[import-not-found,unused-ignore]

        pynvml.nvmlInit()
        count = int(pynvml.nvmlDeviceGetCount())
    except Exception:  # not installed, no driver, no device: each has an error of its own
        return []
    found = []
    for index in range(count):
        try:
            device = pynvml.nvmlDeviceGetHandleByIndex(index)
            found.append(pynvml.nvmlDeviceGetTemperature(device, 0))  # 0: of the processor itself
        except Exception:  # one without a sensor
            continue
    return found
