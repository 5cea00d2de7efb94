"""What was found out about models on this machine, kept in the cache folder from one start to the next.

Trials are numbers that an engine found out about a model; what was learnt are rates and seconds of planners: one
small JSON file each, named after all that it depends on. Profiles are files of records that ``draftwood profile``
writes. Nothing here can change a text; a file that is damaged costs a line in the log and is written anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from draftwood.contracts import Target
from draftwood.errors import FileFormatError
from draftwood.files.paths import say_unkept, whole_file
from draftwood.local.catalogue import CATALOGUE
from draftwood.local.crowding import Others
from draftwood.local.find import cache_folder, find, model_folder
from draftwood.local.machine import cores, machine

TRIAL, LEARNED = "trial", "learned"
"""The kinds of small files."""

_LOG = logging.getLogger("draftwood")
_SWITCH = "DRAFTWOOD_LEARNED"
_MOST_BYTES = 1 << 20
_MOST_FILES = 64  # of one kind, three or so per model; the oldest go
_WEIGHTS = ("*.gguf", "*.safetensors", "*.bin", "config.json")
_said: set[Path] = set()  # files of which a warning was given


def folder() -> Path:
    """Return the folder of the small files, which need not exist."""
    return cache_folder() / "found"


def files(kind: str) -> list[Path]:
    """Return the files of a kind, the oldest first."""
    dated = []
    for path in folder().glob(f"{kind}-*.json"):
        with suppress(OSError):  # another process removed it
            dated.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(dated)]


def place_of(kind: str, key: object) -> Path:
    """Return the file of what was found under a key, which need not exist."""
    return folder() / f"{kind}-{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}.json"


def read(path: Path) -> Any:
    """Return the JSON value in a small file; None where there is none of use."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError("it is too large")
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:  # whatever it holds, it must not stop a call
        say_unused(path, error, "it will be written anew")
        return None


def say_unused(path: Path, error: Exception, remedy: str) -> None:
    """Warn once that a file is not used."""
    if path not in _said:
        _said.add(path)
        _LOG.warning("%s is not used (%s): %s", path, error, remedy)


def write(path: Path, value: Any) -> None:
    """Write a small file, if the folder can be written to; of several processes the last one counts."""
    kind = path.name.partition("-")[0]
    try:
        with whole_file(path) as new:
            new.write_text(json.dumps(value, allow_nan=False), encoding="ascii")
        others = [old for old in files(kind) if old != path]  # after a jump of the clock the new one may seem old
        for old in others[: 1 - _MOST_FILES]:
            old.unlink(missing_ok=True)
    except (FileFormatError, OSError, ValueError) as error:
        say_unkept("what was found out about this model is", error)


def remembered(key: str) -> int | None:
    """Return the number that a trial found; None if it is not known."""
    found = read(place_of(TRIAL, key))
    return found if _is_count(found) else None


def remembered_list(key: str) -> list[int] | None:
    """Return the numbers that a trial found; None if they are not known."""
    found = read(place_of(TRIAL, key))
    return found if isinstance(found, list) and all(map(_is_count, found)) else None


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def remember(key: str, found: int | list[int]) -> None:
    """Keep what a trial found."""
    write(place_of(TRIAL, key), found)


def learning_is_kept() -> bool:
    """Return whether what planners learn is kept; ``DRAFTWOOD_LEARNED=off`` in the environment says no."""
    return os.environ.get(_SWITCH, "").lower() not in ("off", "0", "no", "false")


def keep_no_learning() -> None:
    """Neither read nor keep what planners learn in this process."""
    os.environ[_SWITCH] = "off"


class Setting(NamedTuple):
    """What the cost of a pass depends on, apart from the machine."""

    model: str  # a catalogue name, folder, GGUF file or hub name
    dtype: str  # "float32"; on our own engine the type of its matrices: "Q4_1"
    threads: int
    device: str = "cpu"


def threads_of(facts: Mapping[str, Any]) -> int | None:
    """Return how many cores of the processor the threads of a `Setting` use; None where it is not known."""
    return facts.get("threads") if facts.get("device", "cpu") == "cpu" else 1


def setting_of(model: Any) -> Setting | None:
    """Return the setting of a loaded model, of whichever engine; None if the model does not say its name."""
    own = model.setting if isinstance(model, Target) else _of_transformers(model)
    return own and own._replace(model=_catalogue_name(own.model) or own.model)


def watch(model: Any) -> Callable[[], str]:
    """Return what says what other programs take of the machine from now on, where they leave fewer cores than the
    threads of this model can use; else it returns nothing."""
    others, setting = Others(), setting_of(model)
    threads = threads_of(setting._asdict()) if setting is not None else None
    return lambda: others.busy(threads or cores())


def _of_transformers(model: Any) -> Setting | None:
    import torch

    dtype, name = str(model.dtype).removeprefix("torch."), model.config._name_or_path
    return Setting(name, dtype, torch.get_num_threads(), model.device.type) if name else None


def stamp(model: str) -> Sequence[tuple[str, int, int]]:
    """Return names, sizes and times of a model's files; nothing where it is no file or folder of this machine."""
    try:
        place = Path(str(find(model)))
        found = [path for kind in _WEIGHTS for path in sorted(place.glob(kind))] if place.is_dir() else [place]
        stats = [(path.name, path.stat()) for path in found]
    except Exception:  # a hub name, or a model that was moved since it was loaded
        return ()
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def profile_path(model: str, dtype: str, threads: int, device: str = "cpu") -> Path:
    """Return where the profile of this model on this machine belongs, whether or not it is there."""
    parts = (_slug(model), _safe(dtype), f"{threads}threads", _safe(device), machine(device))
    return cache_folder() / "profiles" / f"{'-'.join(parts)}.jsonl"


def newest_profile(model: str) -> Path | None:
    """Return the file of the newest profile of this model here, whatever its number format and threads."""
    name = re.compile(rf"{re.escape(_slug(model))}-[\w.]+-\d+threads-(\w+)-(\w{{8}})")
    ours = []
    for path in (cache_folder() / "profiles").glob("*.jsonl"):
        found = name.fullmatch(path.stem)
        if found and found[2] == machine("cuda" if found[1].startswith("cuda") else "cpu"):
            ours.append(path)
    return max(ours, key=lambda path: path.stat().st_mtime, default=None)


def _slug(model: str) -> str:
    """Return the model as part of a file name; folders with the same last name get different ones."""
    if (known := _catalogue_name(model)) is not None:
        return _safe(known)
    if not Path(model).exists():
        return _safe(model)
    place = Path(model).resolve()
    return f"{_safe(place.name)}-{hashlib.sha256(os.fsencode(place)).hexdigest()[:8]}"


def _catalogue_name(model: str) -> str | None:
    """Return the catalogue name of a model given by that name, the folder it was fetched to, or its GGUF file."""
    if model in CATALOGUE:
        return model
    if not Path(model).exists():
        return None
    for name, known in CATALOGUE.items():
        folder = model_folder(name).resolve()
        if Path(model).resolve() in (folder, folder / known.gguf):
            return name
    return None


def _safe(name: str) -> str:
    return re.sub(r"[^\w.]+", "_", name)
