"""Files that are there: replaced only where the user said so, shared by processes, read as far as they go."""

import pytest

from draftwood.measure.records.records import read_records
from tests.cli.test_generate import PROMPT, flags

SHORT = ("--max-new-tokens", "6")


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("one two one two one\nthree four three four\n")
    return str(path)


@pytest.fixture
def rows(draftwood, tiny, tmp_path):
    path = tmp_path / "rows.jsonl"
    for _ in range(2):
        assert draftwood("generate", PROMPT, *flags(tiny, 8), "-o", str(path)).code == 0
    return path


def writing(verb, tiny, prompts, rows, place):
    """The arguments with which a verb writes a whole file."""
    return {
        "profile": ("profile", "-m", tiny, "--sizes", "1,2", "--contexts", "16", "--rounds", "1", "-o", place),
        "trace": ("simulate", "--live", "-m", tiny, "--prompts", prompts, *SHORT, "--trace", place),
        "report": ("report", str(rows), "-o", place),
    }[verb]


@pytest.mark.parametrize("verb", ["profile", "trace", "report"])
def test_what_is_there_is_replaced_only_by_force(draftwood, tiny, prompts, rows, tmp_path, verb):
    ending = {"profile": "jsonl", "trace": "jsonl", "report": "html"}[verb]
    place = tmp_path / f"thesis.{ending}"
    place.write_text("years of work")
    arguments = writing(verb, tiny, prompts, rows, str(place))
    refused = draftwood(*arguments)
    assert refused.code == 2
    assert refused.err.endswith("or replace it with --force\n")
    assert refused.err.count("\n") == 1
    assert place.read_text() == "years of work"
    assert draftwood(*arguments, "--force").code == 0
    assert place.read_bytes() != b"years of work"
    place.write_text("")  # an empty file is nothing
    assert draftwood(*arguments).code == 0
    assert not list(tmp_path.glob(".*")), "nothing is left beside it"


def test_rows_that_are_no_profile_are_not_to_be_destroyed(draftwood, rows):
    before = rows.read_bytes()
    ran = draftwood("simulate", str(rows), "--profile", str(rows), "--planner", "fixed:8")
    assert ran.code == 1
    assert f"profile -o {rows}" not in ran.err
    assert "draftwood profile -o NEW.jsonl" in ran.err
    assert rows.read_bytes() == before


def test_every_verb_says_that_the_last_record_is_torn_and_goes_on(draftwood, tiny, rows, tmp_path):
    whole = rows.read_bytes()
    torn = whole[: whole.rstrip().rindex(b"\n") + 30]  # amid the last step of the second answer

    def ran(*arguments):
        rows.write_bytes(torn)
        found = draftwood(*arguments)
        assert found.code == 0, found.err
        assert found.err.count("ends in a record that was cut off") == 1
        return found

    page = str(tmp_path / "page.html")
    ran("report", str(rows), "-o", page)
    ran("explain", str(rows))
    ran("simulate", str(rows), "--planner", "fixed:8")
    ran("generate", PROMPT, *flags(tiny, 8), "-o", str(rows))
    assert [answer.id for answer in read_records(rows).answers] == [0, 1]
