"""Rows about llama.cpp: the scripts that write them, and the tables that are made of them."""

import json
import sys
from pathlib import Path

import pytest

from draftwood.files.lines import write_whole
from draftwood.measure.records.records import Answer, header

pytest.importorskip("xllamacpp")
FACTS = {"command": "x.py", "date": "2026-11-22T20:00:00", "processor": "p", "cores": 2, "dtype": "Q4_0"}
SETTINGS = {"model": "m.gguf", "dtype": "Q4_0", "max_new_tokens": 8, "temperature": 0.0}


@pytest.fixture
def filled(script, monkeypatch, tmp_path):
    """Make the tables from the rows in ``tmp_path``."""
    for name in ("results", "figures_llama"):
        monkeypatch.setattr(script(name), "RESULTS", tmp_path)
    page = "".join(f"<!-- {name} -->\nold\n<!-- /{name} -->\n" for name in ("passes", "costs", "bench", "exact"))
    return lambda: script("figures_llama").filled(page)


def answer(number, task, arm, seconds, engine="draftwood"):
    ids = list(range(8))
    done = Answer(number, task, "one", arm, engine, output_ids=ids, decode_s=seconds, prefill_s=0.1)
    done.arrivals = [[i, seconds * i / 8] for i in range(1, 9)]
    return done


def test_passes_are_measured_and_shown(script, filled, monkeypatch, tmp_path, tiny_gguf, capsys):
    name = "llama-passes-Q8_0.jsonl"
    flags = ["--threads", "1", "--contexts", "20", "300", "--widths", "1", "2", "3", "--rounds", "2"]
    model = str(tiny_gguf("llama", "Q8_0"))
    monkeypatch.setattr(sys, "argv", ["/x/llama.py", "passes", model, "-o", str(tmp_path / name), *flags])
    script("llama").main()
    assert "300 tokens, exact, n =   3" in capsys.readouterr().out
    first, *rows = map(json.loads, (tmp_path / name).read_text().splitlines())
    assert first["provenance"]["command"].startswith(f"llama.py passes {Path(model).name} -o {name} ")
    assert [(r["context"], r["settings"], r["n"]) for r in rows] == [
        (c, s, n) for c in (20, 300) for s in ("exact", "fast") for n in (1, 2, 3)
    ]
    assert all(0 < r["fastest_ms"] <= r["median_ms"] for r in rows)
    script("results").lines.cache_clear()
    table = filled()
    assert "| tokens in the cache | settings | n = 1 | 2 | 3 |" in table
    assert f"| 300 | exact | {rows[6]['fastest_ms']:.1f} | {rows[7]['fastest_ms']:.1f} | " in table
    dearer = rows[4]["fastest_ms"] / rows[3]["fastest_ms"]  # fast, behind 20 tokens
    assert f"| Q8_0 | {dearer:.2f} |  |  |  | {100 * (dearer - 1):.0f} % |" in table


def test_speed_is_shown_beside_llama_cpp_s_own(filled, tmp_path):
    assert filled().count("old") == 4, "without rows a table stays"
    own = {"none": 2.0, "default": 1.0}
    theirs = {"llama.cpp": 1.9, "llama.cpp:ngram-mod": 2.5, "llama.cpp:ngram-simple": 2.2}
    answers = [
        answer(i, task, arm, s * factor, "llama.cpp" if arm in theirs else "draftwood")
        for task, factor in (("chat", 1), ("grammar", 2))
        for i, (arm, s) in enumerate((own | theirs).items(), 5 * factor)
    ]
    answers[1] = answer(answers[1].id, "chat", "default", 2.0)  # gains nothing
    lines = [line for one in answers for line in one.lines()]
    write_whole(tmp_path / "llama-bench-Q4_0.jsonl", [header("bench", SETTINGS, FACTS), *lines])
    table = filled()
    assert "(`ngram-simple`)" in table
    assert table.index("| grammar |") < table.index("| chat |") < table.index("| geometric mean |")
    assert "Q4_0, 1 prompts of each kind, 8 new tokens, temperature 0" in table
    assert "every text with drafts was the text without" in table


def test_equal_texts_are_counted_up_to_where_they_part(script, filled, tmp_path):
    path = tmp_path / "llama-exact-Q4_0.jsonl"
    first = {"row": "header", "settings": {"dtype": "Q4_0"}, "provenance": FACTS}
    assert script("results").resumed(path, first) == []
    texts = {"row": "texts", "task": "chat", "drafted": None}
    rows = [
        texts | {"name": "a", "plain": [1, 2, 3, 4], "server": [1, 2, 9, 4]},
        texts | {"name": "b", "plain": [5, 6], "server": None},
    ]
    write_whole(path, [first, *rows])
    with path.open("a") as file:
        file.write('{"row": "texts", "ta')
    assert script("results").resumed(path, first) == rows
    with pytest.raises(SystemExit, match="holds another run"):
        script("results").resumed(path, {"settings": {"dtype": "Q8_0"}})
    script("results").lines.cache_clear()
    table = filled()
    assert "| our drafted loop | 2 of 2 | 6 of 6 |" in table
    assert "| llama.cpp's server | 1 of 2 | 4 of 6 |" in table
