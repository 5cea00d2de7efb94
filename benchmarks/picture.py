"""Draws the picture of the README: a code edit by smollm2, coloured by where each token came from.

python benchmarks/picture.py            # writes docs/picture.svg
"""

from __future__ import annotations

import argparse
import html
import io
import re
from pathlib import Path

from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.text import Text

import draftwood
from draftwood.cli.render import coloured, legend, summary
from draftwood.drafters.load import load
from draftwood.tasks import prompts

WIDTH = 88
NAME = "fnmatch.filter"
# The picture must not fetch a font from anywhere; whoever looks at it has a monospaced one.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "Fira Code, monospace", "Fira Code, Menlo, Consolas, DejaVu Sans Mono, monospace"
)

CHARACTER = 20 * 0.61  # width of one, as rich draws it


def pin_words(svg: str) -> str:
    """Begin and end every piece of text at a letter: viewers disagree on spaces at the edge of a text element."""

    def pin(found: re.Match[str]) -> str:
        before, x, y, after, content = found.groups()
        text = html.unescape(content)
        word = text.strip("\xa0\n ")
        if not word:
            return ""
        start = float(x) + CHARACTER * (len(text) - len(text.lstrip("\xa0 ")))
        content = html.escape(word, quote=False).replace("\xa0", "&#160;")
        return (
            f'<text{before} x="{start:g}" y="{y}" textLength="{CHARACTER * len(word):g}"{after}>{content}</text>'
        )

    number = r'"([\d.]+)"'
    return re.sub(rf'<text([^>]*?) x={number} y={number} textLength="[\d.]+"([^>]*)>([^<]*)</text>', pin, svg)


def draw(out: Path, drafters: str) -> None:
    model, tokenizer = draftwood.load("smollm2")
    prompt = next(p for p in prompts("code-edit") if p.name == NAME)
    names = [d.name for d in load(drafters)]
    pieces = []
    with draftwood.stream(
        model, list(prompt.messages), tokenizer=tokenizer, drafters=drafters, max_new_tokens=128
    ) as answer:
        pieces += answer
    made = answer.generation
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ draftwood generate @{NAME}.txt --chat", "dim"))
    console.print()
    console.print(coloured(pieces, names))
    console.print()
    console.print(legend(made.sources, names, colour=True))
    # Speed depends on the machine and would make every drawing another one; the table beside it has it.
    console.print(Text(summary(made).rpartition(" · ")[0], "dim"))
    svg = console.export_svg(title="draftwood", code_format=FORMAT, unique_id="draftwood")
    out.write_text(pin_words(svg), encoding="utf-8")
    print(f"wrote {out}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/picture.svg"))
    parser.add_argument("--drafters", default="default")
    options = parser.parse_args()
    draw(options.out, options.drafters)


if __name__ == "__main__":
    main()
