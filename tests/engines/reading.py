"""The ways in which a text comes into a target's cache: each must leave the same scores behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from draftwood.tree import TokenTree

Row = Any
FAR = 3000
"""Tokens that a client announces who sets no limit."""


def ways_of_reading(target: Any, text: Sequence[int], rng: Random) -> Iterator[tuple[str, Row]]:
    """Read a text of two tokens or more in each way; yields what was done, and the scores behind the text."""
    for way in (_at_once, _in_pieces, _behind_a_kept_prefix, _after_an_edit, _behind_drafts):
        sessions: list[Any] = []
        yield way.__name__, way(target, list(text), rng, sessions)
        for session in sessions:
            session.close()


def _open(target: Any, text: list[int], rng: Random, sessions: list[Any]) -> Row:
    """Begin a text, as much as the model takes of it, with any announcement of how long it will become."""
    given = text[: target.capabilities.max_positions]
    ((session, scores),) = target.open([given], reserve=rng.choice([0, 1, FAR]))
    sessions.append(session)
    return scores.raw(0)


def _rest(target: Any, session: Any, text: list[int]) -> Row:
    """Read what a session lacks, which is all of it where a window or a state let its beginning go."""
    (scores,) = target.extend([(session, text[session.length :])])
    return scores.raw(0)


def _at_once(target: Any, text: list[int], rng: Random, sessions: list[Any]) -> Row:
    return _open(target, text, rng, sessions)


def _in_pieces(target: Any, text: list[int], rng: Random, sessions: list[Any]) -> Row:
    row = _open(target, text[: rng.randrange(1, len(text))], rng, sessions)
    while (length := sessions[0].length) < len(text):
        row = _rest(target, sessions[0], text[: length + rng.randrange(1, 1 + len(text) - length)])
    return row


def _behind_a_kept_prefix(target: Any, text: list[int], rng: Random, sessions: list[Any]) -> Row:
    known = rng.randrange(1, len(text))
    _open(target, [*text[:known], *text[: rng.randrange(40)]], rng, sessions)
    kept = target.save(sessions[0])
    if kept is None:  # models with a window or a state keep none
        return _open(target, text, rng, sessions)
    sessions.append(target.resume(kept, known, reserve=rng.choice([0, FAR])))
    return _rest(target, sessions[-1], text)


def _after_an_edit(target: Any, text: list[int], rng: Random, sessions: list[Any]) -> Row:
    known = rng.randrange(1, len(text))
    _open(target, [*text[:known], *text[::-1]], rng, sessions)
    sessions[0].truncate(known)
    return _rest(target, sessions[0], text)


def _behind_drafts(target: Any, text: list[int], rng: Random, sessions: list[Any]) -> Row:
    """As the answer to an earlier turn: some tokens were accepted drafts, with wrong ones beside them."""
    begun = rng.randrange(1, len(text))
    _open(target, text[:begun], rng, sessions)
    for _ in range(3):
        begun, most = sessions[0].length, min(5, target.capabilities.max_pass - 1)
        right = text[begun + 1 : begun + most]
        if len(text) - begun < 2 + len(right):
            break
        target.score([(sessions[0], text[begun], TokenTree.build([*right, right[0] ^ 1] if right else []))])
        sessions[0].keep(list(range(len(right))))
    return _rest(target, sessions[0], text)
