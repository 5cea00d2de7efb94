"""What vLLM 0.32's model runner knows of the requests of a batch, and does not tell proposers. Private to vLLM."""

from __future__ import annotations

import functools
import sys
from typing import Any

VERSION = "0.32"
_MODULE, _CLASS, _METHOD = "vllm.v1.worker.gpu_model_runner", "GPUModelRunner", "propose_draft_token_ids"


def watch(kind: type) -> None:
    """Let proposers of this kind be told the names and the extra arguments of the rows' requests before each call.

    They are told by ``tell(names, arguments)``. Raises `AttributeError` if this vLLM has no such runner. A second
    call changes nothing.
    """
    runner: Any = getattr(sys.modules[_MODULE], _CLASS)
    original = getattr(runner, _METHOD)
    if hasattr(original, "told_by_draftwood"):
        return

    @functools.wraps(original)
    def propose_draft_token_ids(self: Any, *given: Any, **named: Any) -> Any:
        drafter = getattr(self, "drafter", None)
        if isinstance(drafter, kind):
            names = list(self.input_batch.req_ids)
            drafter.tell(names, [_arguments(self.requests.get(name)) for name in names])  # type: ignore[attr-defined]
        return original(self, *given, **named)

    propose_draft_token_ids.told_by_draftwood = True  # type: ignore[attr-defined]
    setattr(runner, _METHOD, propose_draft_token_ids)


def _arguments(state: Any) -> Any:
    """Return what the client has sent as ``vllm_xargs``; None if nothing."""
    return getattr(getattr(state, "sampling_params", None), "extra_args", None)
