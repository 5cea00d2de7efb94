"""Acceptance rates on their way into a kernel."""

from __future__ import annotations

import numpy as np

from draftwood.contracts import Floats
from draftwood.errors import IntegrityError


def for_kernel(accept_rates: Floats, classes: int) -> Floats:
    """Return one rate per evidence class as contiguous float32: kernels look them up unchecked. Perhaps a copy."""
    if len(accept_rates) != classes:
        raise IntegrityError(f"{classes} accept rates are needed, one per evidence class, not {len(accept_rates)}")
    flags = accept_rates.flags
    if accept_rates.dtype == np.float32 and flags.c_contiguous and flags.aligned:
        return accept_rates
    accept_rates = np.ascontiguousarray(accept_rates, dtype=np.float32)
    return accept_rates if accept_rates.flags.aligned else accept_rates.copy()
