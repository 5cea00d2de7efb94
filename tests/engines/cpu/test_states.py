"""States of delta nets: where texts can be cut and begin, what is shared, how trees are walked; odd files."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.cpu.walk import GIVEN, NOWHERE, OWN, PLACES, tree_steps
from draftwood.engines.files.hub_settings import settings_of
from draftwood.engines.files.shape_reading import shape_of
from draftwood.errors import ModelError, UnsupportedModelError
from draftwood.tree import TokenTree
from tests.engines.cpu.small_models import equal
from tests.engines.cpu.test_families import IDS, read
from tests.engines.cpu.tiny_families import VOCAB, build, config_of, metadata_of, tensors_of, write
from tests.oracles.cpu_arithmetic import F, softplus

TEXT = np.random.default_rng(0).integers(0, 300, 1000).tolist()


@pytest.fixture(scope="module")
def target(tiny_gguf):
    return CpuTarget(tiny_gguf("qwen35", "Q8_0"), threads=1)


def opened(target, text):
    ((session, _),) = target.open([text])
    return session


def points(saved):
    return list(saved._saved.points.values())


def check(target, session, text):
    """The session holds this text, and goes on as a new one does."""
    assert session.ids == text
    (after,) = target.score([(session, 7, TokenTree.build([8, 9], [-1, 0]))])
    (truth,) = target.score([(opened(target, text), 7, TokenTree.build([8, 9], [-1, 0]))])
    assert all(equal(after, row, truth.raw(row)) for row in range(3))


# --- where texts can be cut and begin ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "reached"),
    [(1000, 1000), (999, 960), (960, 960), (959, 704), (704, 704), (703, 448), (448, 448), (447, 0), (1, 0)],
)
def test_a_text_begins_where_its_prompt_has_left_states(target, length, reached):
    """At the last end of a page that the next turn surely has, and 256, 512, ... tokens before."""
    saved = target.save(opened(target, TEXT))
    assert saved.reach(length) == reached
    session = target.resume(saved, length)
    assert session.length == reached
    target.extend([(session, TEXT[:5])])
    check(target, session, [*TEXT[:reached], *TEXT[:5]])


def test_a_prompt_that_grows_keeps_the_states_of_the_last_ones(target):
    session = opened(target, TEXT[:300])
    for end in range(400, 1001, 100):
        target.extend([(session, TEXT[session.length : end])])
        saved = target.save(session)
        assert saved.reach(end - 8) >= end - 8 - 64
        assert len(points(saved)) < 6
    check(target, session, TEXT)


def test_a_chat_of_short_turns_can_be_gone_back_in(target):
    """The longer the way back, the more may be read again."""
    session, text = opened(target, TEXT[:100]), TEXT * 2
    for end in range(170, 1900, 70):
        target.extend([(session, text[session.length : end])])
        saved = target.save(session)
        assert len(points(saved)) < 8
        for back in (100, 200, 400, 800):
            assert saved.reach(end - back) >= end - back - max(900, 4 * back)


def test_a_text_is_cut_exactly_within_the_tokens_of_the_last_passes(target):
    for back in range(4):
        session = opened(target, TEXT[:100])
        target.score([(session, 7, TokenTree.build([8, 9, 10], [-1, 0, 0]))])
        session.keep([0, 2])
        assert session.length == 103
        session.truncate(103 - back)
        check(target, session, [*TEXT[:100], 7, 8, 10][: 103 - back])
    session.truncate(99)
    check(target, session, TEXT[:64])
    session.truncate(0)
    assert session.length == 0


def test_a_state_that_was_saved_is_not_written_to(target):
    session = opened(target, TEXT[:200])
    target.score([(session, 7, TokenTree.build([8, 9]))])
    session.keep([0, 1])
    saved = target.save(session)
    before = [slot.inputs.tobytes() for point in points(saved) for slot in (point.state, *point.pending)]
    twin = target.resume(saved, 203)
    for one in (session, twin):
        for root in range(12):
            target.score([(one, root, TokenTree.build([8, 9, 10, 11]))])
            one.keep([0, 1])
        target.extend([(one, TEXT[:30])])
    after = [slot.inputs.tobytes() for point in points(saved) for slot in (point.state, *point.pending)]
    assert after == before
    check(target, target.resume(saved, 203), [*TEXT[:200], 7, 8, 9])


def test_memory_of_a_text_does_not_grow_with_its_passes(target):
    session, sizes = opened(target, TEXT[:100]), []
    for root in range(40):
        target.score([(session, root, TokenTree.build([8, 9, 10, 11]))])
        session.keep([0, 1][: root % 3])
        sizes.append(session.recent.nbytes)
    assert sizes[-1] == sizes[20]


# --- trees -------------------------------------------------------------------------------------------------------


def run(steps, first, known, row):
    """Do steps as kernels do, a state being the path of nodes that made it; returns the path of each row."""
    places, found = {GIVEN: ()}, {}
    for token, source, target, is_known in steps:
        node = known[token] if is_known else token - row + first
        path = (*places[source], node)
        if not is_known:
            found[node] = path
        if target != NOWHERE:
            assert target == OWN or 0 <= target < PLACES
            places[target] = path
    return found


def check_steps(parents, first=0, base=GIVEN):
    ways = []
    for node, parent in enumerate(parents):
        ways.append([*(ways[parent] if parent >= 0 else ()), 50 + node])
    new = ways[first:]
    steps = tree_steps(base, 9, len(new), new, 50, lambda node: 1000 + node)
    if base == 0:
        steps = [(999, GIVEN, 0, 1), *steps]
    known = {1000 + node: node for node in range(-1, first)}
    prefix = (-1,) if base == 0 else ()
    for node, path in run(steps, first, known, 9).items():
        assert path == (*prefix, *(cell - 50 for cell in ways[node]))
        new.remove(ways[node])
    assert not new, "each row has one step"


@pytest.mark.parametrize("base", [GIVEN, 0])
def test_each_node_of_a_walk_has_the_state_of_its_path(base):
    rng = np.random.default_rng(1)
    for _ in range(40):
        count = int(rng.integers(1, 30))
        near = int(rng.integers(1, 30))
        parents = [int(rng.integers(max(-1, i - near), i)) for i in range(count)]
        check_steps(parents, int(rng.integers(0, count)), base)


@pytest.mark.parametrize("base", [GIVEN, 0])
@pytest.mark.parametrize("children", [1, 2, 3, 255])
def test_the_widest_trees_have_room(children, base):
    check_steps([(node - 1) // children if node else -1 for node in range(255)], 0, base)
    check_steps([(node - 1) // children if node else -1 for node in range(255)], 127, base)


# --- numbers, files and folders ----------------------------------------------------------------------------------


def test_softplus_is_right_to_some_ulp():
    x = np.concatenate((np.linspace(-80, 80, 20001), [-0.9, -0.88, 0.88, 0.9])).astype(F)
    np.testing.assert_allclose(softplus(x), np.logaddexp(0, x.astype(np.float64)), rtol=4e-7)
    assert np.isnan(softplus(np.array([np.nan], F)))
    assert softplus(np.array([np.inf, -np.inf], F)).tolist() == [np.inf, 0]


@pytest.mark.parametrize(
    ("model_", "head", "eyes"),
    [
        ("model.language_model.", "lm_head.", "model.visual."),
        ("language_model.model.", "language_model.lm_head.", "vision_tower."),
    ],
)
def test_a_folder_of_several_parts_is_its_model_of_texts(model_, head, eyes, tmp_path):
    model = build("qwen35")
    text, whole = tmp_path / "text", tmp_path / "whole"
    model.save_pretrained(text)
    whole.mkdir()
    tensors = {
        name.replace("model.", model_, 1).replace("lm_head.", head): value
        for name, value in load_file(text / "model.safetensors").items()
    }
    tensors[f"{eyes}blocks.0.attn.qkv.weight"] = np.ones((4, 4), F)
    save_file(tensors, whole / "model.safetensors")
    config = {"model_type": "qwen3_5", "text_config": model.config.to_dict(), "tie_word_embeddings": False}
    (whole / "config.json").write_text(json.dumps(config | {"vision_config": {"model_type": "qwen3_5"}}))
    ours, theirs = (read(CpuTarget(folder, threads=1), IDS[:40]) for folder in (whole, text))
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("said", "error", "sentence"),
    [
        ({"ssm.conv_kernel": 3}, UnsupportedModelError, "no models with ssm.conv_kernel 3, but with 4"),
        ({"ssm.state_size": 64}, UnsupportedModelError, "ssm.state_size 64"),
        ({"ssm.inner_size": 100}, UnsupportedModelError, "ssm.inner_size 100, but with 768"),
        ({"ssm.group_count": 4}, ModelError, "6 states share 4 heads of keys"),
        ({"ssm.time_step_rank": None}, ModelError, "ssm.time_step_rank is None"),
        ({"ssm.time_step_rank": [6, 5]}, UnsupportedModelError, "layers differ in ssm.time_step_rank"),
        ({"full_attention_interval": 0}, ModelError, "full_attention_interval is 0"),
        ({"attention.recurrent_layers": [1, 0]}, ModelError, "recurrent_layers is"),
        ({"attention.recurrent_layers": ["a"] * 4}, ModelError, "recurrent_layers is"),
        ({"attention.recurrent_layers": [True] * 4}, UnsupportedModelError, "no models without attention"),
        ({"nextn_predict_layers": 4}, ModelError, "nextn_predict_layers is 4"),
    ],
)
def test_numbers_that_are_refused(said, error, sentence):
    with pytest.raises(error, match=sentence):
        shape_of(metadata_of("qwen35", said), VOCAB)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"attn_output_gate": False}, "attn_output_gate False"),
        ({"output_gate_type": "sigmoid"}, "output_gate_type 'sigmoid'"),
        ({"layer_types": ["full_attention", "sliding_attention"] * 2}, "layers of the types"),
        ({"linear_key_head_dim": 64}, "ssm.state_size 64"),
        ({"linear_value_head_dim": 64}, "ssm.inner_size"),
    ],
)
def test_settings_that_are_refused(settings, sentence):
    with pytest.raises(UnsupportedModelError, match=sentence):
        shape_of(settings_of(config_of("qwen35").to_dict() | settings).metadata, VOCAB)


@pytest.mark.parametrize("rates", [np.nan, 0.5, -np.inf])
def test_states_that_would_grow_without_end_are_refused(rates, tmp_path):
    model = build("qwen35")
    tensors = tensors_of("qwen35", model) | {"blk.2.ssm_a": np.full(6, rates, F)}
    with pytest.raises(ModelError, match=r"ssm_a of layer 2|blk\.2\.ssm_a in"):
        CpuTarget(write(tmp_path / "m.gguf", "qwen35", tensors, model.config))
