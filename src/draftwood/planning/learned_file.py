"""The file that keeps what was learnt: ``draftwood tune`` writes it, planners begin with it (``:tuned=FILE``)."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from draftwood.errors import FileFormatError, UsageError
from draftwood.files.paths import named, whole_file
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.learned import Learned

MAGIC = "draftwood tuned"
FORMAT = 1

_LOG = logging.getLogger("draftwood")
_MOST_CLASSES = 1 << 20
_SAID: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a file keeps.

    Attributes
    ----------
    path
        The file.
    checksum
        Of the learnt: SHA-256, hexadecimal.
    setting
        What its costs depend on, as of `Learned`; None where nobody knew.
    beliefs
        As `Beliefs.to_json` gave them.
    curve
        Cost of a pass over one text; None if none was learnt.
    """

    path: Path
    checksum: str
    setting: Mapping[str, Any] | None
    beliefs: list[dict[str, Any]]
    curve: CostCurve | None

    def start(self, learned: Learned) -> None:
        """Let ``learned`` begin with this, where it knows nothing yet.

        Costs of another setting are left out, and the log says so once.
        """
        fits = self.setting is not None and self.setting == learned.setting
        if self.curve is not None and not fits:
            self._say(_difference(self.setting, learned.setting))
        learned.take(self.checksum, self.beliefs, self.curve if fits else None)

    def _say(self, why: str) -> None:
        if (self.checksum, why) not in _SAID:
            _SAID.add((self.checksum, why))
            _LOG.warning("%s: its costs of passes are not used, %s; its beliefs are", self.path, why)


def write_tuned(path: Path, learned: Learned, tokenizer: str | None = None) -> None:
    """Write what was learnt, whole or not at all.

    Parameters
    ----------
    path
        Its folder is made.
    learned
        Costs are those of passes over one text.
    tokenizer
        The tokenizer's fingerprint, for whoever asks where the file belongs.

    Raises
    ------
    FileFormatError
        If it cannot be written; what stood there before is untouched.
    """
    curve = learned.corrected()
    learnt = {
        "setting": None if learned.setting is None else dict(learned.setting),
        "curve": None if curve is None else curve.to_json(),
        "beliefs": learned.beliefs.to_json(),
    }
    head = {
        "magic": MAGIC,
        "format": FORMAT,
        "draftwood": _version(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "tokenizer": tokenizer,
        "checksum": _checksum(learnt),
    }
    with whole_file(path) as beside:
        beside.write_text(json.dumps(head | learnt) + "\n", encoding="utf-8")


def read_tuned(given: str | Path) -> Tuned:
    """Read a file of `write_tuned`.

    Raises
    ------
    UsageError
        If it cannot be opened.
    FileFormatError
        If it is foreign, cut, damaged or of a later format.
    """
    path = named(given)
    found = _document(path)
    learnt: dict[str, Any] = {name: found.get(name) for name in ("setting", "curve", "beliefs")}
    if found.get("checksum") != _checksum(learnt):
        raise _damaged(path, "its checksum does not fit")
    try:
        curve = None if learnt["curve"] is None else CostCurve.from_json(learnt["curve"])
        setting = None if learnt["setting"] is None else dict(learnt["setting"])
        for entry in learnt["beliefs"]:
            _check(entry)
    except (ArithmeticError, KeyError, TypeError, ValueError, UsageError) as error:
        raise _damaged(path, "its values make no sense") from error
    return Tuned(path, found["checksum"], setting, learnt["beliefs"], curve)


def _document(path: Path) -> dict[str, Any]:
    """What a file of ours holds, as far as its first words tell."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the tuned file {path} cannot be read ({error.strerror}): check its name") from error
    except UnicodeDecodeError as error:
        raise _foreign(path) from error
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.startswith('{"magic": "' + MAGIC):
            raise _damaged(path, "it was cut off or edited") from error
        raise _foreign(path) from error
    if not isinstance(found, dict) or found.get("magic") != MAGIC:
        raise _foreign(path)
    if found.get("format") != FORMAT:
        raise FileFormatError(
            f"{path} has format {found.get('format')}, this version of draftwood reads {FORMAT}: "
            "write it again with draftwood tune"
        )
    return found


def _check(entry: Mapping[str, Any]) -> None:
    """Raise something where one source's rates are none."""
    classes, labels, weight = entry["classes"], entry["labels"], entry["weight"]
    kinds = isinstance(entry["drafter"], str), isinstance(entry["greedy"], bool), isinstance(classes, int)
    if not all(kinds) or not 0 < classes <= _MOST_CLASSES or not math.isfinite(entry["drift"]):
        raise ValueError(entry)
    if not 0 < weight < math.inf:
        raise ValueError(entry)
    for which, hits, totals in labels:
        if not isinstance(which, int) or not 0 <= which < classes or not 0 <= hits <= totals < math.inf:
            raise ValueError(entry)


def _difference(theirs: Mapping[str, Any] | None, ours: Mapping[str, Any] | None) -> str:
    """Say by what two settings differ."""
    if ours is None:
        return "as nobody knows of which model and number format this target is"
    if theirs is None:
        return "they do not say of which model they are"
    other = [name for name in {**ours, **theirs} if theirs.get(name) != ours.get(name)]
    return ", ".join(f"{name} was {theirs.get(name)} and is {ours.get(name)}" for name in other)


def _checksum(learnt: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(learnt, sort_keys=True).encode()).hexdigest()


def _version() -> str | None:
    try:
        return version("draftwood")
    except PackageNotFoundError:
        return None


def _foreign(path: Path) -> FileFormatError:
    return FileFormatError(f"{path} is no file of draftwood tune: write one with draftwood tune -o {path}")


def _damaged(path: Path, why: str) -> FileFormatError:
    return FileFormatError(f"{path} is damaged ({why}): write it again with draftwood tune")
