"""Ctrl-C in the middle of draftwood, at a line that a number names, so that a run can be repeated."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType
from typing import Any


@contextmanager
def interrupted(lines: int) -> Iterator[None]:
    """Raise KeyboardInterrupt before the line of draftwood that is the ``lines``-th to run here in this thread."""
    left = lines

    def of_frame(frame: FrameType, event: str, _arg: Any) -> Any:
        inside = "draftwood" in frame.f_code.co_filename and frame.f_code.co_name != "<module>"
        return of_line if inside else None

    def of_line(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal left
        left -= event == "line"
        if left <= 0 and event == "line" and frame.f_lasti not in _ends_of_with(frame.f_code):
            sys.settrace(None)
            raise KeyboardInterrupt
        return of_line

    sys.settrace(of_frame)
    try:
        yield
    finally:
        sys.settrace(None)


@cache
def _ends_of_with(code: CodeType) -> frozenset[int]:
    """Places where a with statement calls ``__exit__(None, None, None)``.

    A line event comes before it, but no signal is handled there: an exception would leave a lock held.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("SWAP", "COPY", "NOP", "CACHE")]
    found = set()
    for at, step in enumerate(steps):
        three = steps[at : at + 3]
        if [(s.opname, s.argval) for s in three] == [("LOAD_CONST", None)] * 3:
            before = step.offset - 2 * 2  # a SWAP may stand before them
            found |= {before, before + 2, step.offset}
    return frozenset(found)
