"""Sensors on made-up folders and libraries: they read what is there and never raise."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import psutil
import pytest

from draftwood.measure.sensors import Reading, Sensors


@pytest.fixture(autouse=True)
def no_library_tells(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(psutil, "sensors_temperatures", dict, raising=False)


def zone(folder, name, label, used, limit=1_000_000):
    place = folder / name
    place.mkdir(exist_ok=True)
    for file, value in (("name", label), ("energy_uj", used), ("max_energy_range_uj", limit)):
        (place / file).write_text(f"{value}\n")


def test_packages_count_once(tmp_path):
    def all_use(used):
        zone(tmp_path, "intel-rapl:0", "package-0", used)
        zone(tmp_path, "intel-rapl:1", "package-1", used)
        for name, label in (
            ("intel-rapl:0:0", "core"),
            ("intel-rapl:2", "psys"),
            ("intel-rapl-mmio:0", "package-0"),
        ):
            zone(tmp_path, name, label, used)

    all_use(100_000)
    sensors = Sensors(tmp_path)
    sensors.start()
    all_use(350_000)
    assert sensors.read().joules == pytest.approx(0.5)


def test_a_counter_that_began_anew(tmp_path):
    zone(tmp_path, "intel-rapl:0", "package-0", 900_000)
    sensors = Sensors(tmp_path)
    sensors.start()
    zone(tmp_path, "intel-rapl:0", "package-0", 100_000)
    assert sensors.read().joules == pytest.approx(0.2)


def test_no_sensor_is_not_zero(tmp_path):
    zone(tmp_path, "intel-rapl:0", "package-0", "broken")
    (tmp_path / "intel-rapl:1").mkdir()
    sensors = Sensors(tmp_path)
    sensors.start()
    reading = sensors.read()
    assert (reading.joules, reading.temperature) == (None, None)
    assert Sensors(tmp_path / "nowhere").read() == Reading()


def test_processor_use_is_told_in_cores(tmp_path, monkeypatch):
    monkeypatch.setattr("draftwood.measure.sensors.perf_counter", iter([10.0, 14.0]).__next__)
    monkeypatch.setattr("draftwood.measure.sensors.process_time", iter([1.0, 3.0]).__next__)
    sensors = Sensors(tmp_path)
    sensors.start()
    assert sensors.read().cpu_share == pytest.approx(2.0 / 4.0)


def test_the_hottest_sensor(tmp_path, monkeypatch):
    entries = {"a": [SimpleNamespace(current=40.0), SimpleNamespace(current=71.5)], "b": []}
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: entries, raising=False)
    assert Sensors(tmp_path).read().temperature == 71.5


def test_devices_that_tell_their_energy(tmp_path, monkeypatch):
    used = {0: 5000, 1: None}

    def energy(device):
        if used[device] is None:
            raise RuntimeError("not supported")
        return used[device]

    monkeypatch.setitem(
        sys.modules,
        "pynvml",
        SimpleNamespace(
            nvmlInit=lambda: None,
            nvmlDeviceGetCount=lambda: 2,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceGetTotalEnergyConsumption=energy,
        ),
    )
    sensors = Sensors(tmp_path)
    sensors.start()
    used[0] = 7500
    assert sensors.read().joules == pytest.approx(2.5)


def test_libraries_that_are_missing_or_fail(tmp_path, monkeypatch):
    def fails(*_):
        raise OSError("no such thing")

    monkeypatch.setattr(psutil, "sensors_temperatures", fails, raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(nvmlInit=lambda: None, nvmlDeviceGetCount=fails))
    sensors = Sensors(tmp_path)
    for psutil_or_none in (psutil, None):
        monkeypatch.setitem(sys.modules, "psutil", psutil_or_none)
        sensors.start()
        assert (sensors.read().joules, sensors.read().temperature) == (None, None)
