"""What the drafter ``parrot`` suggests, counted in a few lines of Python."""

from __future__ import annotations

from collections.abc import Sequence

WALK = 2048


def naive_suggest(
    text: Sequence[int], until: int, order: int, p: float, nodes: int
) -> list[tuple[int, int, int, int]]:
    """Suggest tokens after ``text`` from what followed what in ``text[:until]``.

    Returns per suggested token: the token, the size of the longest context that occurred, how often that was
    followed by any token and by this one. Contexts are looked for where `_compared` says.
    """
    found: list[tuple[int, int, int, int]] = []
    tail, promised = list(text), 1.0
    while len(found) < nodes:
        compared = _compared(text[:until], tail, order - 1)
        for size in range(min(order - 1, len(tail)), -1, -1):
            context = tail[len(tail) - size :]
            ends = [i for i in range(size, until) if i in compared] if size else range(until)
            followers = [text[i] for i in ends if list(text[i - size : i]) == context]
            if followers:
                break
        else:
            break
        best = max(dict.fromkeys(followers), key=lambda token: _rank(followers, token))
        count = followers.count(best)
        promised *= count / len(followers)
        if promised < p:
            break
        found.append((best, size, len(followers), count))
        tail.append(best)
    return found


def _compared(text: Sequence[int], tail: Sequence[int], most: int) -> set[int]:
    """Ends of contexts that share the last token, the latest first until ``WALK`` tokens were the same in all."""
    ends: set[int] = set()
    same = 0
    for end in range(len(text), 0, -1):
        if text[end - 1] == tail[-1] and same < WALK:
            ends.add(end)
            pairs = [(text[end - n], tail[-n]) for n in range(1, 1 + min(most, end, len(tail)))]
            same += next((n for n, (a, b) in enumerate(pairs) if a != b), len(pairs))
    return ends


def _rank(followers: list[int], token: int) -> tuple[int, int]:
    """How often, then how late it reached that often."""
    return followers.count(token), max(i for i, t in enumerate(followers) if t == token)
