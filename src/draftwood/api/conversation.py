"""A conversation, whose turns read only what is new."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import ExitStack
from inspect import GEN_CLOSED, GEN_RUNNING, getgeneratorstate
from threading import Lock, get_ident
from typing import Any, Self
from weakref import ref

from draftwood.api.generation import Generation
from draftwood.api.prompts import render
from draftwood.api.setup import Setup
from draftwood.api.stream import pieces
from draftwood.api.text import Piece
from draftwood.api.user_texts import Prediction
from draftwood.decoding.sequence import ActiveSequence
from draftwood.errors import UsageError


class Conversation:
    """Keeps one text, the model's cache of it and the drafters open across turns.

    For each turn the chat template is rendered anew and compared with the cached text: the longest common prefix
    is kept, and the rest is read. So earlier messages may be edited.

    It writes one answer at a time. While a thread reads an answer, questions of other threads raise a
    `UsageError`; a question of the same thread ends the answer.

    Parameters
    ----------
    model
        As in `generate`.
    system
        A system message; None leaves it to the template.
    settings
        As in `generate`, but for ``batch_size``. ``prediction`` is text that is expected in every answer; `say`
        takes one for a single answer. A memory that was given as a file is saved by `close`.

    Attributes
    ----------
    messages : list of dict
        The history; edit it freely between turns.
    read
        How many tokens the last turn had to read.
    generation
        The last answer.
    """

    def __init__(self, model: Any, *, system: str | None = None, **settings: Any) -> None:
        self._setup = Setup.of(model, settings, "system")
        self._expected = self._setup.predicting(self._setup.texts.prediction)
        if settings.get("seed") is None:  # one seed for the whole conversation
            settings["seed"] = secrets.randbits(32)
        self._settings = settings
        self._system = system
        self._open = ExitStack()
        self._sequence: ActiveSequence | None = None
        self._contents: Any = None  # of the model when the sequence was opened
        self._lock = Lock()
        self._answer: tuple[int, ref[Generator[Piece]]] | None = None  # the thread that asked last, and its answer
        self.messages: list[dict[str, str]] = []
        self.read = 0
        self.generation = Generation()
        self.reset()

    def reset(self) -> None:
        """Forget all messages but the system message."""
        with self._lock:
            self._end_answer()
        self._open.close()
        self._sequence = None
        self.messages = [{"role": "system", "content": self._system}] if self._system is not None else []

    def undo(self) -> bool:
        """Remove the last question and its answer; False if there is none."""
        self._end_answer()
        asked = [i for i, message in enumerate(self.messages) if message["role"] == "user"]
        if asked:
            del self.messages[asked[-1] :]
        return bool(asked)

    def say(self, text: str, *, prediction: Prediction | None = None) -> Generator[Piece]:
        """Send a message; yields the answer piece by piece.

        Closing the generator, or an interrupt, ends the answer; what was written stays in ``messages``.
        ``prediction`` is text expected in this answer, in place of what is expected in every one. `UsageError`
        while another thread reads an answer of this conversation.
        """
        answer = self._say(text, prediction)
        with self._lock:
            self._end_answer()
            self._answer = get_ident(), ref(answer)  # weak, so that an answer that its reader drops ends at once
        return answer

    def _end_answer(self) -> None:
        """End the answer under way, if there is one; `UsageError` if another thread reads it or it is running."""
        thread, answer = (0, None) if self._answer is None else (self._answer[0], self._answer[1]())
        if answer is None or getgeneratorstate(answer) == GEN_CLOSED:
            return
        if thread != get_ident() or getgeneratorstate(answer) == GEN_RUNNING:
            raise UsageError(
                "an answer of this conversation is still being written: read it to its end or close it first, and "
                "open a Conversation per thread"
            )
        answer.close()

    def _say(self, text: str, prediction: Prediction | None) -> Generator[Piece]:
        self.messages.append({"role": "user", "content": text})
        try:
            sequence = self._turn(prediction)
        except BaseException:
            self.messages.pop()  # the message was not answered
            raise
        self.generation = self._setup.generation(sequence.request)
        try:
            yield from pieces(self._setup, [sequence], [self.generation])
        finally:
            self.messages.append({"role": "assistant", "content": self.generation.text or ""})

    def _turn(self, prediction: Prediction | None) -> ActiveSequence:
        ids = render(self.messages, self._setup.tokenizer)
        self._setup.refresh()
        drafters = self._setup.predicting(prediction) or self._expected or self._setup.drafters
        request = self._setup.on_the_model(self._setup.request(ids, drafters=drafters, **self._settings))
        if self._expected is not None and prediction is None:
            self._expected = tuple(request.drafters or ())
        target = self._setup.target
        contents = target.contents()
        if self._sequence is not None and (self._sequence.target is not target or contents != self._contents):
            self._open.close()  # the cache is another model's
            self._sequence = None
        if self._sequence is None:
            (self._sequence,) = self._open.enter_context(self._setup.open([request]))
            self.read, self._contents = len(ids), contents
        else:
            self.read = self._sequence.turn(request)
        return self._sequence

    def close(self) -> None:
        """End the answer, free the cache, and save the memory if it was given as a file."""
        self._end_answer()
        with self._setup.saving():
            self._open.close()
            self._sequence = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
