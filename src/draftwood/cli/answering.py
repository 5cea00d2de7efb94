"""Writes one answer onto the screen, coloured by where each token came from, with legend and summary."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from draftwood.cli import screen
from draftwood.measure.wording import clean, count, doubted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console
    from rich.text import Text

    from draftwood.api.generation import Generation
    from draftwood.api.text import Piece
    from draftwood.cli.given import Loaded
    from draftwood.measure.compare import PlainAndDrafted
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


class AnswerWriter:
    """Writes pieces to standard output as they come; the names of the drafters decide the colours."""

    def __init__(self, drafters: Sequence[str]) -> None:
        from rich.console import COLOR_SYSTEMS

        self._out = sys.stdout
        look = screen.console(self._out)
        self._terminal = self._out.isatty()
        self._colours = None if look.legacy_windows else COLOR_SYSTEMS.get(look.color_system or "")
        self._styles = screen.styles(drafters)
        self._written = 0
        self._last = "\n"

    def piece(self, piece: Piece) -> None:
        """Write a piece in the colour of its source."""
        text = clean(piece.text) if self._terminal else piece.text  # whatever a model writes
        style = self._styles.get(piece.source, self._styles["model"])
        self._out.write(style.render(text, color_system=self._colours))
        self._out.flush()
        self._written += len(piece.text)
        self._last = piece.text[-1:] or self._last

    def end(self, text: str | None) -> None:
        """Write the rest of ``text``, which an interrupt may have cut off, and end the line."""
        from draftwood.api.text import Piece

        self.piece(Piece((text or "")[self._written :], "model"))
        self.line()

    def line(self) -> None:
        """End the line, if one was begun."""
        if self._last != "\n":
            self._out.write("\n")
            self._last = "\n"
        self._out.flush()


class Answering:
    """An answer under way; what was produced survives an interrupt. ``shown`` is its text with what there is to
    say of it, the text alone, or nothing."""

    def __init__(self, loaded: Loaded, content: Any, shown: Literal["all", "text", "nothing"] = "all") -> None:
        self.generation: Generation | None = None
        self.comparison: PlainAndDrafted | None = None
        self._loaded, self._content = loaded, content
        self._writer, self._shown = None if shown == "nothing" else AnswerWriter(loaded.names), shown

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
        """Write the answer several times, plainly and drafted; returns whether it was interrupted.

        The first drafted text is shown as it comes; of other runs a line says which one is running. Where the
        machine was busy, or a speedup is above the tokens per pass, which only noise can do, there is one more
        round.
        """
        from draftwood.measure.compare import PlainAndDrafted, compare

        self.comparison = PlainAndDrafted()
        writer, status = self._writer, screen.Status()

        def begin(arm: str, number: int) -> None:
            streams = writer is not None and (arm, number) == ("drafted", 0)
            if writer is not None and not streams:
                writer.line()
            status.say("reading the prompt …" if streams else f"timing round {number + 1} of {rounds}: {arm} …")

        def piece(piece: Piece) -> None:
            if writer is not None:
                status.__exit__()
                writer.piece(piece)

        model, how = self._loaded.model, {"into": self.comparison, **self._loaded.keywords}
        with screen.CtrlC() as stop, status:
            compare(model, self._content, rounds=rounds, on_round=begin, on_piece=piece, **how)
            busy = bool(self.comparison.rounds and not self.comparison.quiet)
            if busy or doubted(self.comparison.speedup, self.comparison.most_speedup):
                status.say(
                    f"{'the machine is busy' if busy else 'these times are impossible'}: timing once more …"
                )
                compare(model, self._content, rounds=1, **how | {"seed": self.comparison.plain[0].seed})
        self.generation = next(iter(self.comparison.drafted), None)
        return stop.pressed

    def end(self) -> None:
        """Write the rest of the text, which an interrupt may have cut off, and end its line."""
        if self._writer is not None:
            self._writer.end(None if self.generation is None else self.generation.text)

    def finish(self, to: Console | None = None, *, iterations: bool = False) -> None:
        """Write the rest of the text, the iterations if they are asked for, legend and summary."""
        from draftwood.cli.iterations import print_iterations

        self.end()
        if self._shown != "all" or self.generation is None or not self.generation.ids:  # interrupted early
            return
        to = to or people()
        if iterations:
            decode = screen.shower(self._loaded.tokenizer, special=True)
            print_iterations(to, self.generation, self._loaded.names, decode)
        print_summary(to, self.generation, self._loaded.names)
        if self.comparison is not None and self.comparison.rounds:
            print_flow(to, verdict(self.comparison), ", ")
        elif note := cut_note(self._loaded, self.generation):
            screen.say(note, file=sys.stderr)
        speedup = None if self.comparison is None else self.comparison.speedup
        if note := self._loaded.head_note(self.generation, speedup):
            screen.say(note, file=sys.stderr)


class Waiting(screen.Status):
    """Shows on a terminal what is going on until the first piece of an answer comes."""

    def __init__(self, model: Any) -> None:
        from draftwood.api.target import target_of

        self._target, self._begun, self._tokens = target_of(model), 0, ""
        super().__init__(self)

    def until_first(self, pieces: Iterable[Piece], tokens: int | None = None) -> Iterator[Piece]:
        """Yield the pieces; before the first one a prompt of so many tokens is read (None: unknown)."""
        self._tokens, self._begun = f" {tokens:,} tokens" if tokens else "", self._target.tokens_read
        for piece in pieces:
            self.__exit__()
            yield piece

    def __rich__(self) -> str:
        """Return what the line says; called for every frame."""
        return f"reading{self._tokens} … {self._target.tokens_read - self._begun:,} done"


def people() -> Console:
    """Return the console for legends and notes: standard output on a terminal, else standard error."""
    return screen.console(sys.stdout if sys.stdout.isatty() else sys.stderr)


def shares(sources: Sequence[str], drafters: Sequence[str], *, colour: bool) -> list[Text]:
    """Say which share of the tokens each source wrote, in its colour."""
    from rich.text import Text

    found = []
    for name, style in screen.styles(drafters).items():
        if n := sources.count(name):
            who = "written by the model" if name == "model" else f"drafted by {name}"
            found.append(Text(f"{'■ ' if colour else ''}{who} {100 * n / len(sources):.0f} %", style))
    return found


def figures(generation: Generation) -> list[str]:
    """Say in a few figures how the answer was made."""
    rates = generation.stats
    drafted = any(step.drafted for step in generation.steps)
    return [
        count(len(generation.ids), "token"),
        count(rates.passes, "pass", "passes"),
        f"{rates.mean_acceptance_length:.2f} tokens per pass",
        f"acceptance rate {100 * rates.acceptance_rate:.0f} %" if drafted else "nothing drafted",
        f"{rates.tokens_per_second:.1f} tokens/s",
    ]


def print_flow(to: Console, parts: Sequence[str | Text], separator: str, style: str = "") -> None:
    """Print parts with separators between, broken into lines between parts only, where the console is narrow."""
    from rich.cells import cell_len
    from rich.text import Text

    lines = [Text()]
    for number, part in enumerate(parts):
        text = Text.assemble(part, separator if number + 1 < len(parts) else "")
        if lines[-1] and lines[-1].cell_len + cell_len(text.plain.rstrip(" ·")) > to.width:
            lines.append(Text())
        lines[-1].append_text(text)
    for line in lines:
        line.rstrip()
        line.remove_suffix(" ·")
        line.stylize_before(style)
        to.print(line)


def print_summary(to: Console, generation: Generation, drafters: Sequence[str]) -> None:
    """Print legend and summary."""
    colour = to.color_system is not None
    if to.is_terminal:  # the text stands right above
        to.print()
    print_flow(to, shares(generation.sources, drafters, colour=colour), ", ")
    print_flow(to, figures(generation), " · ", "dim" if colour else "")
    if generation.lossy:
        to.print(lossy_note(generation.rule))
    if note := loop_note(generation.ids):
        to.print(note)


def lossy_note(rule: str) -> str:
    """Say that a text was written by a lossy rule."""
    return f"lossy: by the rule {rule} this text may differ from that of plain decoding"


def cut_note(loaded: Loaded, answer: Generation) -> str:
    """Say what cut an answer; nothing where the model, or a grammar, has ended it."""
    after, size = f"after {count(len(answer.ids), 'token')}", len(answer.ids) + answer.prompt_tokens
    if answer.finish_reason is None:
        return f"stopped by Ctrl-C {after}"
    if answer.finish_reason == "stop" and loaded.given.asked is None:
        return f"ended by a stop string {after}"
    if answer.finish_reason != "length":
        return ""
    if size >= loaded.most:
        return f"cut {after}: the context of {loaded.most:,} tokens is full"
    return f"cut {after}: -n N allows N tokens, -n -1 as many as fit"


def loop_note(ids: Sequence[int]) -> str:
    """Say that an answer ends in a loop; nothing where it does not."""
    from draftwood.tasks import looped_tail

    start = looped_tail(ids)
    if start == len(ids):
        return ""
    said = f"the last {len(ids) - start} tokens only repeat themselves, which flatters any drafter"
    return f"{said}; --repeat-penalty 1.1 may help"


def verdict(comparison: PlainAndDrafted) -> list[str]:
    """Say in parts of one line what a comparison found."""
    plain, drafted = comparison.plain_seconds, comparison.drafted_seconds
    if not plain or not drafted:
        return ["nothing to compare: the answer took no pass beyond reading the prompt"]
    rounds = len(comparison.quiet) or comparison.rounds
    return [
        f"plain {plain:.2f} s",
        f"drafted {drafted:.2f} s (medians of {rounds}): {faster(comparison)}",
        sameness(comparison),
    ]


def faster(comparison: PlainAndDrafted) -> str:
    """Say how much faster drafted decoding was, or why that cannot be said."""
    speedup = comparison.speedup
    if speedup is None:
        return f"not comparable, since {next(iter(comparison.busy.values()), 'there was no pass')}"
    odd = " (above the tokens per pass, which only noise can do)"
    return f"{speedup:.2f} times as fast" + odd * doubted(speedup, comparison.most_speedup)


def sameness(comparison: PlainAndDrafted) -> str:
    """Say whether the texts were identical, and if not, where they part."""
    if comparison.identical:
        return "identical to the last token"
    where = f"token {comparison.parted_at}"
    if comparison.lossy:
        return f"changed by the lossy rule {comparison.lossy} from {where} on"
    if comparison.margin is None:
        return f"NOT identical: they part at {where} (see docs/exactness.md)"
    return f"NOT identical: they part at {where}, where the two best scores differ by {comparison.margin:.1e}"
