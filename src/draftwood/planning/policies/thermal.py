"""Policy ``thermal``: short drafts while the machine is hot, so that it need not throttle."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from draftwood.contracts import State
from draftwood.errors import UsageError
from draftwood.planning.base import Limit
from draftwood.planning.policies.sensors import Watched, hottest, temperature


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
        self._sensor = sensor if sensor is not None else Watched(temperature)
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
