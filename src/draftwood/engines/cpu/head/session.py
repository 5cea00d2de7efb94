"""One text in a head's cache on the CPU engine."""

from __future__ import annotations

from collections.abc import Sequence

from draftwood.contracts import Floats
from draftwood.engines.cpu.pages import Page, Pages
from draftwood.engines.heads.text import HeadText


class HeadSession(HeadText[Floats]):
    """A head's keys and values of one text, in pages; grown nodes lie in the cells behind its pairs.

    Parameters
    ----------
    page_bytes, token_bytes
        Of a page, and of the keys and values of one pair.
    pages
        Of the pairs of another text that it begins with.
    """

    def __init__(self, page_bytes: int, token_bytes: int, pages: Sequence[Page] = ()) -> None:
        super().__init__()
        self._page_bytes, self._token_bytes = page_bytes, token_bytes
        self.pages = Pages(page_bytes, pages)

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of the committed pairs."""
        return self._token_bytes * self.length

    @property
    def nbytes(self) -> int:
        """The same, for whoever keeps it for later texts."""
        return self.cache_bytes

    def truncate(self, position: int) -> None:
        before = self.length
        super().truncate(position)
        if self.length < before:
            self.pages.cut(self.length)

    def fork(self) -> HeadSession:
        """Return an independent copy, which shares pages."""
        twin = HeadSession(self._page_bytes, self._token_bytes, self.pages.share(self.length))
        twin.take(self)
        return twin

    def close(self) -> None:
        """Free the cache."""
        self.truncate(0)
        self.pages = Pages(self._page_bytes)
