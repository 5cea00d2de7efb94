"""The CPU engine keeps the contract of targets, to the last bit."""

import os
import signal
import threading

import numpy as np
import pytest

from draftwood.engines.cpu.code.instructions import INSTRUCTIONS, runnable
from draftwood.engines.cpu.code.records import UNIT_ROWS
from draftwood.engines.cpu.pool import new_pool
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.files.gguf_file import GgufFile
from draftwood.testing import check_target
from draftwood.tree import TokenTree
from tests.engines.cpu.small_models import write_mixed
from tests.helpers import limit_threads
from tests.tiers import rest_is_slow


@pytest.mark.parametrize("family", ["llama", "gemma3", "lfm2", "qwen35"])
@pytest.mark.parametrize("kind", rest_is_slow(["F32", "F16", "Q8_0", "Q4_0", "Q4_1"], "F32", "Q8_0"))
def test_the_target_keeps_the_contract(tiny_gguf, family, kind):
    target = CpuTarget(tiny_gguf(family, kind), threads=2)
    check_target(target, tolerance=0)
    check_target(target, prompt=[0], tolerance=0)
    check_target(target, prompt=[5] * 70, tolerance=0)
    check_target(target, prompt=np.arange(300).tolist(), tolerance=0)


@pytest.mark.parametrize("name", rest_is_slow(runnable(), runnable()[0]))
def test_files_of_many_types_keep_the_contract(tmp_path, name):
    check_target(CpuTarget(write_mixed(tmp_path / "m.gguf"), instructions=INSTRUCTIONS[name]), tolerance=0)


@pytest.mark.parametrize("given", [0, 1, 3])
def test_as_many_threads_as_are_to_be_had_do(tmp_path, monkeypatch, caplog, given):
    path = write_mixed(tmp_path / "m.gguf")
    monkeypatch.setattr(
        "draftwood.engines.cpu.model.pass_threads",
        new_pool,
    )
    monkeypatch.setattr("draftwood.engines.cpu.weights.cores", lambda: 1)
    started = limit_threads(monkeypatch, given)
    target = CpuTarget(path, threads=4)
    for _ in range(2):
        check_target(target, tolerance=0)
    assert len(started) == given
    assert caplog.messages == [f"no further thread is to be had: passes run on {max(1, given)}"]


@pytest.mark.parametrize(("positions", "widest"), [(600, 32), (128, 32), (20, 16)])
def test_passes_are_timed_within_the_positions_of_the_model(tmp_path, monkeypatch, positions, widest):
    file = GgufFile(write_mixed(tmp_path / "m.gguf"))
    file.metadata["llama.context_length"] = positions
    monkeypatch.setattr("draftwood.engines.pass_times._LONG", float("inf"))  # however busy the machine is
    assert max(CpuTarget(file).pass_times()) == widest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_of_fork_does_not_wait_for_a_thread_that_it_does_not_have(tmp_path):
    target = CpuTarget(write_mixed(tmp_path / "m.gguf"), threads=2)
    target.open([[1, 2, 3]])
    held, go = threading.Event(), threading.Event()

    def hold():
        with target.lock:
            held.set()
            go.wait()

    threading.Thread(target=hold).start()
    held.wait()
    child = os.fork()
    if not child:
        signal.alarm(120)  # ends a child that waits for ever
        target.open([[1, 2, 3]])
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    go.set()
    assert status == 0


def test_long_prompts_are_read_in_narrower_passes(tiny_gguf, monkeypatch):
    """Else parts of attention, one for each row and chunk, would take gigabytes."""
    target, ids = CpuTarget(tiny_gguf("llama", "Q8_0")), np.arange(300).tolist()
    ((_, whole),) = target.open([ids])
    whole.keep()
    monkeypatch.setattr("draftwood.engines.cpu.program._PARTS_BYTES", 0)
    assert target.model.program.most_rows(1) == UNIT_ROWS
    ((_, pieces),) = target.open([ids])
    np.testing.assert_array_equal(pieces.raw(0), whole.raw(0))


def test_first_drafts_find_room_for_their_scores(tiny_gguf):
    target = CpuTarget(tiny_gguf("qwen2", "Q8_0"), threads=1)
    scores = target.model._record.memory.scores
    ((session, _),) = target.open([[1, 2, 3]])
    target.score([(session, 4, TokenTree.build([5] * 7))])
    assert target.model._record.memory.scores is scores


def test_a_pass_depends_on_none_of_those_before_it(tiny_gguf):
    """The record of a pass keeps what the last pass of its size has written."""
    path, rng = tiny_gguf("llama", "Q8_0"), np.random.default_rng(0)
    used, texts = CpuTarget(path), [rng.integers(0, 300, length).tolist() for length in (5, 40, 515, 511)]
    opened = [session for session, _ in used.open(texts)]
    for _ in range(40):
        some = rng.permutation(4)[: 1 + (rng.random() < 0.4)]
        trees = []
        for _ in some:
            parents = [
                int(rng.integers(-1, i)) if rng.random() < 0.3 else i - 1 for i in range(rng.integers(0, 20))
            ]
            trees.append(TokenTree.build(rng.integers(0, 300, len(parents)).tolist(), parents))
        found = used.score([(opened[i], 7, tree) for i, tree in zip(some, trees, strict=True)])
        fresh = CpuTarget(path)
        for i, tree, scores in zip(some, trees, found, strict=True):
            ((session, _),) = fresh.open([texts[i]])
            (alone,) = fresh.score([(session, 7, tree)])
            assert all((alone.raw(row) == scores.raw(row)).all() for row in range(1 + len(tree)))
            opened[i].truncate(len(texts[i]))
