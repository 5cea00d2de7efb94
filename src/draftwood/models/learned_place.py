"""Keep what planners learn about a model from one process to the next: rates and seconds, one small file each.

A file is named after all that its numbers depend on: model, number format, packing, threads, device, machine,
draftwood's version and the format. One that is damaged costs a note in the log and is written anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from draftwood.errors import FileFormatError
from draftwood.files.paths import whole_file
from draftwood.files.unkept import say_unkept
from draftwood.models.find import cache_folder, find
from draftwood.models.machine import machine
from draftwood.models.profile_place import Setting
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.learned import FORMAT, Learned, from_record, to_record

_LOG = logging.getLogger("draftwood")
_SWITCH = "DRAFTWOOD_LEARNED"
_MOST_BYTES = 1 << 20
_MOST_FILES = 64  # the oldest go
_WEIGHTS = ("*.gguf", "*.safetensors", "*.bin", "config.json")
_SAID: set[Path] = set()


def is_kept() -> bool:
    """Whether anything is kept or read; ``DRAFTWOOD_LEARNED=off`` in the environment says no."""
    return os.environ.get(_SWITCH, "").lower() not in ("off", "0", "no", "false")


def switch(*, keep: bool) -> None:
    """Switch keeping on or off for this process."""
    os.environ[_SWITCH] = "on" if keep else "off"


def folder() -> Path:
    """Return the folder of the files, which need not exist."""
    return cache_folder() / "learned"


def files() -> list[Path]:
    """Return the files there are, the oldest first."""
    dated = []
    for path in folder().glob("*.json"):
        with suppress(OSError):  # another process removed it
            dated.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(dated)]


def place_of(setting: Setting, *, packed: bool) -> Path:
    """Return the file of a model under a setting, which need not exist."""
    facts = (
        version("draftwood"),
        FORMAT,
        tuple(setting),
        packed,
        machine(setting.device.partition(":")[0]),
        stamp(setting.model),
    )
    return folder() / f"{hashlib.sha256(repr(facts).encode()).hexdigest()[:24]}.json"


def stamp(model: str) -> Sequence[tuple[str, int, int]]:
    """Return names, sizes and times of a model's files; nothing where it is no file or folder of this machine."""
    try:
        place = Path(find(model))
        found = [path for kind in _WEIGHTS for path in sorted(place.glob(kind))] if place.is_dir() else [place]
        stats = [(path.name, path.stat()) for path in found]
    except Exception:  # a hub name, or a model that was moved since it was loaded
        return ()
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def read(path: Path, curve: CostCurve | None) -> Learned | None:
    """Return what was kept in a file, on top of a curve; None where there is nothing of use."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError("it is too large")
        return from_record(json.loads(path.read_bytes()), curve)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:  # whatever it holds, it must not stop a call
        if path not in _SAID:
            _SAID.add(path)
            _LOG.warning("%s is not used (%s): it will be written anew", path, error)
        return None


def write(path: Path, learned: Learned) -> None:
    """Write what was learnt, if the folder can be written to; of several processes the last one counts."""
    record = to_record(learned)
    try:
        with whole_file(path) as beside:
            beside.write_text(json.dumps(record, allow_nan=False), encoding="ascii")
        others = [old for old in files() if old != path]  # after a jump of the clock the new one may seem old
        for old in others[: 1 - _MOST_FILES]:
            old.unlink(missing_ok=True)
    except (FileFormatError, OSError, ValueError) as error:
        if path not in _SAID:  # of a damaged file it was said already
            _SAID.add(path)
            say_unkept("what was learnt about this model is", error)
