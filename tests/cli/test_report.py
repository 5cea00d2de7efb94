"""``draftwood report``: from files to a page, and its errors."""

from __future__ import annotations

from draftwood.measure.records.records import Answer, header
from draftwood.measure.records.writer import RecordsWriter
from draftwood.step import Step


def save(path, **settings):
    writer = RecordsWriter(path, header("bench", {"model": "toy", "dtype": "float32"} | settings, {}))
    for arm in ("none", "suffix"):
        steps = [Step(0, 2, (4,), (-1,), score_s=0.1)]
        row = Answer(0, "chat", "one", arm, prompt_ids=[1, 2], output_ids=[3, 4], decode_s=0.1, steps=steps)
        row.id = writer.next_id
        writer.answer(row)
    writer.close()
    return str(path)


def test_it_writes_a_page_with_the_given_title(draftwood, tmp_path):
    page = tmp_path / "page.html"
    ran = draftwood("report", save(tmp_path / "rows.jsonl"), "-o", str(page), "--title", "Ours & theirs")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{page}: ")
    assert "<h1>Ours &amp; theirs</h1>" in page.read_text(encoding="utf-8")


def test_several_files_make_one_page(draftwood, tmp_path):
    files = [save(tmp_path / "a.jsonl"), save(tmp_path / "b.jsonl")]
    assert draftwood("report", *files, "-o", str(tmp_path / "page.html"), "--answers", "0").code == 0
    assert "2 runs" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_mixed_models_are_refused_and_nothing_is_written(draftwood, tmp_path):
    files = [save(tmp_path / "a.jsonl"), save(tmp_path / "b.jsonl", dtype="bfloat16")]
    ran = draftwood("report", *files, "-o", str(tmp_path / "page.html"))
    assert ran.code == 2
    assert ran.err == (
        "error: records of toy float32 and of toy bfloat16 cannot stand in one table: make two reports\n"
    )
    assert not (tmp_path / "page.html").exists()


def test_wrong_calls_say_what_to_do(draftwood, tmp_path):
    rows = save(tmp_path / "rows.jsonl")
    assert draftwood("report", rows).code == 2
    assert draftwood("report", "-o", "page.html").code == 2
    missing = draftwood("report", str(tmp_path / "missing.jsonl"), "-o", str(tmp_path / "page.html"))
    assert (missing.code, missing.err.count("\n")) == (2, 1)
    assert "cannot be read" in missing.err
    broken = tmp_path / "broken.jsonl"
    broken.write_text("nothing\n{}\n")
    assert draftwood("report", str(broken), "-o", str(tmp_path / "page.html")).code == 1
    over = draftwood("report", rows, "-o", rows)
    assert over.code == 2
    assert "choose another -o" in over.err


def test_a_place_that_cannot_be_written_is_named(draftwood, tmp_path):
    rows = save(tmp_path / "rows.jsonl")
    (tmp_path / "page.html").mkdir()
    ran = draftwood("report", rows, "-o", str(tmp_path / "page.html"))
    assert ran.code == 2
    assert "page.html is a folder: name a file in it with -o" in ran.err
