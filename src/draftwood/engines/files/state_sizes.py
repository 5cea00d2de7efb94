"""The sizes of recurrent layers, short convolutions among them, as a file's metadata say them."""

from __future__ import annotations

from typing import Any

from draftwood.engines.files.metadata import MOST_INNER, Keys
from draftwood.engines.files.shapes import DELTA_SIZE, MOST_KEYS, States
from draftwood.errors import ModelError, UnsupportedModelError


def recurrent_of(keys: Keys, has: set[str]) -> dict[str, Any]:
    """Return what `Shape` says of short convolutions and of states."""
    if "short_convolution" in has:
        return {"convolution": _only(keys, "shortconv.l_cache", 3)}
    if not has & {"delta_net", "mamba", "attention_and_mamba"}:
        return {}
    groups, heads = (keys.whole(f"ssm.{name}", most=1024) for name in ("group_count", "time_step_rank"))
    if "delta_net" in has:
        size = values = _only(keys, "ssm.state_size", DELTA_SIZE)
        _only(keys, "ssm.inner_size", heads * DELTA_SIZE)
    else:
        size, values = _mamba_sizes(keys, heads)
    if heads % groups:
        raise ModelError(f"the file says {heads} states share {groups} heads of keys: get the file again")
    states = States(groups, heads, size, values, keys.get("ssm.normed", True))
    return {"convolution": _only(keys, "ssm.conv_kernel", 4), "states": states}


def _mamba_sizes(keys: Keys, heads: int) -> tuple[int, int]:
    """Return the numbers of a key and of a head's value in Mamba-2."""
    size, inner = keys.whole("ssm.state_size"), keys.whole("ssm.inner_size", most=MOST_INNER)
    values = inner // heads
    if size % 16 or size > MOST_KEYS or values % 16 or inner % 32 or values * heads != inner:
        raise UnsupportedModelError(
            f"the CPU engine runs states of up to {MOST_KEYS} keys, and values in multiples of 16, not of {size} "
            f"keys and {heads} heads of {inner} values: take another engine"
        )
    return size, values


def _only(keys: Keys, name: str, known: int) -> int:
    """Return a number of recurrent layers, which kernels know by one value."""
    found = keys.whole(name)
    if found != known:
        raise UnsupportedModelError(
            f"the CPU engine runs no models with {name} {found}, but with {known}: take another engine"
        )
    return found
