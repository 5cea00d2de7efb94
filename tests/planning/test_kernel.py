"""The planner's kernels against numpy in one line each."""

from __future__ import annotations

import math

import numpy as np
import pytest

import draftwood.planning.kernel  # noqa: F401 - from now on kernels are loaded
from draftwood.planning import beliefs, cost_model


@pytest.mark.parametrize("seed", range(4))
def test_they_give_what_numpy_gives(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    odds, fade = rng.uniform(1e-4, 1e4, 300), math.exp(rng.normal())
    curve, log = rng.uniform(0.001, 0.1, 200), rng.normal(0, 0.5, 11)
    found = beliefs._accept_rates(odds, fade), cost_model._seconds_by_width(curve, log)
    for module in (beliefs, cost_model):
        monkeypatch.setattr(module, "are_loaded", lambda: False)
    expected = beliefs._accept_rates(odds, fade), cost_model._seconds_by_width(curve, log)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)
    assert found[0].dtype == np.float32
    assert (np.diff(found[1]) >= 0).all()
