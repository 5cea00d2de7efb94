"""Acceptance rates on their way into a kernel."""

from __future__ import annotations

import numpy as np

from draftwood.contracts import Floats
from draftwood.errors import IntegrityError


def for_kernel(accept_rates: Floats, classes: int) -> Floats:
    """Return one rate per evidence class as contiguous float32: kernels look them up unchecked. Perhaps a copy."""
    shape = np.shape(accept_rates)
    if shape != (classes,):
        raise IntegrityError(f"{classes} accept rates are needed, one per evidence class, not {shape}")
    if type(accept_rates) is np.ndarray and accept_rates.dtype == np.float32:
        flags = accept_rates.flags
        if flags.c_contiguous and flags.aligned:
            return accept_rates
    return np.array(accept_rates, dtype=np.float32)
