"""The command for graphics cards, on tiny shapes and the processor: all of its parts, and what figures.py makes of
their rows."""

from __future__ import annotations

import pytest
import torch

from draftwood.files.lines import read_lines

PARTS = ["way", "memory", "equality", "pass", "texts", "types"]


@pytest.fixture(scope="module")
def gpu(script):
    return script("gpu")


def rows_in(path):
    return [row for _, row in read_lines(path)]


def test_all_parts_run_and_figures_reads_their_rows(script, gpu, tmp_path, monkeypatch):
    file = tmp_path / "gpu.jsonl"
    monkeypatch.setattr(gpu, "PARTS", {part: (make, 1e9) for part, (make, _) in gpu.PARTS.items()})
    assert gpu.main(["--small", "-o", str(file), "--seconds", "1e9"]) == 0
    first, *rows = rows_in(file)
    assert first["verb"] == "gpu"
    assert {row["row"] for row in rows} == {"measured"}
    assert list(dict.fromkeys(row["part"] for row in rows)) == PARTS
    written = {(row["task"], row["arm"]): row for row in rows if row["part"] == "texts"}
    assert len(written) == 8 * 4 + 3
    assert all(row["passes"] <= row["tokens"] for row in written.values())
    plain, drafted = ([row for (_, one), row in written.items() if one == arm] for arm in ("plain", "drafted"))
    assert all(row["passes"] == row["tokens"] for row in plain)
    assert sum(row["passes"] for row in drafted) < sum(row["passes"] for row in plain)
    found = script("figures").card(str(file))
    heads = [figure.table.splitlines()[0] for figure in found]
    assert "| model | task | plain | drafted | generate | lookup |" in heads
    assert "| model | shape | context | 1 | 4 |" in heads
    assert all(len(figure.table.splitlines()) > 2 for figure in found)
    assert "Not all" not in found[0].about


def test_a_part_that_fails_or_has_no_time_is_a_row_and_costs_no_other(script, gpu, tmp_path, monkeypatch):
    def failing(_):
        yield {"model": "tiny", "arm": "one", "bytes": 1}
        raise RuntimeError("out of memory")

    parts = {"memory": (failing, 1e9), "way": (lambda _: iter([{"bytes": 1}, {"bytes": 2}]), -1)}
    monkeypatch.setattr(gpu, "PARTS", parts)
    monkeypatch.setattr(gpu, "Subject", lambda *_: None)
    file = tmp_path / "gpu.jsonl"
    assert gpu.main(["--small", "-o", str(file), "--seconds", "1e9"]) == 1
    _, *rows = rows_in(file)
    assert [(row["row"], row["part"]) for row in rows] == [
        ("measured", "memory"), ("failed", "memory"), ("measured", "way"), ("ended", "way"),
    ]  # fmt: skip
    said = "memory of tiny (RuntimeError('out of memory')), way of tiny (its time is spent)"
    assert said in script("figures").card(str(file))[0].about
    assert gpu.main(["--small", "-o", str(file), "--seconds", "-1", "--only", "memory"]) == 0
    assert [row["row"] for row in rows_in(file)] == ["header", "ended"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_without_a_card_a_sentence_says_what_to_do(gpu, tmp_path, capsys):
    with pytest.raises(SystemExit):
        gpu.main(["-o", str(tmp_path / "gpu.jsonl")])
    assert "torch finds no graphics card here" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_scores_are_compared_by_bits_best_tokens_and_distance(gpu):
    own = [torch.tensor([1.0, 4.0]), torch.tensor([2.0, 1.0])]
    found = [torch.tensor([1.0, 4.0]), torch.tensor([2.0, 3.0])]
    assert gpu.compared(found, own) == {"rows": 2, "same_bits": 1, "same_best": 1, "largest": 1.0}


def test_generate_writes_the_recorded_tokens_with_and_without_lookup(gpu):
    one = gpu.Subject(gpu.SMALL, "tiny")
    prompt = [5, 6, 7, 8] * 8
    text = prompt, [5, 6, 7, 8] * 4
    plain, lookup = (gpu.generated(one.model, "", text, **options) for options in ({}, gpu.LOOKUP))
    assert plain["passes"] == plain["tokens"] == 15
    assert lookup["passes"] < 4
    wrong = gpu.generated(one.model, "", (prompt, list(range(40, 56))), **gpu.LOOKUP)
    assert wrong["passes"] == 15  # lookup is not told what was recorded
