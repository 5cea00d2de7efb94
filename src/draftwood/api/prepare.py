"""Making a model ready, and choosing how its passes run."""

from __future__ import annotations

from typing import Any

from draftwood.api.given import check_model
from draftwood.contracts import Capabilities
from draftwood.errors import UsageError


def prepare(model: Any, *, pack: bool = True, release: bool = False) -> Capabilities:
    """Make a model ready, so that the first answer does not wait for it, and say how it will be run.

    Every door does this by itself when it first sees a model; call it to choose otherwise, or to know.

    Parameters
    ----------
    model
        A causal language model of transformers.
    pack
        On a CPU, run linear layers on a second copy of their weights in a layout that is read faster, where
        processor and free memory allow it. Stays chosen until `prepare` is called again. False needs half the
        memory and takes about twice the time per token.
    release
        Let go of the original weights once they are packed, so that the copy costs no memory. The model can then
        be used through draftwood only, until it is loaded again.

    Returns
    -------
    Capabilities
        What draftwood can do with this model, for example whether it scores trees or chains only.

    Raises
    ------
    UnsupportedModelError
        If the model cannot be run in any way that draftwood knows.
    UsageError
        For what is no model, or if its weights are to be released and passes need more than the packed ones.
    """
    check_model(model)
    if hasattr(model, "capabilities"):
        raise UsageError(f"{type(model).__name__} is a Target, which needs no preparing: leave prepare() out")
    from draftwood.engines.transformers.shared import prepare as make_ready

    return make_ready(model, pack=pack, release=release).capabilities
