"""What the scripts share: result rows, the tables of docs/figures.md, and how rows are made ready to be committed.

    python benchmarks/results.py rows.jsonl -o benchmarks/results/llama-bench-Q4_0.jsonl.zst

takes this machine's places out of rows: of a path only the file's name stays. Only lines that say how something
was measured are changed (headers, sittings), not prompts and answers.
"""

from __future__ import annotations

import argparse
import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftwood.decoding.sequence import common_prefix
from draftwood.files.lines import read_lines, write_whole
from draftwood.measure.records.records import Answer, Records, read_records

OTHERS = ("drafted", "server")
"""What llama.py compares with our plain loop."""

RESULTS = Path(__file__).parent / "results"
_NO_RECORDS = ("passes.jsonl", "forced-", "gpu", "llama-passes-", "llama-exact-")
"""How the names of files of JSON lines begin that are no records files."""


@dataclass(frozen=True)
class Figure:
    """One table with what has to be known to read it.

    Attributes
    ----------
    title, about
        Heading, and the sentences above the table.
    files
        Result files that it is made from.
    table
        Markdown.
    """

    title: str
    about: str
    files: tuple[str, ...]
    table: str

    @property
    def anchor(self) -> str:
        """The heading's address within the page, as GitHub makes it."""
        return re.sub(r"[^\w -]", "", self.title.lower()).replace(" ", "-")


@functools.cache
def rows(name: str) -> Records:
    """A records file of the results: of one sitting on a quiet machine, else its times cannot be compared."""
    found = read_records(RESULTS / name)
    if found.sitting or not all(map(found.is_quiet, found.answers)):
        raise SystemExit(f"{name} is of several sittings or of a busy machine: measure it at once on a quiet one")
    return found


@functools.cache
def lines(name: str) -> tuple[dict[str, Any], ...]:
    """A file of JSON lines that is no records file."""
    return tuple(line for _, line in read_lines(RESULTS / name))


def by_arm(answers: Iterable[Answer]) -> dict[tuple[str, str], list[Answer]]:
    """Answers by kind of text and arm."""
    found: dict[tuple[str, str], list[Answer]] = {}
    for answer in answers:
        found.setdefault((answer.task, answer.arm), []).append(answer)
    return found


def said(figure: Figure, known: set[str]) -> list[str]:
    """The lines of one table, with the origin of its records below it, in short where the page has told it."""
    origins = [link(name) if name in known else origin(name) for name in figure.files]
    known.update(figure.files)
    return [f"### {figure.title}", "", figure.about, "", figure.table, "", *origins]


def link(name: str) -> str:
    return f"- [{name}](../benchmarks/results/{name})"


def origin(name: str) -> str:
    """Date, commit, machine and command of a result file, as its first line says."""
    first = lines(name)[0] if name.startswith(_NO_RECORDS) else rows(name).header
    facts = first.get("provenance", first)
    parts = [
        facts["date"][:10],
        f"commit {facts.get('commit') or 'not recorded'}",
        f"{facts['processor']}, {facts['cores']} cores",
        f"`{command(facts['command'])}`",
    ]
    return f"{link(name)}: " + "; ".join(parts)


RENAMED = {
    "llama_passes.py": "llama.py passes",
    "llama_exact.py": "llama.py same",
    "replay.py": "oracle.py --count",
}
"""Scripts of which another is now a part."""


def command(recorded: str) -> str:
    """The command as it is typed: a recorded one begins with the name of the file that ran."""
    program, _, rest = recorded.partition(" ")
    program = RENAMED.get(program, program)
    if program in ("__main__.py", "draftwood"):
        return f"draftwood {rest}"
    return f"python benchmarks/{program} {rest}"


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    made = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(made + ["| " + " | ".join(cells) + " |" for cells in body])


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


def resumed(path: Path, header: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows that a file of the same settings holds, and take a torn line off it."""
    if not path.exists() or not path.stat().st_size:
        write_whole(path, [header])
        return []
    (_, first), *others = read_lines(path)
    if first.get("settings") != header["settings"]:
        raise SystemExit(f"{path} holds another run ({first.get('settings')}): choose another -o")
    rows = [row for _, row in others]
    write_whole(path, [first, *rows])
    return rows


def counts(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the numbers of texts and tokens, and of those that are plain's in each of the other texts."""
    found = {"texts": len(rows), "tokens": sum(len(row["plain"]) for row in rows)}
    for name in OTHERS:
        same = [row[name] is None for row in rows]
        found[f"{name}_texts"] = sum(same)
        found[f"{name}_tokens"] = sum(
            len(row["plain"]) if equal else common_prefix(row["plain"], row[name])
            for row, equal in zip(rows, same, strict=True)
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    lines = (line for _, line in read_lines(options.rows))
    write_whole(options.output, (bare(line) if tells_origin(line) else line for line in lines))


if __name__ == "__main__":
    main()
