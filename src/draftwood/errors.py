"""The errors that draftwood raises on purpose, and the check of a number that a user gave.

Every message is one sentence that says what is wrong and what to do about it.

::

    DraftwoodError                  exit code 1
    ├── UsageError                  exit code 2: the call itself is wrong (also a ValueError)
    │   ├── UnknownNameError        no drafter, planner, model or option of that name; suggests the nearest
    │   └── PromptError             empty, too long, or of a kind that cannot be read
    ├── ModelError                  a model or its folder cannot be used
    │   ├── ModelNotFoundError      nothing of that name here; says how to get it
    │   ├── UnsupportedModelError   an architecture or setting that is refused by name
    │   └── VocabularyError         tokenizer and model do not belong together
    ├── FetchError                  downloading, checking or unpacking a model failed; nothing was left behind
    ├── CapabilityError             a drafter or setting needs what the target does not offer
    ├── RecordError                 a file of records, traces or a profile cannot be read or written
    ├── FileFormatError             a corpus or memory file is foreign, cut off, damaged or cannot be written
    ├── DrafterError                a drafter (plug-in) breaks the contract, found when it is loaded
    └── IntegrityError              a tree or other structure contradicts itself (also an AssertionError)
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from contextlib import suppress
from operator import index
from typing import Any

LARGEST = sys.float_info.max


class DraftwoodError(Exception):
    """Base of everything raised on purpose; ``exit_code`` is what the command line returns."""

    exit_code = 1


class UsageError(DraftwoodError, ValueError):
    """The call itself is wrong."""

    exit_code = 2


class UnknownNameError(UsageError):
    """No such name of this ``kind`` (``"drafter"``); suggests the nearest, lists the ``known``, says ``more``."""

    def __init__(self, kind: str, name: str, known: Iterable[str], more: str = "") -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        nearest = difflib.get_close_matches(str(name), self.known, n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        listed = ", ".join(self.known) or "none"
        super().__init__(f"unknown {kind} {name!r}: {hint}known: {listed}{more}")


class PromptError(UsageError):
    """The prompt is empty, too long or unreadable."""


class ModelError(DraftwoodError):
    """A model or its folder cannot be used."""


class ModelNotFoundError(ModelError):
    """No model of that name is here; the message says how to get it."""


class UnsupportedModelError(ModelError):
    """An architecture or a setting that is refused by name."""


class VocabularyError(ModelError):
    """Tokenizer and model, or drafter and target, do not share a vocabulary."""


class FetchError(DraftwoodError):
    """Downloading, checking or unpacking a model failed; nothing was left behind."""


class CapabilityError(DraftwoodError):
    """A drafter or a setting needs what the target does not offer."""


class RecordError(DraftwoodError):
    """A file of records, traces or a profile is broken, of another version, or cannot be written."""


class FileFormatError(DraftwoodError):
    """A file of a binary format is foreign, cut, damaged or of a newer version, or cannot be written."""


class DrafterError(DraftwoodError):
    """A drafter breaks the contract, found when it is loaded."""


class IntegrityError(DraftwoodError, AssertionError):
    """A tree or other structure contradicts itself."""


def number(value: Any, low: float, high: float, said: str, *, whole: bool = False) -> Any:
    """Return a number that a user gave, of Python, numpy or torch: an int if it is to be ``whole``, else a float.

    Raises `UsageError` with what is ``said``, where ``{}`` stands for the value, for one that is not between
    ``low`` and ``high`` or is too large for a float, and for all that is no number.
    """
    shown = "one of thousands of digits"
    with suppress(TypeError, ValueError, OverflowError):
        found = index(value) if whole else float(value)
        if not isinstance(value, bool | str | bytes) and low <= float(found) <= high:
            return found
    with suppress(ValueError):  # Python writes no more than 4,300 digits
        shown = f"{value!r:.80}"
    raise UsageError(said.format(shown))
