"""Policy ``battery``: no drafts while the battery is low, since wide passes take more power."""

from __future__ import annotations

from draftwood.contracts import State
from draftwood.errors import UsageError
from draftwood.planning.base import Limit
from draftwood.planning.policies.sensors import Charge, Watched
from draftwood.planning.policies.sensors import battery as read_battery


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
        self._sensor = sensor if sensor is not None else Watched(read_battery)
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
