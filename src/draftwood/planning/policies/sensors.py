"""Policies ``thermal`` and ``battery``: short drafts while the machine is hot, none while its battery is low.

Sensors are read in a thread, so that no step waits for them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import nextafter
from threading import Thread
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

from draftwood.contracts import State
from draftwood.errors import LARGEST, number
from draftwood.planning.base import Limit

_OLD = 60.0  # seconds after which an answer does not count, as where a sensor hangs
_LOWEST, _HIGHEST = 1.0, 150.0  # degrees Celsius; sensors without a reading say 0, -273 or 65261.85
_REST = 49.0  # a slow sensor rests so many times as long as a reading takes

T = TypeVar("T")


class Charge(NamedTuple):
    """What a battery says: its charge as a share in [0, 1], and whether it is plugged in."""

    share: float
    plugged: bool


class Watched(Generic[T]):
    """Calling it returns the last answer of a sensor at once, None without a recent one, and starts a reading.

    ``read`` may be slow, raise or hang, and returns None if there is no sensor. It is called at most once in
    ``every`` seconds by ``clock``, and never twice at a time; ``start`` runs a reading.
    """

    def __init__(
        self, read: Callable[[], T | None], every: float = 1.0, clock: Callable[[], float] = monotonic,
        start: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:  # fmt: skip
        self._read, self._every, self._clock = read, every, clock
        self._start = start or (lambda job: Thread(target=job, name="draftwood-sensor", daemon=True).start())
        self._value: T | None = None
        self._asked = self._taken = self._wait = 0.0  # when; seconds until the next reading
        self._busy = self._answered = False

    def __call__(self) -> T | None:
        now = self._clock()
        if not self._busy and not (self._answered and 0 <= now - self._asked < self._wait):
            self._asked, self._busy = now, True
            try:
                self._start(self._take)
            except RuntimeError:  # no more threads
                self._busy = False
        return self._value if now - self._taken <= max(_OLD, 2 * self._every) else None

    def why(self, name: str) -> str:
        """Return why there is no answer at present, as text for ``draftwood explain``."""
        if self._value is not None:
            return f"the last answer of the {name} is too old"
        return f"no {name} here" if self._answered else f"{name} not read yet"

    def _take(self) -> None:
        try:
            found = self._read()
        except Exception:  # of a driver
            found = None
        self._taken = self._clock()
        self._wait = max(self._every, min(_OLD / 2, _REST * (self._taken - self._asked)))
        self._value, self._answered, self._busy = found, True, False


def temperature() -> float | None:
    """Return the degrees Celsius of the hottest sensor of this machine, GPUs included; None if there is none."""
    try:
        import psutil

        read = psutil.sensors_temperatures()  # does not exist on every system
        found = [entry.current for entries in read.values() for entry in entries]
    except Exception:  # not installed, or this system does not tell
        found = []
    return hottest([*found, *of_nvidia(lambda nvml, device: nvml.nvmlDeviceGetTemperature(device, 0)).values()])


def hottest(degrees: list[Any]) -> float | None:
    """Return the highest value that is a possible temperature, None if there is none."""
    sane = [float(d) for d in degrees if isinstance(d, int | float) and _LOWEST <= d <= _HIGHEST]
    return max(sane, default=None)


def of_nvidia(ask: Callable[[Any, Any], Any]) -> dict[int, Any]:
    """Return what ``ask(pynvml, device)`` gives for NVIDIA's devices, by number; those that raise are left out."""
    found: dict[int, Any] = {}
    try:
        import pynvml  # type: ignore[import-not-found,unused-ignore]

        pynvml.nvmlInit()
        devices = int(pynvml.nvmlDeviceGetCount())
    except Exception:  # not installed, no driver, no device: each has an error of its own
        return found
    for device in range(devices):
        try:
            found[device] = ask(pynvml, pynvml.nvmlDeviceGetHandleByIndex(device))
        except Exception:  # one that cannot say this
            continue
    return found


def battery() -> Charge | None:
    """Return the battery's charge; None without a battery."""
    try:
        import psutil

        found = psutil.sensors_battery()  # does not exist on every system
        share, plugged = float(found.percent) / 100, bool(found.power_plugged)
    except Exception:  # not installed, no battery, or this system does not tell
        return None
    return Charge(share, plugged) if 0 <= share <= 1 else None


class Thermal:
    """Limits drafts to ``nodes`` draft nodes once the machine is hotter than ``hot`` degrees Celsius.

    The limit ends below ``hot - hysteresis`` degrees, at the earliest after ``dwell`` seconds by ``clock``.
    ``sensor``: by default the hottest that psutil or NVIDIA's library knows.
    """

    name = "thermal"

    def __init__(
        self, hot: float = 42.0, nodes: int = 3, hysteresis: float = 2.0, dwell: float = 10.0, *,
        sensor: Watched[float] | None = None, clock: Callable[[], float] = monotonic,
    ) -> None:  # fmt: skip
        number(hot, 5e-324, 150, "thermal: hot is {}: give degrees Celsius between 0 and 150")
        number(nodes, 0, LARGEST, "thermal: nodes is {}: use 0 draft nodes or more", whole=True)
        said = f"thermal: hysteresis is {{}}: give 0 or more degrees, less than hot={hot:g}"
        number(hysteresis, 0, nextafter(hot, 0), said)
        number(dwell, 0, LARGEST, "thermal: dwell is {}: give 0 seconds or more")
        self.hot, self.nodes, self.hysteresis, self.dwell = hot, nodes, hysteresis, dwell
        self._sensor, self._clock = sensor or Watched(temperature), clock
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
            self._since = self._clock() if degrees > self.hot else None
        elif degrees < self.hot - self.hysteresis and not 0 <= self._clock() - self._since < self.dwell:
            self._since = None


class Battery:
    """Stops drafting while the charge is below ``below``, a share in [0, 1], and the machine is not plugged in.

    1 never drafts on battery (unless it is full), 0 always does. Drafting begins again at ``below + hysteresis``
    or with the plug. ``sensor``: by default what psutil says.
    """

    name = "battery"

    def __init__(
        self, below: float = 0.2, hysteresis: float = 0.02, *, sensor: Watched[Charge] | None = None
    ) -> None:
        number(below, 0, 1, "battery: below is {}: give a share between 0 and 1, as in battery:below=0.2")
        number(hysteresis, 0, 1, "battery: hysteresis is {}: give a share between 0 and 1")
        self.below, self.hysteresis = below, hysteresis
        self._sensor = sensor or Watched(battery)
        self._charge: Charge | None = None
        self._low = False

    def limit(self, state: State, rows: int, nodes: int) -> Limit:  # noqa: ARG002
        why = self._sensor.why("battery")
        if self._charge is not None:
            why = f"{self._charge.share:.0%}, {'plugged in' if self._charge.plugged else 'on battery'}"
        return Limit(0 if self._low else None, why=why)

    def learn(self, state: State) -> None:
        """Record the charge by which this step was limited, and read the sensor."""
        state.step.battery = None if self._charge is None else self._charge.share
        charge = self._sensor()
        self._charge = charge if charge is not None and 0 <= charge.share <= 1 else None
        if self._charge is None or self._charge.plugged:
            self._low = False
        else:
            self._low = self._charge.share < min(1.0, self.below + self.hysteresis * self._low)
