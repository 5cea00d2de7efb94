"""Writes one answer onto the screen, plainly or compared; what was produced survives an interrupt."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Self

from draftwood.cli import screen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

    from draftwood.api.generation import Generation
    from draftwood.api.text import Piece
    from draftwood.cli.given import Loaded
    from draftwood.measure.compare import Comparison
    from draftwood.measure.records.records import Answer


def recorded(
    loaded: Loaded, generation: Generation, number: int = 0, task: str = "live", name: str = "answer", **more: Any
) -> Answer:
    """Return an answer as files of records hold it."""
    from draftwood.measure.records.records import Answer, token_texts

    ids, given = generation.ids, loaded.given
    return Answer(
        number, task, name, given.label, drafters=loaded.names, planner=given.planner, output_ids=ids,
        pieces=token_texts(ids, loaded.tokenizer), steps=generation.steps,
        finish_reason=generation.finish_reason, seed=generation.seed,
        rule=generation.rule if generation.lossy else None, **more,
    )  # fmt: skip


class Answering:
    """An answer under way; what was produced survives an interrupt. ``quiet`` shows nothing."""

    def __init__(self, loaded: Loaded, content: Any, *, quiet: bool = False) -> None:
        from draftwood.cli.render import AnswerWriter

        self.generation: Generation | None = None
        self.comparison: Comparison | None = None
        self._loaded, self._content = loaded, content
        self._writer = None if quiet else AnswerWriter(loaded.names)

    def write(self, *, trace: bool = False) -> bool:
        """Write the answer; returns whether it was interrupted. ``trace`` keeps the tree of each step."""
        from draftwood.api.stream import stream

        model = self._loaded.model
        with (
            Waiting(model) as waiting,
            stream(model, self._content, trace=trace, **self._loaded.keywords) as pieces,
            screen.CtrlC() as stop,
        ):
            for piece in waiting.until_first(pieces, pieces.generation.prompt_tokens):
                if self._writer is not None:
                    self._writer.piece(piece)
        self.generation = pieces.generation
        return stop.pressed

    def compare(self, rounds: int) -> bool:
        """Write the answer several times, plainly and drafted; returns whether it was interrupted."""
        from draftwood.cli.render import Rounds
        from draftwood.measure.compare import Comparison, compare

        self.comparison = Comparison()
        with screen.CtrlC() as stop, Rounds(rounds, self._writer) as progress:
            compare(
                self._loaded.model, self._content, rounds=rounds, into=self.comparison,
                on_round=progress.begin, on_piece=progress.piece, **self._loaded.keywords,
            )  # fmt: skip
        self.generation = next(iter(self.comparison.drafted), None)
        return stop.pressed

    def end(self) -> None:
        """Write what an interrupt kept from being written of the text, and end its line."""
        if self._writer is not None:
            self._writer.end(None if self.generation is None else self.generation.text)

    def finish(self, to: Console | None = None, *, iterations: bool = False) -> None:
        """Write the rest of the text, the iterations if they are asked for, legend and summary."""
        from draftwood.cli.iterations import print_iterations
        from draftwood.cli.render import people, print_flow, print_summary, verdict

        self.end()
        if self._writer is None or self.generation is None or not self.generation.ids:  # interrupted early
            return
        to = to or people()
        if iterations:
            print_iterations(to, self.generation, self._loaded.names, self._loaded.tokenizer)
        print_summary(to, self.generation, self._loaded.names)
        if self.comparison is not None and self.comparison.rounds:
            print_flow(to, verdict(self.comparison).split(", "), ", ")


class Waiting:
    """Shows on a terminal what is going on until the first piece of an answer comes."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._what, self._before = "preparing", 0
        self._tokens: int | None = None
        self._status = screen.console(sys.stderr).status(self) if sys.stderr.isatty() else None

    def until_first(self, pieces: Iterable[Piece], tokens: int | None = None) -> Iterator[Piece]:
        """Yield the pieces; before the first one a prompt of so many tokens is read (None: unknown)."""
        self._what, self._tokens, self._before = "reading", tokens, self._read
        for piece in pieces:
            self.__exit__()
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
        from draftwood.api.target import target_of

        return target_of(self._model).tokens_read

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
