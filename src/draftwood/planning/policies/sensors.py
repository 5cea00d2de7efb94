"""Temperature and battery of this machine, read in a thread so that no step waits for a sensor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

EVERY = 1.0
"""Seconds between readings, at least."""

_FROZEN = 5.0  # seconds without an answer after which a sensor counts as frozen
_SHARE = 0.02  # share of the time that readings may take: a slow sensor is read less often
_PAUSE = 30.0  # most seconds between readings of a slow sensor
_OLD = 60.0  # seconds after which an answer is too old; more than the longest pause and reading together
_LOWEST, _HIGHEST = 1.0, 150.0  # degrees Celsius; sensors without a reading say 0, -273 or 65261.85

T = TypeVar("T")
Start = Callable[[Callable[[], None]], object]


class Charge(NamedTuple):
    """What a battery says: its charge as a share in [0, 1], and whether it is plugged in."""

    share: float
    plugged: bool


class Watched(Generic[T]):
    """Calling it returns the last answer of a sensor, in microseconds: readings run in threads of their own.

    The sensor is read at most once per second, a slow one less often, at least every 30 seconds. If it does not
    answer for 5 seconds it counts as frozen until it does. An answer older than 60 seconds (and twice ``every``)
    does not count.

    ``read`` reads the sensor, which may be slow, raise or hang, and returns None if there is none. ``every`` is
    the least number of seconds between readings, by ``clock``; ``start`` runs a reading, by default in a thread.
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
        self._since: float | None = None  # when the sensor was asked or, later, when it answered
        self._taken = 0.0  # when it answered
        self._wait = every
        self._busy = False
        self.given_up = self.stale = False
        self.answered = False

    def __call__(self) -> T | None:
        """Return the last answer, None if there is no recent one, and start the next reading if it is due."""
        now = self._clock()
        since = self._wait if self._since is None else now - self._since
        if self._busy:
            self.given_up = self.given_up or since >= _FROZEN
        elif not 0 <= since < self._wait:  # or the clock was set back
            self._since, self._busy = now, True
            try:
                self._start(self._take)
            except RuntimeError:  # no more threads
                self._busy = False
        self.stale = self._value is not None and now - self._taken > max(_OLD, 2 * self._every)
        return None if self.given_up or self.stale else self._value

    def why(self, name: str) -> str:
        """Return why there is no answer at present, as text for ``draftwood explain``."""
        if self.given_up:
            return f"the {name} does not answer"
        if self.stale:
            return f"the last answer of the {name} is too old"
        return f"no {name} here" if self.answered else f"{name} not read yet"

    def _take(self) -> None:
        started = self._clock()
        try:
            found = self._read()
        except Exception:  # of a driver
            found = None
        self._since = self._taken = self._clock()
        self._wait = max(self._every, min(_PAUSE, (self._taken - started) / _SHARE))
        self._value, self.answered = found, True
        self.given_up = self._busy = False


def _beside(job: Callable[[], None]) -> None:
    threading.Thread(target=job, name="draftwood-sensor", daemon=True).start()


def temperature() -> float | None:
    """Return the degrees Celsius of the hottest sensor of this machine, GPUs included; None if there is none."""
    return hottest([*_processors(), *_devices()])


def hottest(degrees: list[Any]) -> float | None:
    """Return the highest value that is a possible temperature, None if there is none."""
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
