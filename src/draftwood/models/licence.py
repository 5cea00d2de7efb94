"""The licence of a fetched model as plain text, also where the wheel holds it as a web page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_BLOCKS = {"p", "h1", "h2", "h3", "h4", "li", "div", "tr", "br"}
_HIDDEN = {"script", "style", "nav", "button", "devsite-feedback"}


class _ArticleText(HTMLParser):
    """Collects the visible text of a page from its heading to the end of the ``<article>``."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._article = False
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 - parent's signature
        self._article |= tag == "h1"
        self._hidden += tag in _HIDDEN
        if tag in _BLOCKS:
            self.pieces.append("\n\n")

    def handle_endtag(self, tag: str) -> None:
        self._article &= tag != "article"
        self._hidden -= tag in _HIDDEN

    def handle_data(self, data: str) -> None:
        if self._article and not self._hidden:
            self.pieces.append(" ".join(data.split("\n")))


def licence_text(raw: bytes, member: str) -> str:
    """Return the plain text of a licence; ``member`` is its file name, which says whether it is HTML."""
    text = raw.decode("utf-8")
    if not member.endswith(".html"):
        return text
    parser = _ArticleText()
    parser.feed(text)
    joined = re.sub(r"[ \t]+", " ", "".join(parser.pieces))
    return re.sub(r"\s*\n\s*\n\s*", "\n\n", joined).strip() + "\n"
