"""Policy ``thermal``: short drafts while the machine is hot, before it throttles itself."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from draftwood.contracts import State
from draftwood.errors import UsageError
from draftwood.planning.base import Limit
from draftwood.planning.policies.sensors import Watched, hottest, temperature


class Thermal:
    """Limits drafts to ``nodes`` above ``hot`` degrees, until it is clearly cooler again.

    Parameters
    ----------
    hot
        Degrees Celsius of the hottest sensor above which drafts are shortened.
    nodes
        Most draft nodes while it is hot.
    hysteresis
        Degrees below ``hot`` at which they may grow again.
    dwell
        Seconds that they stay short at least.
    sensor
        Degrees Celsius; by default the hottest sensor that psutil or NVIDIA's library knows.
    clock
        Tells seconds, for ``dwell``.

    Raises
    ------
    UsageError
        If a value is out of range.
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
        self._since: float | None = None  # when drafts became short

    def limit(self, state: State, rows: int, nodes: int) -> Limit:  # noqa: ARG002
        return Limit(None if self._since is None else self.nodes, why=self._why())

    def learn(self, state: State) -> None:
        """Record the degrees by which this step was limited, and look for new ones."""
        state.step.temperature = self._degrees
        degrees = self._degrees = hottest([self._sensor()])
        if degrees is None:
            self._since = None
        elif self._since is None:
            if degrees > self.hot:
                self._since = self._clock()
        elif degrees < self.hot - self.hysteresis and not 0 <= self._clock() - self._since < self.dwell:
            self._since = None

    def _why(self) -> str:
        if self._degrees is not None:
            return f"{self._degrees:.1f} °C"
        if self._sensor.given_up:
            return "the temperature sensor does not answer"
        if self._sensor.stale:
            return "the last temperature is too old"
        return "no temperature sensor here" if self._sensor.answered else "temperature not read yet"
