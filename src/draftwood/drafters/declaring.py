"""What a drafter declares of users' texts and of files; one that declares nothing takes and opens none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftwood.contracts import Takes, TokenFile
from draftwood.errors import DrafterError

NOTHING = Takes()


def takes_of(drafter: Any) -> Takes:
    """Return which of a user's texts this drafter takes.

    Raises
    ------
    DrafterError
        If ``takes`` is no `Takes`, or there is no ``with_user_texts`` to hand the texts to.
    """
    takes = getattr(drafter, "takes", NOTHING)
    if not isinstance(takes, Takes):
        raise DrafterError(f"drafter {drafter.name!r}: 'takes' must be a draftwood.contracts.Takes, not {takes!r}")
    if takes != NOTHING and not callable(getattr(drafter, "with_user_texts", None)):
        raise DrafterError(f"drafter {drafter.name!r} takes texts of the user and has no 'with_user_texts'")
    return takes


def files_of(drafter: Any) -> Sequence[TokenFile]:
    """Return what this drafter declares of the files that it opened.

    Raises
    ------
    DrafterError
        If one of ``files`` is no `TokenFile`.
    """
    files: Sequence[TokenFile] = getattr(drafter, "files", ())
    if not all(isinstance(file, TokenFile) for file in files):
        raise DrafterError(f"drafter {drafter.name!r}: 'files' must be a list of draftwood.contracts.TokenFile")
    return files
