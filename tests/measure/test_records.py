"""Rows files: there and back, resumed, compressed, and every way in which one can be broken."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.helpers import PROMPT, write

from draftwood.drafters.load import load
from draftwood.errors import RecordError, UsageError
from draftwood.files.lines import read_lines
from draftwood.measure.records.records import Answer, header, read_records
from draftwood.measure.records.writer import RecordsWriter
from draftwood.testing import ToyTarget

HEADER = header("bench", {"model": "toy", "seed": 0}, {"command": "draftwood bench"})


def answer(number: int, name: str = "a", arm: str = "ngram", **more) -> Answer:
    written = write(ToyTarget(order=2, seed=number), load("ngram"), 8)
    return Answer(
        number, "toy", name, arm, drafters=["ngram"], prompt_ids=list(PROMPT), output_ids=written.ids,
        steps=written.steps, decode_s=0.5, finish_reason="length", **more,
    )  # fmt: skip


def filled(path, *answers: Answer):
    writer = RecordsWriter(path, HEADER)
    for each in answers:
        writer.answer(each)
    writer.close()
    return path


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.zst"])
def test_there_and_back(tmp_path, name):
    answers = [answer(0), answer(1, arm="none", pieces=["a"], sampling={"temperature": 0.7})]
    path = filled(tmp_path / "new folder" / name, *answers)
    rows = read_records(path)
    assert rows.header == HEADER
    assert rows.answers == answers
    assert answers[0].key == ("toy", "a", "ngram", 0)


def test_a_prompt_is_written_once(tmp_path):
    path = filled(tmp_path / "rows.jsonl", answer(0), answer(1, arm="none"), answer(2, name="b"))
    prompts = ["prompt_ids" in row for _, row in read_lines(path) if row["row"] == "answer"]
    assert prompts == [True, False, True]
    assert all(a.prompt_ids == list(PROMPT) for a in read_records(path).answers)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.zst"])
@pytest.mark.parametrize("lost", [2, 40, 400])
def test_a_run_that_was_cut_off_goes_on_after_its_last_whole_answer(tmp_path, name, lost):
    path = filled(tmp_path / name, answer(0))
    whole = path.stat().st_size
    filled(path, answer(1))
    with path.open("rb+") as file:
        file.truncate(max(whole, path.stat().st_size - lost))
    writer = RecordsWriter(path, HEADER)
    assert [a.id for a in writer.records.answers] == [0]
    assert writer.next_id == 1
    writer.answer(answer(1))
    writer.other({"row": "difference", "answer": 1})
    writer.close()
    rows = read_records(path)
    assert [a.id for a in rows.answers] == [0, 1]
    assert rows.of_kind("difference") == [{"row": "difference", "answer": 1}]


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        (lambda lines: [*lines[:3], lines[3][:20] + "\n", *lines[4:]], "line 4: no JSON"),  # never a cut
        (lambda lines: lines[0][:20], "line 1: no JSON"),  # nothing of it is ours
        (lambda lines: [lines[0], lines[2]], "line 2: a step without its answer"),
        (
            lambda lines: [*lines[:3], lines[-1].replace('"row": "step"', '"row": "answer"')],
            "line 4: .* steps of the answer before are missing",
        ),
        (lambda lines: [lines[0], "[1]\n"], "line 2: list instead of an object"),
    ],
)
def test_a_broken_line_is_named_by_number(tmp_path, damaged, said):
    path = filled(tmp_path / "rows.jsonl", answer(0), answer(1))
    path.write_text("".join(damaged(path.read_text().splitlines(keepends=True))))
    with pytest.raises(RecordError, match=said):
        read_records(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (json.dumps(HEADER | {"format": 9}), "format 9, not 1"),
        ('{"prompt_ids": [1], "output_ids": [2]}', "no header"),
        ("", "is empty"),
        (b"\xff\xfe\x00", "line 1 is no UTF-8 text: its bytes look like UTF-16"),
    ],
)
def test_foreign_files_are_refused(tmp_path, content, said):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RecordError, match=said):
        read_records(path)


def test_files_that_are_missing_or_not_compressed_are_refused(tmp_path):
    (tmp_path / "a.zst").write_bytes(b"no zstd at all")
    with pytest.raises(RecordError, match="damaged or not compressed"):
        read_records(tmp_path / "a.zst")
    with pytest.raises(UsageError, match="cannot be read"):
        read_records(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"row": "answer", "id": 0, "task": "t", "name": "n", "mood": 1},
            r"an answer has unknown fields \['mood'\]",
        ),
        ({"row": "answer", "id": 0}, r"an answer lacks \['arm', 'name', 'task'\]"),
        ({"row": "answer", "id": 0, "task": "t", "name": "n", "arm": "a", "n_steps": "x"}, ""),
        ({"row": "step"}, ""),
    ],
)
def test_rows_that_cannot_be_are_refused(tmp_path, row, said):
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(HEADER)}\n{json.dumps(row)}\n")
    with pytest.raises(RecordError, match=f"line 2: {said}"):
        read_records(tmp_path / "rows.jsonl")


def test_a_run_of_other_settings_is_not_mixed_in(tmp_path):
    path = filled(tmp_path / "rows.jsonl", answer(0))
    before = path.read_bytes()
    with pytest.raises(UsageError, match="was written with model 'toy', this run has 'other'"):
        RecordsWriter(path, header("bench", {"model": "other", "seed": 0}, {}))
    with pytest.raises(UsageError, match="was written by draftwood bench: choose another"):
        RecordsWriter(path, header("probe", {"model": "toy", "seed": 0}, {}))
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.zst"])
def test_a_last_record_that_is_torn_is_left_out_with_one_warning(tmp_path, caplog, name):
    """Wherever it was cut: whoever reads the file says so, and goes on with the rest."""
    path = filled(tmp_path / name, answer(0))
    whole = path.stat().st_size
    both = filled(path, answer(1)).read_bytes()
    ends = [at + 1 for at in range(whole, len(both)) if both[at : at + 1] == b"\n"]
    edges = {end + by for end in ends for by in (-1, 0)}
    for end in sorted({*range(whole, len(both), 31), *edges, len(both)}):
        path.write_bytes(both[:end])
        caplog.clear()
        rows = read_records(path)
        assert [a.id for a in rows.answers] in ([0], [0, 1])
        said = ["ends in a record that was cut off" in record.getMessage() for record in caplog.records]
        assert said == [True] * rows.torn
        if len(rows.answers) == 2:
            assert not rows.torn
        elif name.endswith("jsonl") and not rows.torn:  # between two records: the first of the sitting is its mark
            assert end in (whole, ends[0] - 1, ends[0])


def test_a_last_line_without_its_end_is_whole_and_gone_on_behind(tmp_path):
    path = filled(tmp_path / "rows.jsonl", answer(0))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert not read_records(path).torn
    filled(path, answer(1))
    assert [a.id for a in read_records(path).answers] == [0, 1]


def test_a_file_has_one_writer_at_a_time(tmp_path):
    path = tmp_path / "rows.jsonl"
    writer = RecordsWriter(path, HEADER)
    with pytest.raises(RecordError, match="locked by another writer"):
        RecordsWriter(path, HEADER, wait=0.05)
    (tmp_path / "link.jsonl").symlink_to(path)
    with pytest.raises(RecordError, match="locked by another writer"):
        RecordsWriter(tmp_path / "link.jsonl", HEADER, wait=0.05)
    writer.close()
    RecordsWriter(path, HEADER, wait=0.05).close()
    with pytest.raises(UsageError, match="this run has"):
        RecordsWriter(path, header("bench", {"model": "other", "seed": 0}, {}), wait=0.05)
    RecordsWriter(path, HEADER, wait=0.05).close()


def test_threads_that_append_lose_nothing(tmp_path):
    path = tmp_path / "rows.jsonl"

    def append(number):
        writer = RecordsWriter(path, HEADER, wait=60)
        writer.answer(answer(writer.next_id, name=str(number)))
        writer.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(append, range(24)))
    rows = read_records(path)
    assert [a.id for a in rows.answers] == list(range(24))
    assert sorted(int(a.name) for a in rows.answers) == list(range(24))


def test_a_full_disk_keeps_what_was_written(tmp_path, monkeypatch):
    path = filled(tmp_path / "rows.jsonl", answer(0))
    writer = RecordsWriter(path, HEADER)
    before = path.read_bytes()

    class Full:
        def __init__(self, file) -> None:
            self.file, self.left = file, 50

        def write(self, piece) -> int:
            if not self.left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            count = self.file.write(piece[: self.left])
            self.left = 0
            return count

        def __getattr__(self, name):
            return getattr(self.file, name)

    monkeypatch.setattr(writer._file, "_file", Full(writer._file._file))
    with pytest.raises(RecordError, match=r"No space left on device.*what was measured before is in it"):
        writer.answer(answer(1))
    writer.close()
    assert path.read_bytes() == before
