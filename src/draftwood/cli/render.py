"""How answers look: text coloured by where each token came from, the legend, the summary."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from draftwood.cli import screen
from draftwood.measure.wording import count

if TYPE_CHECKING:
    from rich.console import Console
    from rich.style import Style
    from rich.text import Text

    from draftwood.api.generation import Generation
    from draftwood.measure.compare import PlainAndDrafted

# Colours of the drafters, in their order: of equal, middle brightness, readable on black and on white.
PALETTE = ("#089c39", "#0c8ae5", "#e54b98", "#a06bea", "#d66705")


def people() -> Console:
    """Return where words for people go: standard output on a terminal, else standard error."""
    return screen.console(sys.stdout if sys.stdout.isatty() else sys.stderr)


def styles(drafters: Sequence[str]) -> dict[str, Style]:
    """Return the style of each source; the model's own tokens keep the terminal's colour."""
    from rich.style import Style

    coloured = {name: Style.parse(PALETTE[i % len(PALETTE)]) for i, name in enumerate(dict.fromkeys(drafters))}
    return {"model": Style()} | coloured


def shares(sources: Sequence[str], drafters: Sequence[str], *, colour: bool) -> list[Text]:
    """Say which share of the tokens each source wrote, in its colour."""
    from rich.text import Text

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
    from rich.text import Text

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


def verdict(comparison: PlainAndDrafted) -> str:
    """Say in one line what a comparison found."""
    plain, drafted, speedup = comparison.plain_seconds, comparison.drafted_seconds, comparison.speedup
    if speedup is None:
        return "nothing to compare: the answer took no pass beyond reading the prompt"
    return (
        f"plain {plain:.2f} s, drafted {drafted:.2f} s (medians of {comparison.rounds}): "
        f"{speedup:.2f} times as fast, {sameness(comparison)}"
    )


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
