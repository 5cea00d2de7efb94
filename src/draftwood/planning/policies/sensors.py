"""Policies ``thermal`` and ``battery``: short drafts while the machine is hot, none while its battery is low.

Sensors are read in a thread, so that no step waits for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

from draftwood.contracts import State
from draftwood.errors import UsageError
from draftwood.planning.base import Limit

_FROZEN = 5.0  # seconds without an answer after which a sensor counts as frozen
_SHARE = 0.02  # share of the time that readings may take: a slow sensor is read less often
_PAUSE = 30.0  # most seconds between readings of a slow sensor
_OLD = 60.0  # seconds after which an answer is too old
_LOWEST, _HIGHEST = 1.0, 150.0  # degrees Celsius; sensors without a reading say 0, -273 or 65261.85

T = TypeVar("T")


class Charge(NamedTuple):
    """What a battery says: its charge as a share in [0, 1], and whether it is plugged in."""

    share: float
    plugged: bool


class Watched(Generic[T]):
    """Calling it returns the last answer of a sensor, in microseconds: readings run in threads of their own.

    ``read`` reads the sensor, which may be slow, raise or hang, and returns None if there is none: at most once
    in ``every`` seconds by ``clock``, a slow one less often, but every 30 seconds. ``start`` runs a reading. A
    sensor that does not answer for 5 seconds counts as frozen until it does; an answer older than 60 seconds (and
    twice ``every``) does not count.
    """

    def __init__(
        self,
        read: Callable[[], T | None],
        every: float = 1.0,
        clock: Callable[[], float] = monotonic,
        start: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self._read, self._every, self._clock = read, every, clock
        self._start = start or _in_thread
        self._value: T | None = None
        self._since: float | None = None  # when the sensor was asked or, later, when it answered
        self._taken = 0.0  # when it answered
        self._wait = every
        self._busy = False
        self.given_up = self.stale = self.answered = False

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


def _in_thread(job: Callable[[], None]) -> None:
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


class Thermal:
    """Limits drafts to ``nodes`` draft nodes once the machine is hotter than ``hot`` degrees Celsius.

    The limit ends below ``hot - hysteresis`` degrees, at the earliest after ``dwell`` seconds by ``clock``. The
    ``sensor`` is by default the hottest that psutil or NVIDIA's library knows. `UsageError` if a value is out of
    range.
    """

    name = "thermal"

    def __init__(
        self,
        hot: float = 42.0,
        nodes: int = 3,
        hysteresis: float = 2.0,
        dwell: float = 10.0,
        *,
        sensor: Watched[float] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if not 0 < hot < 150:
            raise UsageError(f"thermal: hot is {hot}: give degrees Celsius between 0 and 150")
        if nodes < 0:
            raise UsageError(f"thermal: nodes is {nodes}: use 0 draft nodes or more")
        if not 0 <= hysteresis < hot:
            raise UsageError(f"thermal: hysteresis is {hysteresis}: give 0 or more degrees, less than hot={hot:g}")
        if not 0 <= dwell < float("inf"):
            raise UsageError(f"thermal: dwell is {dwell}: give 0 seconds or more")
        self.hot, self.nodes, self.hysteresis, self.dwell = hot, nodes, hysteresis, dwell
        self._sensor = sensor or Watched(temperature)
        self._clock = clock
        self._degrees: float | None = None
        self._since: float | None = None  # when the limit began

    def limit(self, state: State, rows: int, nodes: int) -> Limit:  # noqa: ARG002
        degrees = self._degrees
        why = f"{degrees:.1f} °C" if degrees is not None else self._sensor.why("temperature sensor")
        return Limit(None if self._since is None else self.nodes, why=why)

    def learn(self, state: State) -> None:
        """Record the degrees by which this step was limited, and read the sensor."""
        state.step.temperature = self._degrees
        degrees = self._degrees = hottest([self._sensor()])
        if degrees is None:
            self._since = None
        elif self._since is None:
            if degrees > self.hot:
                self._since = self._clock()
        elif degrees < self.hot - self.hysteresis and not 0 <= self._clock() - self._since < self.dwell:
            self._since = None


class Battery:
    """Stops drafting while the charge is below ``below``, a share in [0, 1], and the machine is not plugged in.

    1 never drafts on battery (unless it is full), 0 always does. Drafting begins again at ``below + hysteresis``
    or with the plug. ``sensor`` is by default what psutil says. `UsageError` if a value is out of range.
    """

    name = "battery"

    def __init__(
        self, below: float = 0.2, hysteresis: float = 0.02, *, sensor: Watched[Charge] | None = None
    ) -> None:
        if not 0 <= below <= 1:
            raise UsageError(f"battery: below is {below}: give a share between 0 and 1, as in battery:below=0.2")
        if not 0 <= hysteresis <= 1:
            raise UsageError(f"battery: hysteresis is {hysteresis}: give a share between 0 and 1")
        self.below, self.hysteresis = below, hysteresis
        self._sensor = sensor or Watched(battery)
        self._charge: Charge | None = None
        self._low = False

    def limit(self, state: State, rows: int, nodes: int) -> Limit:  # noqa: ARG002
        return Limit(0 if self._low else None, why=self._why())

    def learn(self, state: State) -> None:
        """Record the charge by which this step was limited, and read the sensor."""
        state.step.battery = None if self._charge is None else self._charge.share
        charge = self._sensor()
        self._charge = charge if charge is not None and 0 <= charge.share <= 1 else None
        if self._charge is None or self._charge.plugged:
            self._low = False
        else:
            self._low = self._charge.share < min(1.0, self.below + self.hysteresis * self._low)

    def _why(self) -> str:
        if self._charge is not None:
            return f"{self._charge.share:.0%}, {'plugged in' if self._charge.plugged else 'on battery'}"
        return self._sensor.why("battery")
