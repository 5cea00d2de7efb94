"""While a model is loaded Python does not look for garbage; afterwards all is as it was."""

from __future__ import annotations

import gc

import pytest

from draftwood.models.quiet import uncollected


def test_garbage_is_looked_for_again_afterwards_whatever_happens():
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="x"), uncollected():
        raise ValueError("x")
    assert gc.isenabled()


def test_who_switched_it_off_finds_it_off():
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
