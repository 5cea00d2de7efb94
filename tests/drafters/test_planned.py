"""Names of methods that are not here yet."""

from __future__ import annotations

from pathlib import Path

import pytest

import draftwood
from draftwood.drafters.load import DRAFTERS, SETS, load
from draftwood.drafters.planned import NOT_YET, PLANNED, unknown
from draftwood.errors import UnknownNameError, UsageError


@pytest.mark.parametrize("name", [*sorted(PLANNED), "Draft_Model", "EAGLE3"])
@pytest.mark.parametrize("spec", ["{}", "suffix+{}", "{}:model=small"])
def test_a_planned_drafter_is_answered_with_the_sentence(name, spec):
    with pytest.raises(UsageError) as raised:
        load(spec.format(name))
    assert str(raised.value) == f"drafter {name!r} is not here: {NOT_YET}"
    assert raised.value.exit_code == 2


def test_what_nobody_plans_is_an_unknown_name():
    assert isinstance(unknown("sufix", ["suffix"]), UnknownNameError)


def test_what_is_here_is_not_planned():
    assert not PLANNED & {*DRAFTERS, *SETS}


def test_the_sentence_is_that_of_readme_and_of_this_version():
    assert NOT_YET in (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert f"draftwood {draftwood.__version__} has" in NOT_YET
