"""Say once per process that something could not be kept for the next start; whatever it was, text goes on."""

from __future__ import annotations

import logging

_LOG = logging.getLogger("draftwood")
_SAID: set[str] = set()


def say_unkept(what: str, reason: object) -> None:
    """Warn that something is not kept; of further things in this process only debuggers hear."""
    _LOG.log(logging.DEBUG if _SAID else logging.WARNING, "%s not kept for the next start: %s", what, reason)
    _SAID.add(what)
