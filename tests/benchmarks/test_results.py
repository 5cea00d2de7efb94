"""Committed rows tell no place of the machine that made them; scripts can be imported."""

import json
from pathlib import Path

import pytest

from draftwood.files.lines import read_lines

HERE = Path(__file__).parents[2] / "benchmarks"
RESULTS = sorted(path for path in (HERE / "results").glob("*.json*"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_no_place_of_a_machine_is_told(script, path):
    places = script("results")
    if path.suffix == ".json":
        found = [json.loads(path.read_text(encoding="utf-8"))]
    else:
        found = [line for number, line in read_lines(path) if number == 1 or places.tells_origin(line)]
    assert [line for line in found if places.bare(line) != line] == [], "run python benchmarks/results.py"


@pytest.mark.parametrize(
    ("said", "bare"),
    [
        ("/root/models/a.gguf", "a.gguf"),
        ("bench -m /tmp/x/a.gguf -o ../rows/b.jsonl", "bench -m a.gguf -o b.jsonl"),
        ("bench --model=~/a.gguf '/with space.gguf'", "bench --model=a.gguf 'with space.gguf'"),
        (r"bench -m C:\models\a.gguf", "bench -m a.gguf"),
        ("owner/name", "owner/name"),
        ("SmolLM2 1/2, and so on", "SmolLM2 1/2, and so on"),
        ("2026-11-22T18:30:50+00:00", "2026-11-22T18:30:50+00:00"),
    ],
)
def test_of_a_path_the_name_stays(script, said, bare):
    assert script("results").bare({"command": [said], "n": 1}) == {"command": [bare], "n": 1}


@pytest.mark.parametrize("name", sorted(path.stem for path in HERE.glob("*.py")))
def test_every_script_can_be_imported(script, name):
    assert script(name)
