"""``draftwood chat``: a conversation in which each turn reads only what is new."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from draftwood.api.prompts import render
from draftwood.cli import options, prompt, screen
from draftwood.cli.answering import (
    AnswerWriter,
    Waiting,
    cut_note,
    figures,
    loop_note,
    lossy_note,
    people,
    print_summary,
)
from draftwood.cli.given import Given, Loaded
from draftwood.errors import DraftwoodError, PromptError, UnknownNameError
from draftwood.local.find import cache_folder

if TYPE_CHECKING:
    from draftwood.api.conversation import Conversation
    from draftwood.api.generation import Generation


_COMMAND = re.compile(r"/[A-Za-z?]*")  # "/usr/bin holds what?" is a question, not a command


@options.shared
def chat(
    given: Given,
    system: options.System = None,
    forget: Annotated[
        bool, Option("--forget", help="Drop the oldest turns when the conversation grows too long.")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Chat with a model; /help lists the commands."""
    system, loaded = prompt.read_system(system), given.load().to_the_end(is_chat=True)
    from draftwood.api.conversation import Conversation

    render([{"role": "user", "content": "?"}], loaded.tokenizer)  # refuses a tokenizer without a chat template
    with Conversation(loaded.model, system=system, **loaded.keywords) as conversation:
        Talk(conversation, loaded, forget, quiet=quiet).run()


class Talk:
    """The loop of questions, answers and commands; an error ends it only where questions are piped in."""

    def __init__(self, conversation: Conversation, loaded: Loaded, forget: bool, *, quiet: bool = False) -> None:
        self._conversation, self._loaded, self._forget, self._quiet = conversation, loaded, forget, quiet
        self._most = loaded.most
        self._turns: list[tuple[int, Generation]] = []  # tokens read, and the answer
        self._hinted = False
        self._interactive = sys.stdin.isatty() and sys.stdout.isatty()
        self._commands: dict[str, tuple[str, Callable[[], None]]] = {
            "/help": ("list the commands", self._help),
            "/stats": ("how each answer was made", self._stats),
            "/undo": ("take back the last question and its answer", self._undo),
            "/reset": ("forget everything that was said", self._reset),
            "/exit": (f"leave (so does {prompt.END})", self._leave),
        }

    def run(self) -> None:
        """Answer questions until the user leaves."""
        with ExitStack() as stack:
            if self._interactive:
                if not self._quiet:
                    screen.say(self._loaded.opening, file=sys.stderr)
                    screen.say(f"Ask away; /help lists the commands, Ctrl-C stops an answer, {prompt.END} leaves.")
                stack.enter_context(prompt.history(cache_folder() / "chat-history"))
            for line in self._typed() if self._interactive else prompt.piped():
                try:
                    self._take(line)
                except DraftwoodError as error:
                    if not self._interactive:
                        raise
                    screen.say(f"error: {error}", file=sys.stderr)

    def _typed(self) -> Iterator[str]:
        """Yield what is typed on a terminal; Ctrl-C twice in a row leaves."""
        warned = False
        while True:
            try:
                yield prompt.ask("> ")
                warned = False
            except EOFError:
                screen.say()
                return
            except PromptError as error:
                screen.say(f"error: {error}", file=sys.stderr)
            except KeyboardInterrupt:
                screen.say()
                if warned:
                    raise
                screen.say("(Ctrl-C once more leaves)")
                warned = True

    def _take(self, line: str) -> None:
        word = line.split()[0] if line else ""
        if not _COMMAND.fullmatch(word):
            if line:
                self._answer(line)
        elif word in self._commands:
            self._commands[word][1]()
        else:
            raise UnknownNameError("command", word, self._commands)

    def _answer(self, question: str) -> None:
        conversation = self._conversation
        if dropped := self._make_room(conversation.messages, question):
            turns = "turn was" if dropped == 1 else f"{dropped} turns were"
            self._note(f"(the conversation was full: the oldest {turns} forgotten)")
        writer, before = AnswerWriter(self._loaded.names), len(conversation.messages)
        try:
            with (
                screen.CtrlC() as stop,
                closing(conversation.say(question)) as pieces,
                Waiting(self._loaded.model) as waiting,
            ):
                for piece in waiting.until_first(pieces):
                    writer.piece(piece)
        finally:  # an answer that fails is a turn, too, if it was begun
            if len(conversation.messages) > before:
                self._turns.append((conversation.read, conversation.generation))
        if len(conversation.messages) == before:  # stopped while the question was read
            self._stopped("(stopped before the answer began; the question is forgotten)")
            return
        answer = conversation.generation
        writer.end(answer.text)
        self._tell_of(answer)
        if stop.pressed:
            self._stopped("(stopped; what was said is kept)")

    def _tell_of(self, answer: Generation) -> None:
        """Say how an answer was made, and what cut it."""
        if self._quiet:
            return
        if self._interactive:
            print_summary(people(), answer, self._loaded.names)
        else:
            for note in (lossy_note(answer.rule) if answer.lossy else "", loop_note(answer.ids)):
                if note:
                    self._note(note)
        if not self._hinted and (note := self._loaded.head_note(answer)):
            self._hinted = True
            self._note(note)
        if answer.finish_reason == "length" and answer.prompt_tokens + len(answer.ids) >= self._most:
            self._note(
                f"(the conversation is full, which cut the answer after {len(answer.ids)} tokens: /reset forgets "
                "it all; draftwood chat --forget drops the oldest turns by itself)"
            )
        elif answer.finish_reason is not None and (note := cut_note(self._loaded, answer)):
            self._note(f"({note})")

    def _make_room(self, messages: list[dict[str, str]], question: str) -> int:
        """With --forget drop turns until a question and its answer fit; returns how many. `PromptError` else.

        The room for an answer is its limit, but at most half of the model's context.
        """

        def tokens(said: list[dict[str, str]]) -> list[int]:
            return render([*said, {"role": "user", "content": question}], self._loaded.tokenizer)

        systems = [message for message in messages if message["role"] == "system"]
        if (alone := len(tokens(systems))) >= self._most:
            raise PromptError(
                f"the question has {alone:,} tokens, the model takes {self._most:,} with its answer: shorten it"
            )
        dropped, ids = 0, tokens(messages)
        while self._forget and len(messages) > len(systems):
            if len(ids) + min(self._loaded.request(ids).limit, self._most // 2) <= self._most:
                break
            turns = [number for number, message in enumerate(messages) if message["role"] == "user"]
            del messages[turns[0] : turns[1] if len(turns) > 1 else len(messages)]
            dropped, ids = dropped + 1, tokens(messages)
        if len(ids) >= self._most:
            raise PromptError(
                f"the conversation is full: it has {len(ids):,} tokens with this question, and the model takes "
                f"{self._most:,} with the answer. /reset forgets it all, /undo the last turn; draftwood chat "
                "--forget drops the oldest turns by itself"
            )
        return dropped

    def _note(self, note: str) -> None:
        """Print a note about the conversation, on standard error where answers are piped."""
        screen.say(note, file=sys.stdout if self._interactive else sys.stderr)

    def _stopped(self, note: str) -> None:
        if not self._interactive:
            raise KeyboardInterrupt
        screen.say(note)

    def _help(self) -> None:
        for name, (meaning, _) in self._commands.items():
            screen.say(f"{name:8} {meaning}")

    def _stats(self) -> None:
        for number, (read, answer) in enumerate(self._turns, 1):
            said = ", ".join(figures(answer))
            screen.say(f"turn {number}: read {read} of {answer.prompt_tokens}, wrote {said}")
        if not self._turns:
            screen.say("nothing was said yet")

    def _undo(self) -> None:
        undone = self._conversation.undo()
        del self._turns[len(self._turns) - undone :]
        screen.say("the last question and its answer are forgotten" if undone else "there is nothing to take back")

    def _reset(self) -> None:
        self._conversation.reset()
        self._turns.clear()
        screen.say("everything is forgotten")

    def _leave(self) -> None:
        raise typer.Exit
