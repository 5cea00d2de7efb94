"""A text that nobody has asked for, written when a server starts: kernels are loaded before a client waits."""

from __future__ import annotations

import secrets
from typing import Any

from draftwood.decoding.request import Emission
from draftwood.serve.job import Job
from draftwood.serve.worker import Worker

_TOKENS = 6
_PROMPT = 16
"""Tokens, which repeat themselves, so that drafters find something; too few for the kept prefixes."""


def warm_up(worker: Worker, setup: Any) -> None:
    """Let the worker write a few tokens, which are in no metric and no memory; it goes first in the queue.

    On a new machine this compiles kernels, for some ten seconds; later it loads them from disk.
    """
    ids = [token % setup.target.capabilities.vocab_size for token in (5, 6, 7, 8)] * (_PROMPT // 4)
    request = setup.request(ids, max_new_tokens=_TOKENS, temperature=0.7, stop=[])
    worker.inbox.put([Job(request, _ignore, secrets.token_hex())])


def _ignore(emission: Emission) -> None:
    """Nobody waits for it."""
