"""The house does not grow: figures of benchmarks/house.py stay at or below their ceilings."""

import pytest
from benchmarks.house import CEILINGS, ROOT, core, figures

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git says which files count")


def test_no_figure_is_above_its_ceiling():
    found = figures()
    assert found.keys() == CEILINGS.keys()
    above = {name: number for name, number in found.items() if number > CEILINGS[name]}
    assert not above, "benchmarks/house.py shows where it grew"


def test_the_core_path_has_what_it_is_named_by():
    names = {path.stem for path in core()}
    assert {"loop", "sequence", "exact", "noise", "goodput", "cache", "target", "tree", "step"} <= names
