"""How answers look: text coloured by where each token came from, the legend, the summary."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from rich.console import COLOR_SYSTEMS, Console
from rich.style import Style
from rich.text import Text

from draftwood.api.generation import Generation
from draftwood.api.text import Piece
from draftwood.cli import screen
from draftwood.measure.wording import clean, count

if TYPE_CHECKING:
    from draftwood.measure.compare import Comparison

# Colours of the drafters, in their order: of equal, middle brightness, readable on black and on white.
PALETTE = ("#089c39", "#0c8ae5", "#e54b98", "#a06bea", "#d66705")


def people() -> Console:
    """Return where words for people go: standard output on a terminal, else standard error."""
    return screen.console(sys.stdout if sys.stdout.isatty() else sys.stderr)


def styles(drafters: Sequence[str]) -> dict[str, Style]:
    """Return the style of each source; the model's own tokens keep the terminal's colour."""
    coloured = {name: Style.parse(PALETTE[i % len(PALETTE)]) for i, name in enumerate(dict.fromkeys(drafters))}
    return {"model": Style()} | coloured


class AnswerWriter:
    """Writes pieces to standard output as they come; the names of the drafters decide the colours."""

    def __init__(self, drafters: Sequence[str]) -> None:
        self._out = sys.stdout
        look = screen.console(self._out)
        self._terminal = self._out.isatty()
        self._colours = None if look.legacy_windows else COLOR_SYSTEMS.get(look.color_system or "")
        self._styles = styles(drafters)
        self._written = 0
        self._last = "\n"

    def piece(self, piece: Piece) -> None:
        """Write a piece in the colour of its source."""
        text = clean(piece.text) if self._terminal else piece.text  # whatever a model writes
        style = self._styles.get(piece.source, Style())
        self._out.write(style.render(text, color_system=self._colours))
        self._out.flush()
        self._written += len(piece.text)
        self._last = piece.text[-1:] or self._last

    def end(self, text: str | None) -> None:
        """Write what an interrupt kept from being written of the whole ``text``, and end the line."""
        self.piece(Piece((text or "")[self._written :], "model"))
        self.line()

    def line(self) -> None:
        """End the line, if one was begun."""
        if self._last != "\n":
            self._out.write("\n")
            self._last = "\n"
        self._out.flush()


class Rounds:
    """Shows which run of a comparison is under way, and by ``writer``, if any, the first drafted text."""

    def __init__(self, rounds: int, writer: AnswerWriter | None) -> None:
        self._rounds, self._writer = rounds, writer
        self._status = screen.console(sys.stderr).status("") if sys.stderr.isatty() else None

    def begin(self, arm: str, number: int) -> None:
        """Note that a run begins."""
        streams = self._writer is not None and (arm, number) == ("drafted", 0)
        if self._writer is not None and not streams:
            self._writer.line()
        if self._status is not None:
            what = "reading the prompt" if streams else f"timing round {number + 1} of {self._rounds}: {arm}"
            self._status.update(f"{what} …")
            self._status.start()

    def piece(self, piece: Piece) -> None:
        """Write a piece of the run that is shown."""
        if self._writer is not None:
            self.__exit__()
            self._writer.piece(piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()


def shares(sources: Sequence[str], drafters: Sequence[str], *, colour: bool) -> list[Text]:
    """Say which share of the tokens each source wrote, in its colour."""
    found = []
    for name, style in styles(drafters).items():
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
        f"mean acceptance length {rates.mean_acceptance_length:.2f}",
        f"acceptance rate {100 * rates.acceptance_rate:.0f} %" if drafted else "nothing drafted",
        f"{rates.tokens_per_second:.1f} tokens/s",
    ]


def print_flow(to: Console, parts: Sequence[str | Text], separator: str, style: str = "") -> None:
    """Print parts with separators between, broken into lines between parts only, where the console is narrow."""
    lines = [Text()]
    for number, part in enumerate(parts):
        text = Text.assemble(part, separator if number + 1 < len(parts) else "")
        if lines[-1] and lines[-1].cell_len + len(text.plain.rstrip()) > to.width:
            lines.append(Text())
        lines[-1].append_text(text)
    for line in lines:
        line.rstrip()
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
        print_flow(to, lossy_note(generation.rule).split(" "), " ")
    if note := loop_note(generation.ids):
        print_flow(to, note.split(" "), " ")


def lossy_note(rule: str) -> str:
    """Say that a text was written by a lossy rule."""
    return f"lossy: by the rule {rule} this text may differ from that of plain decoding"


def loop_note(ids: Sequence[int]) -> str:
    """Say that an answer ends in a loop; nothing where it does not."""
    from draftwood.tasks import looped_tail

    start = looped_tail(ids)
    if start == len(ids):
        return ""
    return f"the last {len(ids) - start} tokens only repeat themselves, which flatters any drafter"


def verdict(comparison: Comparison) -> str:
    """Say in one line what a comparison found."""
    plain, drafted, speedup = comparison.plain_seconds, comparison.drafted_seconds, comparison.speedup
    if speedup is None:
        return "nothing to compare: the answer took no pass beyond reading the prompt"
    return (
        f"plain {plain:.2f} s, drafted {drafted:.2f} s (medians of {comparison.rounds}): "
        f"{speedup:.2f} times as fast, {sameness(comparison)}"
    )


def sameness(comparison: Comparison) -> str:
    """Say whether the texts were identical, and if not, where they part."""
    if comparison.identical:
        return "identical to the last token"
    where = f"token {comparison.parted_at}"
    if comparison.lossy:
        return f"changed by the lossy rule {comparison.lossy} from {where} on"
    if comparison.margin is None:
        return f"NOT identical: they part at {where} (see docs/exactness.md)"
    return f"NOT identical: they part at {where}, where the two best scores differ by {comparison.margin:.1e}"
