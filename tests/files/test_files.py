"""Files with a header: whole or not at all, and every damage named."""

import os
import socket
import stat
from contextlib import closing
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwood.errors import FileFormatError, RecordError, UsageError, VocabularyError
from draftwood.files.format import (
    ALIGNMENT,
    MAGIC,
    compare_tokenizers,
    is_ours,
    kind_of,
    open_payload,
    read_payload,
    refuse_to_replace,
    write_file,
)
from draftwood.files.lines import Appender
from draftwood.files.paths import is_stream, named, opened, whole_file

ABOUT = {"tokenizer": "abc", "count": 3}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "made"
    write_file(path, "test", ABOUT, [b"one", np.arange(5, dtype=np.int32), b""])
    return path


def read_header(path, kind):
    with open_payload(path, kind) as (header, _):
        return header


def test_what_was_written_is_read_again(path):
    header, payload = read_payload(path, "test")
    assert payload == b"one" + np.arange(5, dtype=np.int32).tobytes()
    assert (header.kind, header.version, header.about, header.tokenizer) == ("test", 1, ABOUT, "abc")
    assert header.start % ALIGNMENT == 0
    assert read_header(path, "test") == header
    header.verify()


@settings(max_examples=50, deadline=None)
@given(
    pieces=st.lists(st.binary(max_size=30), max_size=4),
    about=st.dictionaries(st.text().filter(lambda key: key != "kind"), st.integers() | st.text() | st.none()),
)
def test_any_payload_and_description(tmp_path_factory, pieces, about):
    path = tmp_path_factory.mktemp("any") / "made"
    write_file(path, "test", about, pieces, version=7)
    header, payload = read_payload(path, "test", version=7)
    assert (payload, header.about, header.version) == (b"".join(pieces), about, 7)


def test_arrays_of_any_shape(tmp_path):
    arrays = [np.arange(6, dtype=np.int64).reshape(2, 3), np.empty((0, 4), dtype=np.int32), np.float32([1.5])]
    write_file(tmp_path / "made", "test", {}, arrays)
    assert read_payload(tmp_path / "made", "test")[1] == b"".join(array.tobytes() for array in arrays)


def test_every_cut_is_noticed(path):
    content = path.read_bytes()
    for cut in range(1, len(content)):
        path.write_bytes(content[:cut])
        with pytest.raises(FileFormatError, match="was cut off"):
            read_header(path, "test")
    path.write_bytes(b"")
    with pytest.raises(FileFormatError, match="no file of draftwood"):
        read_header(path, "test")


def test_every_flipped_byte_of_the_header_is_noticed(path):
    content, start = path.read_bytes(), read_header(path, "test").start
    for place in range(start):
        for bit in (1, 16, 128):
            path.write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
            with pytest.raises(FileFormatError, match=r"no file of draftwood|version|was cut off|damaged"):
                read_header(path, "test")


def test_a_flipped_byte_of_the_payload_is_noticed_by_who_reads_it(path):
    content, header = path.read_bytes(), read_header(path, "test")
    for place in range(header.start, len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        read_header(path, "test")
        with pytest.raises(FileFormatError, match="damaged"):
            header.verify()
        with pytest.raises(FileFormatError, match="damaged"):
            read_payload(path, "test")
    path.write_bytes(content[:-1])
    with pytest.raises(FileFormatError, match="damaged"):
        header.verify()


def test_files_that_are_not_what_is_wanted(path, tmp_path):
    with pytest.raises(FileFormatError, match="another of draftwood's files"):
        read_header(path, "other")
    write_file(tmp_path / "newer", "test", {}, [], version=2)
    with pytest.raises(FileFormatError, match=r"version 2 .* up to 1"):
        read_header(tmp_path / "newer", "test")
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(FileFormatError, match="after its end"):
        read_header(path, "test")
    (tmp_path / "text").write_text("some text")
    with pytest.raises(FileFormatError, match="no file of draftwood"):
        read_header(tmp_path / "text", "test")
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            read_header(missing, "test")


def test_the_tokenizer_is_compared(path, tmp_path):
    header = read_header(path, "test")
    compare_tokenizers("it", header.tokenizer, "abc")
    with pytest.raises(VocabularyError, match="another tokenizer"):
        compare_tokenizers("it", header.tokenizer, "abd")
    write_file(tmp_path / "unknown", "test", {}, [])
    compare_tokenizers("it", read_header(tmp_path / "unknown", "test").tokenizer, "abd")


def fails_half_way(path, error):
    with whole_file(path) as beside:
        beside.write_text("half")
        raise error


def test_whole_or_not_at_all(tmp_path):
    path = tmp_path / "folder" / "made"
    for error in (KeyboardInterrupt, RuntimeError):
        with pytest.raises(error):
            fails_half_way(path, error)
        assert list(path.parent.iterdir()) == []
    with whole_file(path) as beside:
        beside.write_text("old")
    with pytest.raises(RuntimeError):
        fails_half_way(path, RuntimeError)
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileFormatError, match="cannot be written"):
        write_file(tmp_path / "file" / "made", "test", {}, [])
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileFormatError, match="cannot be written"):
        write_file(tmp_path / "folder", "test", {}, [])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_the_kind_of_any_file(path, tmp_path):
    assert kind_of(path) == "test"
    write_file(tmp_path / "newer", "other", {}, [], version=9)
    assert kind_of(tmp_path / "newer") == "other"
    for content in (b"", b"some text"):
        (tmp_path / "foreign").write_bytes(content)
        assert kind_of(tmp_path / "foreign") is None
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(FileFormatError, match="was cut off"):
        kind_of(path)
    with pytest.raises(UsageError, match="cannot be read"):
        kind_of(tmp_path / "none")


def test_what_begins_as_ours():
    assert is_ours(MAGIC)
    assert is_ours(MAGIC + b"more")
    assert is_ours(MAGIC[:3])
    assert not is_ours(b"")
    assert not is_ours(b"draftwood")


# --- what is there already -----------------------------------------------------------------------------------


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_that_is_replaced_keeps_its_permissions_and_links_lead_to_it(path, tmp_path):
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path)
    write_file(link, "test", {}, [b"new"])
    assert link.is_symlink()
    assert mode(path) == 0o640
    assert read_payload(path, "test")[1] == b"new"
    path.chmod(0o400)
    write_file(path, "test", {}, [])
    assert mode(path) == 0o400


def writes(path):
    """Write to a path in both ways."""
    with whole_file(path) as new:
        new.write_text("whole\n")
    with closing(Appender(path)) as file:
        file.write([{"a": 1}])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_gets_the_whole_file_and_stays(tmp_path, linked):
    pipe, place = tmp_path / "pipe", tmp_path / "link" if linked else tmp_path / "pipe"
    os.mkfifo(pipe)
    if linked:
        place.symlink_to(pipe)
    got: list[bytes] = []
    reader = Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_file(place, "test", ABOUT, [b"one"])
    reader.join()
    made = tmp_path / "made"
    write_file(made, "test", ABOUT, [b"one"])
    assert got == [made.read_bytes()], "to the end, although the header is written last"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    refuse_to_replace(place, "test")
    with pytest.raises(OSError, match="it is a pipe or a device"):
        opened(place)
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "made", place.name}


@pytest.mark.parametrize(("minor", "said"), [(3, None), (7, "No space left on device")])
def test_a_device_is_written_to_and_stays(tmp_path, minor, said):
    device = tmp_path / "device"
    try:
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, minor))  # a copy of /dev/null, or of /dev/full
        device.open("rb").close()
    except (AttributeError, OSError):
        pytest.skip("may make no devices here")
    if said is None:
        writes(device)
    else:
        with pytest.raises(FileFormatError, match=f"device cannot be written .{said}.: choose"):
            writes(device)
        with (
            closing(Appender(device)) as file,
            pytest.raises(RecordError, match=f"device cannot be written .{said}"),
        ):
            file.write([{"a": 1}])
    assert is_stream(device)
    assert stat.S_ISCHR(device.stat().st_mode)
    assert list(tmp_path.iterdir()) == [device]


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="open files have no names here")
def test_an_open_file_goes_on_where_it_stands(tmp_path):
    (tmp_path / "log").write_text("precious\n")
    with (tmp_path / "log").open("ab") as log:
        (tmp_path / "link").symlink_to(f"/dev/fd/{log.fileno()}")
        writes(tmp_path / "link")
        os.write(log.fileno(), b"more\n")
    assert (tmp_path / "log").read_text() == 'precious\nwhole\n{"a": 1}\nmore\n'
    end, begin = os.pipe()
    writes(place := named(f"/dev/fd/{begin}"))
    assert os.read(end, 99) == b'whole\n{"a": 1}\n'
    os.close(end)
    with pytest.raises(FileFormatError, match=r"cannot be written .Broken pipe.: choose"):
        writes(place)
    os.close(begin)


def test_a_socket_is_no_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with closing(socket.socket(socket.AF_UNIX)) as own:
        own.bind("s")
        with pytest.raises(
            FileFormatError, match=r"s cannot be written .it is a folder, a disk or a socket.: choose"
        ):
            writes(tmp_path / "s")
    assert stat.S_ISSOCK((tmp_path / "s").stat().st_mode)


def test_header_and_payload_are_of_one_file_though_another_takes_its_place(path):
    with open_payload(path, "test") as (header, file):
        write_file(path, "test", {}, [b"another one"])
        assert len(file.read(header.length)) == header.length
    with pytest.raises(FileFormatError, match="was replaced since it was opened: open it again"):
        header.verify()


def test_two_spellings_of_a_file_are_one(path, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(path)
    given = ("~/made", "made", "./made", f"~/../{tmp_path.name}/made", "link", path)
    assert {named(spelling) for spelling in given} == {path.resolve()}
    assert named("~no such user/made").name == "made"


def test_an_output_replaces_nothing_but_its_own_kind(path, tmp_path):
    for free in (tmp_path / "none", path / "below"):
        refuse_to_replace(free, "test")
    (tmp_path / "empty").touch()
    refuse_to_replace(tmp_path / "empty", "test")
    refuse_to_replace(path, "test")
    with pytest.raises(UsageError, match="is there and is no file of other: choose another -o"):
        refuse_to_replace(path, "other")
    with pytest.raises(UsageError, match="is a folder"):
        refuse_to_replace(tmp_path, "test")
    (tmp_path / "text").write_text("precious")
    with pytest.raises(UsageError, match="is no file of test"):
        refuse_to_replace(tmp_path / "text", "test")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UsageError, match="is there and is no whole file of test"):
        refuse_to_replace(path, "test")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_an_output_that_may_not_be_read_is_not_replaced(path):
    path.chmod(0)
    with pytest.raises(UsageError, match="cannot be read"):
        refuse_to_replace(path, "test")
