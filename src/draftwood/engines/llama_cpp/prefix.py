"""What llama.cpp's cache holds of a text's beginning, outside of the cache, for texts that begin alike."""

from __future__ import annotations

from dataclasses import dataclass

from draftwood.engines.llama_cpp.session import LlamaSession
from draftwood.engines.llama_cpp.weights import Weights


@dataclass(frozen=True, slots=True, eq=False)
class SavedState:
    """The cells of a text.

    Attributes
    ----------
    ids
        The text.
    cells
        Keys and values, as llama.cpp writes them.
    """

    ids: tuple[int, ...]
    cells: bytearray

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return len(self.cells)


def save(weights: Weights, session: LlamaSession) -> SavedState | None:
    """Copy what a session has committed; None if that is nothing, or not of use to another text.

    That is where layers have a window, whose older cells are gone, or a state, which belongs to one length alone.
    """
    if weights.window or weights.is_recurrent:
        return None
    session.undo()
    ids, cells = tuple(session.ids), session.mode.cache.copied(session.text)
    return SavedState(ids, cells) if ids else None


def fill(session: LlamaSession, saved: SavedState, length: int) -> None:
    """Make the first ``length`` tokens of what was saved the committed text of a new session."""
    session.mode.cache.paste(session.text, saved.cells, len(saved.ids))
    session.commit(saved.ids)
    session.truncate(length)
