"""Writing one answer onto the screen, as several verbs do; what was produced survives an interrupt."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Self

from draftwood.cli.render import Writer, console

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from draftwood.api.generation import Generation
    from draftwood.api.text import Piece
    from draftwood.cli.options import Loaded


def write(
    loaded: Loaded, content: Any, settings: dict[str, Any], writer: Writer | None
) -> tuple[Generation, bool]:
    """Write an answer; returns it as far as it came, and whether it was interrupted.

    Parameters
    ----------
    loaded, content, settings
        Model, prompt and settings as `draftwood.stream` takes them.
    writer
        Shows the pieces as they come; None shows nothing.
    """
    from draftwood.api.stream import stream

    with Waiting(loaded.model) as waiting, stream(loaded.model, content, **loaded.objects, **settings) as pieces:
        try:
            for piece in waiting.until_first(pieces, pieces.generation.prompt_tokens):
                if writer is not None:
                    writer.piece(piece)
        except KeyboardInterrupt:
            return pieces.generation, True
    return pieces.generation, False


class Waiting:
    """Shows on a terminal what is going on until the first piece of an answer comes.

    Parameters
    ----------
    model
        Whose target counts the tokens that it reads.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._what, self._before = "preparing", 0
        self._tokens: int | None = None
        self._status = console(sys.stderr).status(self) if sys.stderr.isatty() else None

    def until_first(self, pieces: Iterable[Piece], tokens: int | None = None) -> Iterator[Piece]:
        """Yield the pieces; before the first one a prompt of so many tokens is read (None: unknown)."""
        self._what, self._tokens, self._before = "reading", tokens, self._read
        for piece in pieces:
            self._stop()
            yield piece

    def __rich__(self) -> str:
        """Return what the line says; called for every frame."""
        tokens = "" if self._tokens is None else f" {self._tokens:,} tokens"
        done = self._read - self._before if self._what == "reading" else 0
        if self._tokens is not None and done >= self._tokens:
            return "preparing the drafters …"
        return f"{self._what}{tokens} …" + (f" {done:,} done" if done else "")

    @property
    def _read(self) -> int:
        from draftwood.engines.transformers.shared import known_target

        return getattr(known_target(self._model), "tokens_read", 0)

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
