"""Energy, temperature and processor use over an interval, where this machine lets them be read; else None.

Processor use comes from psutil, the energy of NVIDIA devices from NVIDIA's own nvidia-ml-py where that is
installed, the temperature from the sensors that planners go by. For processors the kernel's powercap files are
read here: the light library for them (pyRAPL) is no longer kept, and the well-kept one (zeus) brings pandas and
scikit-learn and starts a process per counter, to read what are two numbers in a folder
(https://docs.kernel.org/power/powercap/powercap.html). Most systems let only root read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from draftwood.planning.policies.sensors import temperature

POWERCAP = Path("/sys/class/powercap")

Counter = tuple[float, float]
"""Joules so far, and where the counter begins anew (infinity: never)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the sensors said.

    Attributes
    ----------
    joules
        Energy since `Sensors.start` of all processor packages and NVIDIA devices that tell theirs; other programs'
        part of it included.
    temperature
        Degrees Celsius of the hottest sensor now.
    cpu_share
        Processor use of this process since `Sensors.start`, in cores: processor time / elapsed time.
    """

    joules: float | None = None
    temperature: float | None = None
    cpu_share: float | None = None


class Sensors:
    """Reads what can be read; never raises.

    Parameters
    ----------
    powercap
        Folder of the kernel's power zones.
    """

    def __init__(self, powercap: Path = POWERCAP) -> None:
        self._powercap = powercap
        self._energy: dict[str, Counter] = {}
        self._busy: float | None = None
        self._started = perf_counter()

    def start(self) -> None:
        """Begin an interval."""
        self._energy = self._counters()
        self._busy = _cpu_seconds()
        self._started = perf_counter()

    def read(self) -> Reading:
        """Return what happened since `start`; the interval goes on. A counter that wrapped is counted once."""
        elapsed, busy = perf_counter() - self._started, _cpu_seconds()
        share = None
        if busy is not None and self._busy is not None and elapsed > 0:
            share = max(0.0, (busy - self._busy) / elapsed)
        return Reading(self._joules(), temperature(), share)

    def _joules(self) -> float | None:
        now = self._counters()
        spent = [_spent(self._energy[name], now[name]) for name in self._energy if name in now]
        return sum(spent) if spent else None

    def _counters(self) -> dict[str, Counter]:
        return _powercap_counters(self._powercap) | _nvidia_counters()


def _spent(before: Counter, after: Counter) -> float:
    used = after[0] - before[0]
    return used if used >= 0 else used + after[1]


def _powercap_counters(folder: Path) -> dict[str, Counter]:
    """Return one counter per processor package: zones named like intel-rapl:0, whose subzones it includes."""
    found: dict[str, Counter] = {}
    try:
        zones = sorted(folder.glob("*-rapl:*"))
    except OSError:
        return found
    for zone in zones:
        try:
            if zone.name.count(":") != 1 or "mmio" in zone.name:  # parts of a package, and a second way to read it
                continue
            if not (zone / "name").read_text().startswith("package"):  # psys holds the packages once more
                continue
            used, limit = ((zone / name).read_text() for name in ("energy_uj", "max_energy_range_uj"))
            found[zone.name] = int(used) / 1e6, int(limit) / 1e6
        except (OSError, ValueError):
            continue
    return found


def _nvidia_counters() -> dict[str, Counter]:
    """Return one counter per device, since its driver was loaded."""
    try:
        import pynvml  # type: ignore[import-not-found]

        pynvml.nvmlInit()
    except Exception:  # not installed, no driver, no device: each has an error of its own
        return {}
    found: dict[str, Counter] = {}
    for index in range(_device_count(pynvml)):
        try:
            device = pynvml.nvmlDeviceGetHandleByIndex(index)
            found[f"nvidia {index}"] = pynvml.nvmlDeviceGetTotalEnergyConsumption(device) / 1e3, float("inf")
        except Exception:  # older than the counter
            continue
    return found


def _device_count(pynvml: Any) -> int:
    try:
        return int(pynvml.nvmlDeviceGetCount())
    except Exception:  # as above
        return 0


def _cpu_seconds() -> float | None:
    try:
        import psutil

        times = psutil.Process().cpu_times()
    except Exception:  # not installed, or this system does not tell
        return None
    return float(times.user + times.system)
