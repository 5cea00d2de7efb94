"""Takes this machine's places out of rows that are to be committed: of a path only the file's name stays.

    python benchmarks/places.py rows.jsonl -o benchmarks/results/llama-bench-Q4_0.jsonl.zst

Only lines that say how something was measured are changed (headers, sittings), not prompts and answers.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from draftwood.measure.records.lines import read_lines, write_whole

PATH = re.compile(r"""(?<![^\s"'=,(\[])(?:~|\.{1,2}|[A-Za-z]:)?[/\\](?:[^\s"'/\\]+[/\\])*(?=[^\s"'/\\])""")
"""The folders before a file's name, where they begin at a root, at home or in this folder."""

ORIGINS = frozenset({"header", "resumed"})


def bare(value: Any) -> Any:
    """Return a copy of what a JSON line holds, with every path cut down to its last part."""
    if isinstance(value, dict):
        return {name: bare(member) for name, member in value.items()}
    if isinstance(value, list):
        return [bare(member) for member in value]
    return PATH.sub("", value) if isinstance(value, str) else value


def tells_origin(line: dict[str, Any]) -> bool:
    """Return whether a line says how others were measured."""
    return line.get("row") in ORIGINS or "provenance" in line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    lines = (line for _, line in read_lines(options.rows))
    write_whole(options.output, (bare(line) if tells_origin(line) else line for line in lines))


if __name__ == "__main__":
    main()
