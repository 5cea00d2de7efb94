"""Connections on which no request comes: idle ones, and those that send a header letter by letter."""

from __future__ import annotations

from asyncio import BaseTransport, TimerHandle
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class PatientProtocol(H11Protocol):
    """HTTP as uvicorn speaks it; a connection that brings no whole header for so long is closed.

    uvicorn itself waits without end, and each such connection holds one of the files that a process may open.
    """

    seconds = 30.0
    _seen: Any = None  # the request that was the last one when we looked
    _timer: TimerHandle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._timer = self.loop.call_later(self.seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        is_answered = self.cycle is None or self.cycle.response_complete
        if is_answered and self.cycle is self._seen:
            self.transport.close()
            return
        self._seen = self.cycle
        self._timer = self.loop.call_later(self.seconds, self._look)
