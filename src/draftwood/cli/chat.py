"""``draftwood chat``: a conversation in which each turn reads only what is new."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from draftwood.cli import options
from draftwood.cli.options import Given, Loaded

if TYPE_CHECKING:
    from draftwood.api.conversation import Conversation
    from draftwood.api.generation import Generation

_COMMAND = re.compile(r"/[A-Za-z?]*")  # "/usr/bin holds what?" is a question, not a command


def chat(
    model: options.Model = options.MODEL_DEFAULT,
    drafters: options.Drafters = options.DRAFTERS_DEFAULT,
    planner: options.PlannerName = options.PLANNER_DEFAULT,
    prediction: options.Prediction = None,
    memory: options.Memory = None,
    corpus: options.Corpus = None,
    context: options.Context = None,
    max_new_tokens: options.MaxNewTokens = None,
    temperature: options.Temperature = 0.0,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    repetition_penalty: options.RepetitionPenalty = None,
    seed: options.Seed = None,
    stop: options.Stop = None,
    system: options.System = None,
    dtype: options.Dtype = "float32",
    threads: options.Threads = None,
    pack: options.Pack = True,
) -> None:
    """Talk with a model; /help lists what else can be said."""
    given = Given(
        model, drafters, planner, dtype, threads, pack, max_new_tokens,
        temperature, top_k, top_p, min_p, repetition_penalty, seed, stop,
        options.read_sources(prediction, memory, corpus, context),
    )  # fmt: skip
    loaded = given.load()
    from draftwood.api.conversation import Conversation
    from draftwood.api.messages import render

    render([{"role": "user", "content": "?"}], loaded.tokenizer)  # refuses a tokenizer without a chat template
    with Conversation(
        loaded.model, tokenizer=loaded.tokenizer, system=system, drafters=loaded.drafters,
        planner=loaded.planner, **loaded.sources, **given.settings,
    ) as conversation:  # fmt: skip
        Talk(conversation, loaded).run()


class Talk:
    """The loop of questions, answers and commands.

    On a terminal, errors are shown and the talk goes on; where a script speaks, the first one ends it.
    """

    def __init__(self, conversation: Conversation, loaded: Loaded) -> None:
        self._conversation, self._names = conversation, loaded.names
        self._turns: list[tuple[int, Generation]] = []  # tokens read, and the answer
        self._interactive = sys.stdin.isatty() and sys.stdout.isatty()
        self._commands: dict[str, tuple[str, Callable[[], None]]] = {
            "/help": ("list the commands", self._help),
            "/stats": ("how each answer was made", self._stats),
            "/undo": ("take back the last question and its answer", self._undo),
            "/reset": ("forget everything that was said", self._reset),
            "/exit": ("leave (so does Ctrl-D)", self._leave),
        }

    def run(self) -> None:
        """Talk until somebody leaves."""
        from draftwood.errors import DraftwoodError

        if self._interactive:
            print("Ask away; /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.")
        with suppress(_Left):
            for line in self._lines():
                try:
                    self._take(line)
                except DraftwoodError as error:
                    if not self._interactive:
                        raise
                    print(f"error: {error}", file=sys.stderr)

    def _lines(self) -> Iterator[str]:
        """Yield what is said, line by line; Ctrl-C twice in a row leaves."""
        if not self._interactive:
            yield from map(str.strip, sys.stdin)
            return
        with suppress(ImportError):
            import readline  # noqa: F401 - gives input() its editing and history, where there is one
        warned = False
        while True:
            try:
                line = input("> ").strip()
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                print()
                if warned:
                    raise
                print("(Ctrl-C once more leaves)")
                warned = True
                continue
            warned = False
            yield line

    def _take(self, line: str) -> None:
        if not line:
            return
        word = line.split()[0]
        if not _COMMAND.fullmatch(word):
            self._answer(line)
            return
        if word not in self._commands:
            from draftwood.errors import UnknownNameError

            raise UnknownNameError("command", word, self._commands)
        self._commands[word][1]()

    def _answer(self, question: str) -> None:
        from draftwood.cli.render import Writer, people, print_summary

        conversation = self._conversation
        writer, before = Writer(self._names), len(conversation.messages)
        pieces = conversation.say(question)
        stopped = False
        try:
            for piece in pieces:
                writer.piece(piece)
        except KeyboardInterrupt:
            stopped = True
        finally:
            pieces.close()
        if len(conversation.messages) == before:  # stopped while the question was read
            self._stopped("(stopped before the answer began; the question is forgotten)")
            return
        answer = conversation.generation
        writer.end(answer.text)
        self._turns.append((conversation.read, answer))
        if self._interactive:
            print_summary(people(), answer, self._names)
        if stopped:
            self._stopped("(stopped; what was said is kept)")

    def _stopped(self, note: str) -> None:
        if not self._interactive:
            raise KeyboardInterrupt
        print(note)

    def _help(self) -> None:
        for name, (meaning, _) in self._commands.items():
            print(f"{name:8} {meaning}")

    def _stats(self) -> None:
        for number, (read, answer) in enumerate(self._turns, 1):
            rates = answer.stats
            print(
                f"turn {number}: read {read} of {answer.prompt_tokens}, wrote {len(answer.ids)} in "
                f"{rates.passes} passes, mean acceptance length {rates.mean_acceptance_length:.2f}, "
                f"acceptance rate {100 * rates.acceptance_rate:.0f} %, {rates.tokens_per_second:.1f} tokens/s"
            )
        if not self._turns:
            print("nothing was said yet")

    def _undo(self) -> None:
        messages = self._conversation.messages
        if not messages or messages[-1]["role"] != "assistant":
            print("there is nothing to take back")
            return
        del messages[-2:]
        print("the last question and its answer are forgotten")

    def _reset(self) -> None:
        self._conversation.reset()
        self._turns.clear()
        print("everything is forgotten")

    def _leave(self) -> None:
        raise _Left


class _Left(Exception):  # noqa: N818 - no error
    """Somebody said /exit."""
