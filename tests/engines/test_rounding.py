"""The tolerances of the engines' tests, held to what this machine's own float32 does."""

import pytest

from tests.engines.registered import tiny
from tests.engines.rounding import ATTENTION, MARGIN, RECURRENT, own_rounding
from tests.engines.tiny import FAMILIES, build


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_rounds_as_little_as_the_tolerance_says(family):
    assert max(own_rounding(build(family, seed), seed) for seed in range(3)) * MARGIN / 2 < ATTENTION


@pytest.mark.parametrize("name", ["qwen3_5_text", "mamba2", "falcon_h1", "bloom"])
def test_states_round_as_little_as_the_tolerance_says(name):
    assert own_rounding(tiny(name)) * MARGIN / 2 < RECURRENT


@pytest.mark.smollm2
@pytest.mark.slow
def test_smollm2_rounds_as_little_as_the_tolerance_says():
    import draftwood

    model, _ = draftwood.load("smollm2", engine="transformers")
    assert own_rounding(model, tokens=40) * MARGIN / 2 < ATTENTION
