"""Keys and values of texts, in pages that texts with the same beginning share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.code.cells import PAGE

Page = NDArray[np.int16]


class Pages:
    """The pages of one text. ``addresses`` int64 holds where each page lies, for compiled code, at ``address``.

    Pages that came from another text, or that `share` gave to one, are copied before they are written to. A page
    takes memory only where it was written.
    """

    def __init__(self, page_bytes: int, pages: Sequence[Page] = ()) -> None:
        self._page_bytes = page_bytes
        self._pages = list(pages)
        self._shared = len(self._pages)
        self.addresses = np.zeros(max(16, len(self._pages)), dtype=np.int64)
        self._ready = 0  # cells before this one have a page
        self._note(0)

    def _note(self, first: int) -> None:
        count, addresses = len(self._pages), self.addresses
        if count > len(addresses):
            addresses = np.concatenate((addresses, np.zeros(count, dtype=np.int64)))
        for i in range(first, count):
            addresses[i] = self._pages[i].ctypes.data
        # In this order: after an interrupt the address is that of a table that is alive, and the pages not ready.
        self._ready = 0
        self.addresses, self.address = addresses, int(addresses.ctypes.data)
        self._ready = count * PAGE

    def make_ready(self, first: int, end: int) -> None:
        """Make cells from ``first`` up to ``end`` this text's own, so that they may be written."""
        if end <= self._ready and first >= self._shared * PAGE:
            return
        page = first // PAGE
        for i in range(page, self._shared):
            self._pages[i] = self._pages[i].copy()
        while len(self._pages) * PAGE < end:
            self._pages.append(np.empty(self._page_bytes // 2, dtype=np.int16))
        self._note(page)
        self._shared = min(self._shared, page)  # last: after an interrupt the pages still count as shared

    def end(self, page: int, size: int) -> NDArray[np.uint8]:
        """Return the last bytes of a page, which hold no cells."""
        return self._pages[page].view(np.uint8)[-size:]

    def clear(self) -> None:
        """Write zeros to all cells, for passes whose results are not read."""
        for page in self._pages:
            page[:] = 0

    def share(self, length: int) -> list[Page]:
        """Return the pages of the first ``length`` cells for another text; from now on both may only read them."""
        count = -(-length // PAGE)
        self._shared = max(self._shared, count)
        return self._pages[:count]

    def cut(self, length: int) -> None:
        """Give back pages after the first ``length`` cells, but for one that the next tokens will need."""
        count = -(-length // PAGE) + 1
        if count < len(self._pages):
            self._ready = min(self._ready, count * PAGE)  # first: no interrupt may leave such cells ready
            self._shared = min(self._shared, count)
            del self._pages[count:]
