"""What may be known of a request besides its tokens, where vLLM is asked for it (`draftwood.engines.vllm.plugin`)."""

from __future__ import annotations

from typing import NamedTuple


class Request(NamedTuple):
    """One request.

    Attributes
    ----------
    name
        vLLM's id of it; empty: not known.
    namespace
        Whose memory it reads and writes.
    prediction
        Token ids of texts that are expected.
    """

    name: str = ""
    namespace: str = ""
    prediction: tuple[tuple[int, ...], ...] = ()
