"""What may go wrong around the CPU engine: numbers that are not finite, wrong calls, threads, interrupts."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from draftwood.engines.cpu.code.cells import PAGE
from draftwood.engines.cpu.code.instructions import INSTRUCTIONS
from draftwood.engines.cpu.pages import Pages
from draftwood.engines.cpu.pool import pass_threads
from draftwood.engines.cpu.target import CpuTarget
from draftwood.errors import CapabilityError, PromptError, UsageError
from draftwood.tree import TokenTree
from tests.engines.cpu.small_models import Truth, write_mixed
from tests.engines.cpu.tiny_families import build, config_of, tensors_of, write
from tests.fuzz.interrupt import interrupted
from tests.tiers import rest_is_slow

NONE = TokenTree.empty()
TEXT = np.random.default_rng(0).integers(8, 300, 90).tolist()


@pytest.fixture(scope="module")
def path(tiny_gguf):
    return tiny_gguf("llama", "Q8_0")


@pytest.fixture(scope="module")
def target(path):
    return CpuTarget(path, threads=2)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A model of 90 tokens that takes 600 positions."""
    return CpuTarget(write_mixed(tmp_path_factory.mktemp("mixed") / "m.gguf"), threads=2)


def spoilt(path, value, instructions=None):
    """A target for which embeddings of token 7 have scales that are not finite."""
    target = CpuTarget(path, threads=2, instructions=instructions and INSTRUCTIONS[instructions])
    packed = target.model.weights.embedding.packed
    if packed.dtype == np.uint8:
        packed[0, :, 14:16] = np.array([value], np.float16).view(np.uint8)
    else:
        packed[0, :, 7] = value
    return target


def bits(row):
    return row.view(np.int32).tolist()


# --- numbers that are not finite -----------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "instructions"), [(np.nan, None), (np.inf, None), (np.inf, "plain")])
def test_rows_that_are_not_finite_have_no_best_token_and_spoil_no_others(path, target, value, instructions):
    odd = spoilt(path, value, instructions)
    truth = Truth(target)
    opened = odd.open([TEXT[:20], [*TEXT[:20], 7], TEXT[:66]])
    assert [scores.argmax(0) for _, scores in opened] == [
        truth(TEXT[:20]).argmax(), -1, truth(TEXT[:66]).argmax()
    ]  # fmt: skip
    sessions = [session for session, _ in opened]
    tree = TokenTree.build([7, 9, 10, 11], [-1, 0, -1, 2])
    first, second, third = odd.score([(session, 8, tree) for session in sessions])
    assert [first.argmax(row) for row in (1, 2)] == [-1, -1]
    assert [second.argmax(row) for row in range(5)] == [-1] * 5
    for scores, text in ((first, TEXT[:20]), (third, TEXT[:66])):
        for row, path_of in ((0, []), (3, [10]), (4, [10, 11])):
            assert bits(scores.raw(row)) == bits(truth([*text, 8, *path_of]))
    ids, shares = first.top_k(3)
    assert (ids >= 0).all()
    assert not shares[1].any()
    sessions[0].keep([2, 3])
    (scores,) = odd.score([(sessions[0], 5, NONE)])
    assert bits(scores.raw(0)) == bits(truth([*TEXT[:20], 8, 10, 11, 5]))


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_what_a_window_has_left_behind_spoils_nothing(tiny_gguf, kind):
    odd = spoilt(tiny_gguf("gemma3", kind), np.nan)
    text = [*TEXT[:5], 7, *TEXT[5:60]]
    truth = Truth(odd)
    rows = truth.begin_with(text)
    assert np.isnan(rows).any(axis=1).tolist() == [5 <= row <= 5 + 14 for row in range(len(rows))]
    for width in (2, 3, 4, 5, 16, 40):
        ((session, _),) = odd.open([text[:3]])
        for start in range(3, 60 - width, width):
            (scores,) = odd.score([(session, text[start], TokenTree.build(text[start + 1 : start + width]))])
            for row in range(width):
                same = np.array_equal(scores.raw(row), rows[start + row], equal_nan=True)
                assert same, f"{width}, {start + row}"
            session.keep(list(range(width - 1)))
        session.close()


def test_a_width_that_is_no_multiple_of_a_vector_keeps_nothing_of_a_row_that_is_not_finite(tmp_path):
    config = config_of("llama", hidden_size=40, num_attention_heads=2, num_key_value_heads=1)
    tensors = tensors_of("llama", build("llama", hidden_size=40, num_attention_heads=2, num_key_value_heads=1))
    target = CpuTarget(write(tmp_path / "m.gguf", "llama", tensors, config))
    ((_, before),) = target.open([[1, 2, 3]])
    truth = bits(before.raw(0))
    tensors["token_embd.weight"][7] = np.nan
    odd = CpuTarget(write(tmp_path / "n.gguf", "llama", tensors, config))
    odd.open([[7, 7, 7, 7]])
    ((_, after),) = odd.open([[1, 2, 3]])
    assert bits(after.raw(0)) == truth


# --- wrong calls ---------------------------------------------------------------------------------------------


def test_token_ids_outside_the_vocabulary_are_refused(target):
    for ids in ([320], [-1], [3, 1 << 40], np.array([(1 << 32) + 5]), [1.5], np.array([1 << 63], np.uint64)):
        with pytest.raises(PromptError, match="outside the vocabulary"):
            target.open([ids])
    ((session, _),) = target.open([TEXT[:5]])
    with pytest.raises(PromptError, match="outside the vocabulary"):
        target.extend([(session, [4, 320])])
    for root, tree in (
        (320, NONE),
        (-1, NONE),
        (3, TokenTree.build([320])),
        (3, TokenTree.build([5, -2], [-1, -1])),
    ):
        with pytest.raises(UsageError, match="outside the vocabulary"):
            target.score([(session, root, tree)])
    with pytest.raises(UsageError, match="token ids must be"):
        target.score([(session, 1 << 40, NONE)])
    (scores,) = target.score([(session, 9, NONE)])
    assert bits(scores.raw(0)) == bits(Truth(target)([*TEXT[:5], 9]))


def test_empty_prompts_are_refused(target):
    with pytest.raises(PromptError, match="empty"):
        target.open([[]])
    assert target.open([]) == target.score([]) == []


def test_texts_end_at_the_last_position(small):
    text = np.random.default_rng(1).integers(0, 90, 601).tolist()
    with pytest.raises(PromptError, match="at most 600"):
        small.open([text])
    ((session, scores),) = small.open([text[:600]])
    assert np.isfinite(scores.raw(0)).all()
    with pytest.raises(PromptError, match="at most 600"):
        small.extend([(session, [1])])
    with pytest.raises(CapabilityError, match="positions"):
        small.score([(session, 1, NONE)])
    session.truncate(598)
    with pytest.raises(CapabilityError, match="positions"):
        small.score([(session, text[598], TokenTree.build([1, 2]))])
    (wide,) = small.score([(session, text[598], TokenTree.build([text[599], 4, 5], [-1, -1, -1]))])
    assert bits(wide.raw(1)) == bits(scores.raw(0))


def test_trees_wider_than_a_pass_are_refused(target):
    ((session, _),) = target.open([TEXT[:5]])
    with pytest.raises(CapabilityError, match="at most 255"):
        target.score([(session, 1, TokenTree.build([1] * 256))])


def test_closed_sessions_are_refused(target):
    ((session, _),) = target.open([TEXT[:70]])
    target.score([(session, 1, TokenTree.build([2, 3]))])
    session.close()
    session.close()
    for wrong in (
        lambda: target.score([(session, 1, NONE)]),
        lambda: target.extend([(session, [1])]),
        lambda: target.save(session),
    ):
        with pytest.raises(UsageError, match="closed"):
            wrong()
    with pytest.raises(RuntimeError, match="follows a score"):
        session.keep([])
    session.truncate(3)


def test_sessions_and_prefixes_of_another_target_are_refused(target, small):
    ((session, _),) = small.open([[1]])
    for wrong in (lambda: target.score([(session, 1, NONE)]), lambda: target.extend([(session, [1])])):
        with pytest.raises(UsageError, match="another target"):
            wrong()
    prefix = small.save(session)
    with pytest.raises(UsageError, match="not read by this target"):
        target.resume(prefix, 1)
    for length in (-1, 2):
        with pytest.raises(UsageError, match="not read by this target"):
            small.resume(prefix, length)


# --- memory --------------------------------------------------------------------------------------------------


def test_pages_are_shared_until_they_are_written_and_given_back(small):
    ((session, _),) = small.open([[1] * 200])
    assert len(session.pages._pages) == 4
    twins = [small.resume(small.save(session), 200) for _ in range(3)]
    live = {id(page) for one in (session, *twins) for page in one.pages._pages}
    assert len(live) == 4, "a prefix copies nothing"
    small.score([(one, 2, NONE) for one in (session, *twins)])
    live = {id(page) for one in (session, *twins) for page in one.pages._pages}
    assert len(live) == 3 + 4, "each has a last page of its own, and nobody keeps the one that they shared"
    session.truncate(PAGE)
    assert len(session.pages._pages) <= 2
    for one in (session, *twins):
        one.close()
        assert len(one.pages._pages) == 0


# --- threads and processes -----------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_computes_the_same(target):
    ((session, _),) = target.open([TEXT[:40]])
    (before,) = target.score([(session, 5, NONE)])
    expected = before.raw(0).tobytes()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            (scores,) = target.score([(session, 5, NONE)])
            os.write(write, scores.raw(0).tobytes())
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == expected
    assert os.waitpid(child, 0)[1] == 0
    (after,) = target.score([(session, 5, NONE)])
    assert after.raw(0).tobytes() == expected


def test_targets_may_go_while_helpers_are_late(path):
    for number in range(12):
        target = CpuTarget(path, threads=4)
        ((session, scores),) = target.open([TEXT[: 5 + number]])
        cycle = [target, session]
        cycle.append(cycle)
        del target, session, cycle
        if number % 3 == 0:
            gc.collect()
        assert np.isfinite(scores.raw(0)).all()
    del scores
    gc.collect()
    assert not pass_threads()._dead


def run(script, *arguments, **options):
    command = [sys.executable, "-X", "faulthandler", "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


TREE = TokenTree.build([1, 2, 3, 4, 5, 6], [-1, -1, 1, 2, 0, 4])
ENDS = ([], [9, 2, 3, 4], [9, 2, 3, 4, 7, 7, 7], [9, 2, 3], [9, 2])
"""What may stand behind the text when an interrupt has come: nothing, what was kept, and so on; with short
convolutions the last cut is to the end of a page."""


def live(target, session):
    """What interrupts come in: a wide pass, a path that is moved, more text, a cut into pages that are shared."""
    target.score([(session, 9, TREE)])
    session.keep([1, 2, 3])
    target.extend([(session, [7, 7, 7])])
    session.truncate(len(TEXT[:62]) + 3)


@pytest.mark.parametrize("family", ["llama", "lfm2", "qwen35", "granitehybrid"])
@pytest.mark.parametrize("offset", rest_is_slow(range(9), 0))
def test_sessions_go_on_behind_an_interrupt_at_any_line(tiny_gguf, family, offset):
    path = tiny_gguf(family, "Q8_0")
    truth = Truth(CpuTarget(path, threads=1))
    truth.begin_with(TEXT[:62])
    was_cut, line = True, 1 + offset
    while was_cut:
        target = CpuTarget(path, threads=2)
        ((session, _),) = target.open([TEXT[:62]])
        twin = target.resume(target.save(session), 62)
        target.model.program.positions = 8  # so that tables grow
        try:
            with interrupted(line):
                live(target, session)
            was_cut = False
        except KeyboardInterrupt:
            pass
        assert not pass_threads()._lock.locked()
        assert session.ids[:62] == TEXT[:62]
        assert session.ids[62:] in ENDS, line
        for one in (session, twin):
            (scores,) = target.score([(one, 3, TokenTree.build([4, 5], [-1, -1]))])
            for row, path_of in enumerate(([], [4], [5])):
                assert bits(scores.raw(row)) == bits(truth([*one.ids, 3, *path_of])), line
        line += 9
    assert line > 100, "there were lines to interrupt"


def test_pages_name_a_table_that_is_alive_after_an_interrupt_at_any_line():
    for line in range(1, 40):
        pages = Pages(64, [np.zeros(32, dtype=np.int16) for _ in range(16)])
        with contextlib.suppress(KeyboardInterrupt), interrupted(line):
            pages.make_ready(1020, 1100)
        assert pages.address == pages.addresses.ctypes.data, line
        pages.make_ready(1020, 1100)
        assert [page.ctypes.data for page in pages._pages] == pages.addresses[: len(pages._pages)].tolist(), line


def test_what_an_interrupted_pass_has_overwritten_is_not_kept(target, monkeypatch):
    ((session, _),) = target.open([TEXT[:20]])
    target.score([(session, 1, TREE)])

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(target.model, "score", stopped)
    with pytest.raises(KeyboardInterrupt):
        target.score([(session, 2, TREE)])
    with pytest.raises(RuntimeError, match="follows a score"):
        session.keep([1, 2, 3])


def test_a_path_of_nodes_that_the_tree_lacks_moves_nothing(target):
    ((session, _),) = target.open([TEXT[:20]])
    target.score([(session, 1, TREE)])
    with pytest.raises(IndexError):
        session.keep([0, 70000])
    assert session.ids == TEXT[:20]


@pytest.mark.skipif(os.name == "nt", reason="signals are others there")
def test_ctrl_c_ends_a_pass_with_a_keyboard_interrupt(path):
    script = """
import signal, sys
from draftwood.engines.cpu.target import CpuTarget
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests may ignore it
target = CpuTarget(sys.argv[1], threads=2)
target.open([[1, 2, 3]])
try:
    print("ready", flush=True)
    while True:
        target.open([[1] * 4000])
except KeyboardInterrupt:
    print("interrupted", target.open([[1, 2, 3]])[0][1].argmax(0))
"""
    with run(script, path) as child:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        try:
            said, errors = child.communicate(timeout=120)
        finally:
            child.kill()
    assert (child.returncode, errors) == (0, "")
    assert said.startswith("interrupted")
