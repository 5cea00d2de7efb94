"""What README and docs/figures.md show is what the committed rows give, and the race is drawn from its rows."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = ROOT / "benchmarks"

pytestmark = pytest.mark.skipif(
    not (HERE / "results" / "never-slower-float32.jsonl.zst").is_file(), reason="a source archive has no rows"
)


def test_the_page_is_what_the_rows_give(script):
    page = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    assert page == script("figures").page(), "run python benchmarks/figures.py > docs/figures.md"


def test_the_table_of_readme_is_what_the_rows_give(script):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    said = script("figures_speed").beside_llama().table
    assert f"\n\n{said}\n\n" in readme, "copy what python benchmarks/figures.py --readme prints"


def test_the_tables_of_llama_cpp_are_what_the_rows_give(script):
    page = script("figures_llama").PAGE.read_text(encoding="utf-8")
    assert page == script("figures_llama").filled(page), "run python benchmarks/figures.py --llama"
    for name in script("figures_llama").SECTIONS:
        assert [page.count(f"<!-- {mark}{name} -->") for mark in ("", "/")] == [1, 1]


def test_every_table_tells_where_its_rows_come_from(script):
    for _, some in script("figures").figures():
        for figure in some:
            assert figure.files
            assert all((HERE / "results" / name).is_file() for name in figure.files)


def test_the_picture_is_what_its_rows_give(script):
    picture = (ROOT / "docs" / "race.svg").read_text(encoding="utf-8")
    assert picture == script("race").draw(script("race").ROWS), "run python benchmarks/race.py draw"


def test_plain_and_drafted_write_the_same_text_in_the_race(script):
    race = script("race")
    plain, drafted = race.read_records(race.ROWS).answers
    assert plain.output_ids == drafted.output_ids
    assert len(drafted.steps) < len(plain.steps)
    said = f"plain decoding takes {len(plain.steps)} passes, draftwood {len(drafted.steps)}]"
    assert said in (ROOT / "README.md").read_text(encoding="utf-8")
