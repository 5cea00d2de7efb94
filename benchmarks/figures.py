"""Writes docs/figures.md from the result rows in benchmarks/results, the small table of README, and the tables of
docs/llama-cpp.md and docs/llama-cpp-hardware.md.

    python benchmarks/figures.py > docs/figures.md
    python benchmarks/figures.py --readme          # the table that README shows
    python benchmarks/figures.py --llama           # puts the tables into docs/llama-cpp*.md

A test fails where one of them is not what the rows give.
"""

from __future__ import annotations

import argparse
import functools
import sys

import figures_counts
import figures_llama
import figures_speed
from figures_format import Figure, said

HEAD = """# Figures

Made by `python benchmarks/figures.py > docs/figures.md` from [the result rows](../benchmarks/results/README.md); do not edit. A test fails where this page is not what the rows give.

Times are given for default settings only, as they were before smollm2 came with a head ([with it](heads.md#what-to-expect)). They were taken with smollm2 (135 million parameters) on two processor cores while nothing else ran: your model and your machine differ, so [measure them](measuring.md). Counts (tokens per pass) do not depend on the machine; they are given for a fixed number of draft nodes, so that drafters can be compared. The words are those of [words.md](words.md). *Speedup* means: times as fast as plain decoding in the same loop. Intervals are 95 % bootstrap intervals over prompts.

The commands were shortened to file names when the rows were written.
"""  # noqa: E501 - a line per paragraph, as in all of docs/


@functools.cache
def figures() -> list[tuple[str, list[Figure]]]:
    """Chapters of the page, each with its tables."""
    return [
        ("Speed", figures_speed.chapter()),
        ("Tokens per pass", figures_counts.chapter()),
    ]


def page() -> str:
    """Return docs/figures.md."""
    chapters = figures()
    parts = [HEAD]
    parts += [f"- [{figure.title}](#{figure.anchor})" for _, some in chapters for figure in some]
    for title, some in chapters:
        parts += ["", f"## {title}"]
        for figure in some:
            parts += ["", *said(figure)]
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readme", action="store_true", help="print the table of README instead")
    parser.add_argument("--llama", action="store_true", help="put the tables into docs/llama-cpp*.md instead")
    options = parser.parse_args()
    if options.llama:
        for path in figures_llama.PAGES:
            path.write_text(figures_llama.filled(path.read_text(encoding="utf-8")), encoding="utf-8")
        return
    sys.stdout.write(figures_speed.readme_table() + "\n" if options.readme else page())


if __name__ == "__main__":
    main()
