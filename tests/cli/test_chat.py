"""``draftwood chat``: scripted through a pipe, and as on a terminal."""

import builtins
import io
import re
import sys

import pytest

from tests.cli.conftest import Ran, Terminal

FLAGS = ("--max-new-tokens", "12", "--temperature", "0")
CUT = "(cut after 12 tokens: -n N allows N tokens, -n -1 as many as fit)\n"


def script(*lines):
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.fixture
def chat(draftwood, tiny):
    """Chat with the tiny model, with further flags; ``stdin`` is what is piped in."""
    return lambda *more, **how: draftwood("chat", "--model", tiny, *FLAGS, *more, **how)


def test_a_script_gets_answers_only(chat, draftwood, tiny):
    ran = chat(stdin=script("hello", "", "and now?"))
    assert ran.err == 2 * CUT
    assert chat("--quiet", stdin=script("hello", "", "and now?")).err == ""
    first = draftwood("generate", "hello", "--chat", "--model", tiny, *FLAGS).out
    assert ran.out.startswith(first)
    assert len(ran.out) >= 2 * 12


def test_stats_show_that_a_turn_reads_only_what_is_new(chat):
    ran = chat(stdin=script("hello", "again", "/stats", "/exit", "unheard"))
    first, second = [line for line in ran.out.splitlines() if line.startswith("turn ")]
    assert first.startswith("turn 1: read 8 of 8, wrote 12 tokens, ")
    # There are 8 + 12 from before; new are the answer's last token, <end>, and <user>again<end><assistant>.
    assert second.startswith("turn 2: read 10 of 29, wrote 12 tokens, ")
    assert "tokens per pass" in second


def test_undo_and_reset_take_the_text_back(chat):
    def answers(*lines):
        ran = chat(stdin=script(*lines))
        assert ran.err.replace(CUT, "") == ""
        return ran.out

    once = answers("hello")
    assert answers("hello", "/reset", "hello") == once + "everything is forgotten\n" + once
    assert answers("hello", "/undo", "hello") == once + "the last question and its answer are forgotten\n" + once
    both = answers("hello", "more")
    undone = answers("hello", "other things", "/undo", "more")
    assert undone.endswith(both.removeprefix(once))
    stats = answers("hello", "more", "/undo", "other", "/stats").splitlines()
    assert [line.split(":")[0] for line in stats[-2:]] == ["turn 1", "turn 2"], "of the turns that are left"
    assert answers("hello", "/undo", "/stats").endswith("are forgotten\nnothing was said yet\n")
    assert answers("/undo", "/stats") == "there is nothing to take back\nnothing was said yet\n"


def test_an_unknown_command_ends_a_script_and_a_path_is_none(chat):
    ran = chat(stdin=script("/usr/bin holds what?", "/rest", "hello"), code=2)
    assert ran.out.count("\n") == 1
    assert "did you mean '/reset'" in ran.err


def test_no_chat_template(refused, tiny_without_template):
    assert "no chat template" in refused("chat", "--model", tiny_without_template, stdin=script("hello"))


@pytest.fixture
def talk(monkeypatch, tiny):
    """Type lines on a terminal; an exception among them is raised instead, and the end is Ctrl-D."""

    def call(*typed, code=0):
        from draftwood.cli.main import run

        script = iter([*typed, EOFError()])

        def typing(_prompt=""):
            said = next(script)
            if isinstance(said, BaseException):
                raise said
            return said

        class Keyboard(io.StringIO):
            def isatty(self):
                return True

        out, err = Terminal(), Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(builtins, "input", typing)
            patch.setattr(sys, "stdin", Keyboard())
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            patch.setenv("NO_COLOR", "1")
            assert run(["chat", "--model", tiny, *FLAGS]) == code
        return Ran(out.getvalue(), err.getvalue())

    return call


def test_on_a_terminal_errors_do_not_end_the_talk(talk):
    ran = talk("/rest", "x" * 3000, "hello")
    assert "did you mean '/reset'" in ran.err
    assert "shorten" in ran.err
    assert "12 tokens · " in ran.out


def test_ctrl_c_at_the_prompt_warns_and_then_leaves(talk):
    talk(KeyboardInterrupt(), "hello", KeyboardInterrupt())
    ran = talk(KeyboardInterrupt(), KeyboardInterrupt(), "unheard", code=130)
    assert "Ctrl-C once more leaves" in ran.out
    assert "tokens · " not in ran.out


def test_ctrl_c_stops_an_answer_and_keeps_it(talk, interrupt):
    interrupt(4)
    ran = talk("hello", "go on", "/stats")
    assert "what was said is kept" in ran.out
    read, total = re.search(r"turn 2: read (\d+) of (\d+)", ran.out).groups()
    assert int(read) < int(total)


# --- a conversation that becomes too long; the tiny model takes 2,048 tokens, one a letter ---------------------


def test_a_full_conversation_goes_on_after_reset(talk):
    ran = talk("a" * 1500, "b" * 800, "/reset", "b" * 800, "/stats")
    assert ran.err.count("the conversation is full: it has 2,3") == 1
    assert all(way in ran.err for way in ("/reset", "/undo", "--forget"))
    assert "turn 1: read 803 of 803, wrote 12" in ran.out


def test_forget_drops_the_oldest_turns_and_says_so(chat):
    lines = ("a" * 900, "b" * 900, "c" * 900, "/stats")
    ran = chat("--system", "be nice", "--forget", stdin=script(*lines))
    assert ran.err == 2 * CUT + "(the conversation was full: the oldest turn was forgotten)\n" + CUT
    assert f"of {(9 + 903) + (13 + 903)}, wrote 12" in ran.out


def test_an_answer_that_is_cut_is_not_cut_in_silence(draftwood, tiny):
    call = ("chat", "--model", tiny, "--max-new-tokens", "40")
    ran = draftwood(*call, stdin=script("a" * 1000, "b" * 990))
    assert ("cut the answer after " in ran.err, "--forget" in ran.err) == (True, True)
    assert "cut the answer" not in draftwood(*call, "--forget", stdin=script("a" * 1000, "b" * 990)).err


# --- what is typed -----------------------------------------------------------------------------------------------


def test_a_backslash_continues_a_question(chat, talk):
    split = chat(stdin=b"hel\\\nlo\n/stats\n")
    assert "turn 1: read 9 of 9" in split.out
    assert "turn 1: read 9 of 9" in talk("hel\\", "lo", "/stats").out


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of POSIX")
def test_on_a_real_terminal_pasted_lines_are_one_question_and_history_is_kept(tiny, tmp_path):
    import os
    import pty
    import select
    import stat
    import subprocess
    import time

    def session(*pastes):
        """Paste texts at the prompt of a chat; returns what the terminal showed."""
        ours, theirs = pty.openpty()
        environment = os.environ | {"DRAFTWOOD_CACHE": str(tmp_path), "TERM": "dumb"}
        command = [sys.executable, "-m", "draftwood", "chat", "--model", tiny, *FLAGS]
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as child:
            os.close(theirs)
            seen, left, end = b"", [*pastes, b"\x04"], time.monotonic() + 200
            while child.poll() is None and time.monotonic() < end:
                if select.select([ours], [], [], 0.5)[0]:
                    try:
                        seen += os.read(ours, 4096)
                    except OSError:
                        break
                elif left and seen.rstrip(b" ").endswith(b">"):
                    os.write(ours, left.pop(0))
            child.kill()
        os.close(ours)
        return seen.decode(errors="replace")

    shown = session(b"one\ntwo\n", b"/stats\n")
    assert "turn 1: read 10 of 10" in shown, shown
    assert "turn 2" not in shown
    history = tmp_path / "chat-history"
    assert "one" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    session(b"later\n")
    assert history.read_text().index("one") < history.read_text().index("later")


def test_the_history_is_bounded_and_holds_no_answer(tmp_path):
    readline = pytest.importorskip("readline")
    from draftwood.cli import prompt

    path = tmp_path / "folder" / "chat-history"
    with prompt.history(path):
        for number in range(prompt.HISTORY + 50):
            readline.add_history(f"question {number}")
    lines = path.read_text().splitlines()
    assert len([line for line in lines if line.startswith("question")]) == prompt.HISTORY
    assert lines[-1] == f"question {prompt.HISTORY + 49}"
    path.write_bytes(b"\xff\xfe")
    with prompt.history(path):
        pass
    with prompt.history(tmp_path):  # a folder
        pass


def test_a_lossy_rule_is_said_of_every_answer(draftwood, tiny):
    flags = ("chat", "--model", tiny, *FLAGS, "--rule", "top-k:k=3")
    ran = draftwood(*flags, stdin=script("hello", "and now?"))
    said = "lossy: by the rule top-k:k=3 this text may differ from that of plain decoding\n"
    assert ran.err == 2 * (said + CUT)
