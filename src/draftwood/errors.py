"""The errors that draftwood raises on purpose.

Every message is one sentence that says what is wrong and what to do about it.

::

    DraftwoodError                  exit code 1
    ├── UsageError                  exit code 2: the call itself is wrong (also a ValueError)
    │   ├── UnknownNameError        a drafter, planner, model or option nobody knows; names the nearest
    │   └── PromptError             empty, too long, or of a kind that cannot be read
    ├── ModelError                  a model or its folder cannot be used
    │   ├── ModelNotFoundError      nothing of that name here; says how to get it
    │   ├── UnsupportedModelError   an architecture or setting that is refused by name
    │   └── VocabularyError         tokenizer and model do not belong together
    ├── FetchError                  downloading, checking or unpacking a model failed; nothing was left behind
    ├── CapabilityError             a drafter or setting asks for what the target does not offer
    ├── RecordError                 a file of rows, traces or a profile cannot be read or written
    ├── FileFormatError             a file of ours (corpus, memory) is foreign, cut, damaged, unwritable
    ├── DrafterError                a drafter (plug-in) breaks the contract, found when it is loaded
    └── IntegrityError              a structure disagrees with itself (also an AssertionError)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DraftwoodError(Exception):
    """Base of everything raised on purpose; ``exit_code`` is what the command line returns."""

    exit_code = 1


class UsageError(DraftwoodError, ValueError):
    """The call itself is wrong."""

    exit_code = 2


class UnknownNameError(UsageError):
    """A name that nobody knows.

    Parameters
    ----------
    kind
        What was looked for, for example ``"drafter"``.
    name
        What the caller wrote.
    known
        The names that exist; the nearest is suggested, all are listed.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        nearest = difflib.get_close_matches(str(name), self.known, n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        listed = ", ".join(self.known) or "none"
        super().__init__(f"unknown {kind} {name!r}: {hint}known: {listed}")


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
    """A drafter or a setting asks for what the target does not offer."""


class RecordError(DraftwoodError):
    """A file of rows, traces or a profile is broken, of another version, or cannot be written."""


class FileFormatError(DraftwoodError):
    """A file of a binary format is foreign, cut, damaged or of a newer version, or cannot be written."""


class DrafterError(DraftwoodError):
    """A drafter breaks the contract, found when it is loaded."""


class IntegrityError(DraftwoodError, AssertionError):
    """A structure disagrees with itself."""
