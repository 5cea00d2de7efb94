"""The sizes of mixtures, and how their experts are chosen, as a file's metadata say it."""

from __future__ import annotations

from typing import Any

from draftwood.engines.files.families import GATINGS
from draftwood.engines.files.metadata import MOST_INNER, MOST_WIDTH, Keys
from draftwood.engines.files.shapes import Shares
from draftwood.errors import UnsupportedModelError


def mixture_of(keys: Keys) -> dict[str, Any]:
    """Return what `Shape` says of experts."""
    experts = keys.whole("expert_count", most=1 << 12)
    own = keys.get("expert_feed_forward_length") is not None
    # Files give the width of shared experts, too, not always the right one: the tensors have it.
    shared = [keys.whole(f"expert_shared_{name}", 0, least=0) for name in ("count", "feed_forward_length")]
    used = keys.whole("expert_used_count", most=min(experts, 64))
    if keys.get("interleave_moe_layer_step", 1) not in (0, 1):
        raise UnsupportedModelError(
            "the CPU engine runs no mixtures with gated units between them: take another engine"
        )
    return {
        "experts": experts, "used": used,
        "expert_inner": keys.whole(f"{'expert_' if own else ''}feed_forward_length", most=MOST_INNER),
        "expert_latent": keys.whole("moe_latent_size", 0, most=MOST_WIDTH, least=0),
        "shares": _shares(keys, experts, used), "has_shared": any(shared),
    }  # fmt: skip


def _shares(keys: Keys, experts: int, used: int) -> Shares:
    # Files that do not say it, of a family in which models differ: as llama.cpp takes it, by the number of layers.
    usual = 2 if keys.get("block_count") in (47, 48) else 1
    said, family = keys.get("expert_gating_func", GATINGS.get(keys.family.gating, usual)), keys.family
    gating = next((name for name, number in GATINGS.items() if number == said), "")
    if family.gating not in (gating, "said") or not gating:
        raise UnsupportedModelError(
            f"the CPU engine does not run mixtures with expert_gating_func {said!r:.20}: take another engine"
        )
    groups = keys.whole("expert_group_count", 0, experts, least=0) or 1
    kept = keys.whole("expert_group_used_count", 0, groups, least=0) or groups
    if kept < groups and (
        gating != "sigmoid" or experts % groups or experts < 2 * groups or kept * experts < used * groups
    ):
        raise UnsupportedModelError(
            f"the CPU engine runs no {experts} experts in {groups} groups with {gating}: take another engine"
        )
    return Shares(
        gating, keys.truth("expert_weights_norm", default=family.normalised), family.share_least,
        keys.real("expert_weights_scale", 1.0, positive=True), groups, kept,
    )  # fmt: skip
