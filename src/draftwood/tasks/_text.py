"""Turn texts that are wrapped for the source file back into plain paragraphs."""

from __future__ import annotations


def reflow(text: str) -> str:
    """Join wrapped lines into paragraphs.

    Parameters
    ----------
    text
        Blank lines separate paragraphs; a line that starts with ``"- "`` begins a list item of its own.

    Returns
    -------
    str
        One line per paragraph or list item, without trailing white space.
    """
    lines: list[str] = []
    for line in map(str.strip, text.strip().splitlines()):
        if lines and lines[-1] and line and not line.startswith("- "):
            lines[-1] += " " + line
        else:
            lines.append(line)
    return "\n".join(lines)
