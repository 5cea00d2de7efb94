"""Ctrl-C in the middle of draftwood, at a line that a number names, so that a run can be repeated."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def interrupted(lines: int) -> Iterator[None]:
    """Raise KeyboardInterrupt before the line of draftwood that is the ``lines``-th to run here in this thread."""
    left = lines

    def of_frame(frame: FrameType, event: str, _arg: Any) -> Any:
        inside = "draftwood" in frame.f_code.co_filename and frame.f_code.co_name != "<module>"
        return of_line if inside else None

    def of_line(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal left
        left -= event == "line"
        if not left:
            left = -1
            sys.settrace(None)
            raise KeyboardInterrupt
        return of_line

    sys.settrace(of_frame)
    try:
        yield
    finally:
        sys.settrace(None)
