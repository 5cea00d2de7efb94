"""Text for HTML and JSON inside HTML: escaped, control characters made visible, numbers formatted."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any

# Answers may hold anything. Control characters become their Unicode pictures; half of a surrogate pair, which no
# file can hold, becomes the replacement character.
_HARMLESS = {c: 0x2400 + c for c in range(32) if chr(c) not in "\n\t"} | {0x7F: 0x2421}
_HARMLESS |= dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000)), 0xFFFD)


def clean(text: str) -> str:
    """Return text without characters that a browser would obey or refuse."""
    return text.translate(_HARMLESS)


def esc(text: object) -> str:
    """Return text for HTML, attributes in double quotes included."""
    return html.escape(clean(str(text)))


def data(value: Any) -> str:
    """Return JSON for a script element: nothing in it can end the element or open a comment."""
    said = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return said.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def number(value: float | None, digits: int = 2, factor: float = 1.0) -> str:
    """Format a number; nothing for None."""
    return "" if value is None else f"{factor * value:.{digits}f}"


def percent(value: float | None) -> str:
    """Format a share; nothing for None."""
    return "" if value is None else f"{100 * value:.0f}\N{NO-BREAK SPACE}%"


def listed(words: Iterable[str]) -> str:
    """Return ``a, b and c``."""
    *most, last = [*words] or [""]
    return f"{', '.join(most)} and {last}" if most else last


def count(n: int, one: str, many: str = "") -> str:
    """Return ``1 prompt`` or ``2 prompts``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def place(share: float) -> str:
    """Return a share of a width as an SVG length."""
    return f"{100 * share:.3g}%" if abs(share) < 0.1 else f"{100 * share:.4g}%"
