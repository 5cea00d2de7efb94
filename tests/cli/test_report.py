"""``draftwood report``: from files to a page, and its errors."""

from draftwood.measure.records.records import Answer, header
from draftwood.measure.records.writer import RecordsWriter
from draftwood.step import Step


def save(path, **settings):
    writer = RecordsWriter(path, header("bench", {"model": "toy", "dtype": "float32"} | settings, {}))
    for arm in ("none", "ngram"):
        steps = [Step(0, 2, (4,), (-1,), score_s=0.1)]
        row = Answer(0, "chat", "one", arm, prompt_ids=[1, 2], output_ids=[3, 4], decode_s=0.1, steps=steps)
        row.id = writer.next_id
        writer.answer(row)
    writer.close()
    return str(path)


def test_files_make_one_page_with_the_given_title(draftwood, tmp_path):
    page = tmp_path / "page.html"
    ran = draftwood("report", save(tmp_path / "a.jsonl"), "-o", page, "--title", "Ours & theirs")
    assert (ran.err, ran.out.startswith(f"{page}: ")) == ("", True)
    assert "<h1>Ours &amp; theirs</h1>" in page.read_text(encoding="utf-8")
    files = [str(tmp_path / "a.jsonl"), save(tmp_path / "b.jsonl")]
    draftwood("report", *files, "-o", page, "--answers", "0", "--force")
    assert "Measured in 2 sittings" in page.read_text(encoding="utf-8")


def test_wrong_calls_say_what_to_do_and_write_nothing(refused, tmp_path):
    rows, page = save(tmp_path / "rows.jsonl"), tmp_path / "page.html"
    (tmp_path / "broken.jsonl").write_text("nothing\n{}\n")
    mixed = "error: records with dtype 'float32' and with 'bfloat16' cannot stand in one table: make two reports\n"
    for arguments, code, said in (
        ([rows], 2, "--output"),
        (["-o", page], 2, "RECORDS"),
        ([tmp_path / "missing.jsonl", "-o", page], 2, "cannot be read"),
        ([tmp_path / "broken.jsonl", "-o", page], 1, "broken.jsonl"),
        ([rows, "-o", rows], 2, "choose another -o"),
        ([rows, save(tmp_path / "other.jsonl", dtype="bfloat16"), "-o", page], 2, mixed),
        ([rows, "-o", tmp_path], 2, "is a folder: name a file in it with -o"),
    ):
        assert said in refused("report", *arguments, code=code)
        assert not page.exists()
