"""What the drafting benchmark times: every drafter runs through its calls, and what it counts is right."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from draftwood.drafters.load import DRAFTERS

HERE = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def arms():
    """The scripts import each other as siblings, as they do when one is run."""
    sys.path.insert(0, str(HERE))
    try:
        yield importlib.import_module("drafting_arms")
    finally:
        sys.path.remove(str(HERE))


WITHOUT_MODELS = {name for name, make in DRAFTERS.items() if not hasattr(make, "with_models")}


@pytest.mark.parametrize("name", sorted({*WITHOUT_MODELS, "memory", "corpus", "prediction", "nothing"}))
def test_every_drafter_is_measured_and_follows_the_text(arms, name):
    text = (np.arange(900) % 7).astype(np.int32)
    (arm,) = [arm for arm in arms.our_arms() if arm.name == name]
    make, at = arm.start(text, 0, 300)
    run = make()
    beside = arm.beside(run, text, 7, 300)
    for shape in arm.shapes:
        emitted = text[at : at + 3].tolist()
        at += 3
        for one in (run, beside):
            one.prepare(emitted)
            one.learn()
            tokens, parents = one.drawn(shape, one.draft(shape))
            assert len(tokens) == len(parents) <= shape.nodes
    if name not in ("nothing", "prediction"):
        assert run.nbytes >= 300  # some text is held at least
    run.close()
    beside.close()


def test_accepted_nodes_are_those_on_the_path_of_the_true_text(arms):
    tokens, parents = [5, 6, 7, 7, 8, 6], [-1, -1, 0, 1, 3, -1]
    assert arms.accepted(tokens, parents, [6, 7, 8, 9]) == {1: 0, 3: 1, 4: 2}
    assert arms.accepted(tokens, parents, [6]) == {1: 0}
    assert arms.accepted(tokens, parents, [9, 7]) == {}
    assert arms.accepted([], [], [1]) == {}


def test_memory_counts_each_array_once_views_by_what_they_keep(arms):
    whole = np.zeros(100, dtype=np.int32)
    assert arms.held([whole, whole[:3]]) == whole.nbytes + [0, 0].__sizeof__()
    assert arms.held("text", 3, np.int32) == 0


def test_a_proposer_is_read_out_of_a_wheel_and_leaves_no_trace(arms, tmp_path):
    peers, wheel = importlib.import_module("drafting_peers"), tmp_path / "vllm-9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(peers.VLLM_FILE, "from vllm.config import VllmConfig\nclass NgramProposer: pass\n")
    assert peers.VllmNgram(wheel).version == "9.9"
    assert "vllm" not in sys.modules
    assert "vllm.config" not in sys.modules
