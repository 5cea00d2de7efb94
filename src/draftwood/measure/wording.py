"""Text and numbers as people read them, in terminals and on pages."""

from __future__ import annotations

# Control characters become their Unicode pictures; half a surrogate pair, which UTF-8 cannot encode, becomes the
# replacement character.
_HARMLESS = {c: 0x2400 + c for c in range(32) if chr(c) not in "\n\t"} | {0x7F: 0x2421}
_HARMLESS |= dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000)), 0xFFFD)


def clean(text: str) -> str:
    """Return text without control characters and lone surrogates."""
    return text.translate(_HARMLESS)


def count(n: int, one: str, many: str = "") -> str:
    """Return ``1 node`` or ``2 nodes``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def share(value: float) -> str:
    """Return a share as ``62 %`` or ``3.4 %``, with two significant digits."""
    return f"{100 * value:{'.2g' if value < 0.0995 else '.0f'}} %"


IMPOSSIBLE = "?: above what its tokens per pass allow, which only noise can do: measure again"


_CLOCK = 1.05  # equal passes differ by so much in time


def doubted(speedup: float | None, most: float | None) -> bool:
    """Return whether a speedup is above the tokens per pass, ``most``, by more than clocks explain: a pass that
    checks guesses takes no less time than one without. Not where either is unknown."""
    return speedup is not None and bool(most) and speedup > _CLOCK * (most or 0.0)


def ratio(speedup: float | None, most: float | None) -> str:
    """Format a speedup, with a question mark where it is `doubted`; nothing for None."""
    return number(speedup) + "?" * doubted(speedup, most)


def number(value: float | None, digits: int = 2, factor: float = 1.0) -> str:
    """Format a number; nothing for None."""
    return "" if value is None else f"{factor * value:.{digits}f}"


def percent(value: float | None) -> str:
    """Format a share; nothing for None."""
    return "" if value is None else f"{100 * value:.0f} %"
