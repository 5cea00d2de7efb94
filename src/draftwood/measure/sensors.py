"""Energy, temperature and processor use over an interval; None for what this machine does not let us read. The
energy of NVIDIA devices comes from nvidia-ml-py where it is installed, that of processors from the kernel's
powercap files (https://docs.kernel.org/power/powercap/powercap.html), which most systems let only root read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

from draftwood.planning.policies.sensors import of_nvidia, temperature

POWERCAP = Path("/sys/class/powercap")

Counter = tuple[float, float]  # joules so far, and the value at which the counter wraps to 0 (infinity: never)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the sensors measured."""

    # Since `Sensors.start`, of all readable processor packages and NVIDIA devices, other programs included.
    joules: float | None = None
    temperature: float | None = None  # degrees Celsius of the hottest sensor now
    cpu_share: float | None = None  # cores in use by this process: processor time / elapsed time since the start


class Sensors:
    """Measures energy and processor use since `start`; never raises. ``powercap``: the kernel's power zones."""

    def __init__(self, powercap: Path = POWERCAP) -> None:
        self._powercap = powercap
        self._energy: dict[str, Counter] = {}
        self._busy: float | None = None
        self._started = 0.0

    def start(self) -> None:
        """Begin an interval."""
        self._energy = self._counters()
        self._busy, self._started = process_time(), perf_counter()

    def read(self) -> Reading:
        """Return what was used since `start`; the interval goes on. A counter may wrap once in it."""
        share = None
        if self._busy is not None and (elapsed := perf_counter() - self._started) > 0:
            share = (process_time() - self._busy) / elapsed
        now = self._counters()
        spent = [_spent(self._energy[name], now[name]) for name in self._energy if name in now]
        return Reading(sum(spent) if spent else None, temperature(), share)

    def _counters(self) -> dict[str, Counter]:
        return _powercap_counters(self._powercap) | _nvidia_counters()


def _spent(before: Counter, after: Counter) -> float:
    used = after[0] - before[0]
    return used if used >= 0 else used + after[1]


def _powercap_counters(folder: Path) -> dict[str, Counter]:
    """Return a counter per processor package: zones named like intel-rapl:0, which include their subzones."""
    found: dict[str, Counter] = {}
    for zone in sorted(folder.glob("*-rapl:*")):
        try:
            if zone.name.count(":") != 1 or "mmio" in zone.name:  # parts of a package, and a second way to read it
                continue
            if not (zone / "name").read_text().startswith("package"):  # psys includes the packages
                continue
            used, limit = ((zone / name).read_text() for name in ("energy_uj", "max_energy_range_uj"))
            found[zone.name] = int(used) / 1e6, int(limit) / 1e6
        except (OSError, ValueError):
            continue
    return found


def _nvidia_counters() -> dict[str, Counter]:
    """Return a counter per device; it counts since the driver was loaded."""
    used = of_nvidia(lambda nvml, device: nvml.nvmlDeviceGetTotalEnergyConsumption(device) / 1e3)
    return {f"nvidia {number}": (joules, float("inf")) for number, joules in used.items()}
