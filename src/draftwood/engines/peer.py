"""What the bench asks of a peer, which is another engine's own way to decode and draft, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from draftwood.contracts import Sampling

PANGRAM = "The quick brown fox jumps over the lazy dog."  # tokenizers of one vocabulary split it alike


@dataclass(slots=True)
class PeerAnswer:
    """What a peer wrote, and when."""

    ids: list[int]  # new tokens only, the end token included
    # (tokens so far, seconds since the call): first after reading the prompt, then after each pass;
    # a peer that does not report passes has two: the first token and the last.
    arrivals: list[tuple[int, float]]
    prefill_s: float  # seconds until the first entry
    decode_s: float  # seconds from there to the last token
    drafted: int | None = None  # draft tokens scored in decode passes, and accepted; None: not reported
    accepted: int | None = None
    passes: int | None = None  # after the one that read the prompt; None where not reported
    text: str | None = None  # where the peer returns it too


class Peer(Protocol):
    """Another engine's decoding by the same weights; ``name`` as typed, ``engine`` transformers or llama.cpp."""

    name: str
    engine: str

    def answer(self, ids: Sequence[int], limit: int, *, end_ids: frozenset[int], sampling: Sampling) -> PeerAnswer:
        """Write at most ``limit`` tokens after the prompt ``ids``, up to the first of ``end_ids``; `UsageError`
        for a sampling that the engine does not have."""
        ...

    def close(self) -> None:
        """Free what the peer holds; it may be asked again, and then starts again."""
        ...


@dataclass(frozen=True, slots=True)
class PeerName:
    """A peer's name taken apart: its engine, the method ("" is plain) and every option of it."""

    name: str
    engine: str
    method: str
    options: Mapping[str, Any]  # numbers, and the name of an assistant
