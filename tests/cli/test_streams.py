"""Standard streams that are closed, full, or hold no UTF-8."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a shell of POSIX")


def shell(line):
    """Run a line of shell, in which ``draftwood`` is ours; returns exit code, output, errors."""
    line = line.replace("draftwood", f'"{sys.executable}" -m draftwood')
    ran = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=300)
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize(("line", "code"), [
    ("draftwood --version >&-", 0), ("draftwood --version >&- 2>&- <&-", 0), ("draftwood nosuch 2>&-", 2),
    ("draftwood generate @nowhere >&- 2>&-", 2),
])  # fmt: skip
def test_closed_streams_change_no_exit_code(line, code):
    assert shell(line) == (code, "", "")


def test_the_other_stream_still_speaks():
    code, out, _ = shell("draftwood --version 2>&-")
    assert (code, out.startswith("draftwood ")) == (0, True)
    code, _, err = shell("draftwood nosuch >&-")
    assert (code, err.startswith("error: ")) == (2, True)
    code, out, err = shell("draftwood generate - <&-")
    assert (code, out, err.startswith("error: standard input is empty")) == (2, "", True)
    for line in ("draftwood --help | true", "draftwood nosuch 2>&1 | true"):
        assert shell(line)[2] == ""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/dev/full")
def test_a_full_disk_is_one_line():
    said = "error: the output cannot be written (No space left on device): choose another place for it\n"
    assert shell("draftwood --version > /dev/full") == (1, "", said)


@pytest.mark.parametrize("raw", [b"caf\xe9 au lait", b"\xff\xfeh\x00i\x00", b"hello\n\xff\n"])
def test_bytes_that_are_no_text_are_refused_on_every_way(draftwood, tiny, tmp_path, raw):
    file = tmp_path / "p.txt"
    file.write_bytes(raw)
    for arguments, given in (
        (("generate", "-"), raw),
        (("generate", f"@{file}"), b""),
        (("explain", "--live", "-"), raw),
        (("drift", "-"), raw),
        (("chat", "--max-new-tokens", "2"), raw),
    ):
        ran = draftwood(*arguments, "-m", tiny, stdin=given, code=2)
        assert "no UTF-8 text" in ran.err
        assert ran.err.count("\n") == 1 + ran.err.count("(cut after 2 tokens")  # of a line before
        assert "\ufffd" not in ran.out
