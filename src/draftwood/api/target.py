"""What computes the passes of a model that the user gave, and the function `prepare`."""

from __future__ import annotations

from typing import Any

from draftwood.api.checks import check_model
from draftwood.contracts import Capabilities, Target
from draftwood.errors import UsageError


def target_of(model: Any, *, now: bool = False) -> Target:
    """Return what computes a model's passes; ``now`` prepares a model of transformers, as it is at this moment."""
    if isinstance(model, Target):
        return model
    from draftwood.engines.transformers.shared import known_target, shared_target

    return shared_target(model) if now else known_target(model)


def prepare(model: Any, *, pack: bool = True, release: bool = False) -> Capabilities:
    """Make a model ready for decoding and say how it will be run.

    `generate` and the others do this by themselves in their first call with a model. Call it so that the first
    answer need not wait, to choose otherwise, or to see the capabilities.

    Parameters
    ----------
    model
        A causal language model of transformers.
    pack
        On a CPU, run linear layers on a second copy of their weights in a layout that is read faster, if
        processor and free memory allow it. The choice holds until `prepare` is called again. False needs half the
        memory and takes about twice the time per token.
    release
        Free the original weights once they are packed, so that the copy needs no further memory. The model can
        then be used through draftwood only, until it is loaded again.

    Returns
    -------
    Capabilities
        What draftwood can do with this model, for example whether it scores trees or chains only.

    Raises
    ------
    UnsupportedModelError
        If draftwood cannot run the model in any way.
    UsageError
        For what is no model, and with ``release`` for a model whose passes need the original weights, too.
    """
    check_model(model)
    if isinstance(model, Target):
        raise UsageError(f"{type(model).__name__} is a Target, which needs no preparing: leave prepare() out")
    from draftwood.engines.transformers.shared import prepare as make_ready

    return make_ready(model, pack=pack, release=release).capabilities
