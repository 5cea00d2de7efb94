"""What drafters ask of a target beyond tokens, and whether it can give it."""

from __future__ import annotations

from collections.abc import Sequence

from draftwood.contracts import Capabilities, Drafter
from draftwood.drafters.declaring import declared
from draftwood.errors import CapabilityError


def lacking(drafter: Drafter, capabilities: Capabilities) -> str | None:
    """Return a sentence that says what this drafter misses in such a target; None where it misses nothing."""
    try:
        known = declared(drafter)
    except Exception:  # one that cannot even say so is reported, and off, when a text is opened
        return None
    needs, name = known.needs, repr(known.name)
    if capabilities.rollback == "none":
        return (
            f"this target makes one token per pass and cannot take a rejected one back, so drafter {name} "
            "cannot be used: decode with drafters='none'"
        )
    if needs.top_k and not capabilities.top_k:
        return f"drafter {name} needs top-k scores, which this target does not give"
    if missing := set(needs.hidden) - set(capabilities.hidden):
        return f"drafter {name} needs hidden states of layers {sorted(missing)}, which this target does not give"
    if needs.lookahead_nodes and not capabilities.trees:
        return (
            f"drafter {name} scores a window beside the text, which needs a target with trees; this one scores "
            "chains only"
        )
    if needs.lookahead_nodes and 1 + needs.lookahead_nodes > capabilities.max_pass:
        return (
            f"drafter {name} scores a window of {needs.lookahead_nodes} tokens beside the text, and a pass of "
            f"this target holds {capabilities.max_pass}, the text's last token included: make the window smaller"
        )
    return None


def refuse_mismatch(capabilities: Capabilities, drafters: Sequence[Drafter]) -> None:
    """Raise `CapabilityError` where the set asks for what the target does not offer."""
    for drafter in drafters:
        if (sentence := lacking(drafter, capabilities)) is not None:
            raise CapabilityError(sentence)
