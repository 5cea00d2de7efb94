"""A console of rich that writes no character of a text that a terminal would obey."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from draftwood.measure.wording import clean


class CleanConsole(Console):
    """Cleans what tables and texts are made of; its own colours and movements stay."""

    def render(self, *given: Any, **options: Any) -> Iterable[Segment]:
        """Yield the pieces of something to be shown."""
        for text, style, control in super().render(*given, **options):
            yield Segment(text if control else clean(text), style, control)
