"""A second start: weights that were tried are not tried again, other weights of the same model are, briefly; and
what the file says cannot make a text wrong.
"""

import subprocess
import sys
from functools import wraps
from pathlib import Path

import pytest
from transformers.models.llama import modeling_llama

import draftwood
from draftwood.engines.transformers import selftest, shared
from draftwood.engines.transformers.seen import trial_key
from draftwood.local import findings
from tests.engines.tiny import FAMILIES, build

PROMPT = [5, 6, 7, 5, 6, 7, 5]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Calls of it are new starts, as far as trials go; returns how the model's own forward is counted."""
    monkeypatch.setattr(findings, "folder", lambda: tmp_path)
    counted = []
    after = selftest._Own.after

    def counting(self, text):
        counted.append(tuple(text))
        return after(self, text)

    monkeypatch.setattr(selftest._Own, "after", counting)

    def begin():
        monkeypatch.setattr(shared, "_passed", {})
        counted.clear()
        return counted

    return begin


def write(model):
    return draftwood.generate(model, PROMPT, max_new_tokens=20).ids


@pytest.mark.parametrize(("family", "seed"), [("llama", 1), ("gemma3", 0)])
def test_the_second_start_tries_less_and_writes_the_same(start, family, seed):
    counted = start()
    text = write(build(family))
    first = len(set(counted))
    counted = start()
    write(build(family, seed=seed))
    assert 0 < len(set(counted)) <= first / 3
    assert write(build(family)) == text


def test_the_lean_pass_is_not_tried_again_with_the_same_weights(start):
    start()
    text = write(build("llama"))
    counted = start()
    assert write(build("llama")) == text
    assert not counted


@pytest.mark.parametrize("unpacked", [True, False])
def test_only_the_lean_pass_on_packed_weights_is_taken_as_tried(start, unpacked, monkeypatch):
    """Other ways run code of the model's, which may do otherwise today; unpacked weights are not compared."""
    if not unpacked:
        monkeypatch.setattr("draftwood.engines.transformers.target.lean_pass", lambda *_, **__: None)
    for _ in range(2):
        counted = start()
        draftwood.prepare(build("llama"), pack=not unpacked)
        assert counted


def one_number(name):
    def change(model, _monkeypatch):
        model.get_submodule(name).weight.data.view(-1)[7] += 1

    return change


def exchanged(model, _monkeypatch):
    first, second = (model.model.layers[i].self_attn.q_proj.weight.data for i in (0, 1))
    kept = first.clone()
    first.copy_(second)
    second.copy_(kept)


CHANGES = {
    **{
        name: one_number(name)
        for name in ("lm_head", "model.norm", "model.layers.1.self_attn.k_proj", "model.embed_tokens")
    },
    "the same weights in other places": exchanged,
    "another instruction set": lambda _, patch: patch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_has_changed_is_tried_again(start, monkeypatch, change):
    start()
    write(build("llama"))
    model = build("llama")
    CHANGES[change](model, monkeypatch)
    counted = start()
    write(model)
    assert counted


def test_a_wrong_entry_is_noticed_and_replaced(start):
    """Written by hand: a way that would do too is taken, one that is not there is not."""
    start()
    model = build("llama")
    text = write(model)
    key = trial_key(model, packed=True)
    place = findings.place_of(findings.TRIAL, key)
    assert findings.read(place) == "lean"
    for wrong in ("own cache", "no way", 3, [], {"lean": 1}):
        findings.write(place, wrong)
        start()
        assert write(build("llama")) == text
    assert findings.read(place) == "lean"


def test_a_way_that_fails_now_is_not_believed(start, monkeypatch):
    start()
    text = write(build("llama"))

    def broken(made):
        score = made.score

        def wrong(requests):
            found = score(requests)
            for scores in found:
                scores._rows[-1] = scores._rows[-1][::-1].copy()
            return found

        made.score = wrong
        return made

    ways = shared.ways
    monkeypatch.setattr(shared, "ways", lambda *a: ways(*a) | {"lean": lambda: broken(ways(*a)["lean"]())})
    counted = start()
    monkeypatch.setattr(shared, "_weights_key", lambda *_: None)  # as if these weights were new
    model = build("llama")
    assert write(model) == text
    assert findings.read(findings.place_of(findings.TRIAL, trial_key(model, packed=True))) == "modules"
    assert counted


def test_code_of_unknown_effect_is_tried_in_every_process(start):
    for _ in range(2):
        counted = start()
        model = build("llama")
        model.model.layers[0].register_forward_hook(lambda *_: None)
        write(model)
        assert trial_key(model, packed=True) is None
        assert len(set(counted)) > 10


def test_functions_are_part_of_the_key_and_foreign_ones_leave_none(monkeypatch):
    """Of two patches by one closure the code is the same, and what they do is not."""

    def scaled(by):
        def scale(q, k, cos, sin, **_):
            return rotated(q, k, cos * by, sin)

        return wraps(rotated)(scale)

    model, rotated = build("llama"), modeling_llama.apply_rotary_pos_emb
    before = trial_key(model, packed=True)
    assert before is not None
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", modeling_llama.eager_attention_forward)
    assert trial_key(model, packed=True) not in (before, None)
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", scaled(-1))
    assert trial_key(model, packed=True) is None


def test_the_key_tells_models_apart_and_is_the_same_in_every_process():
    keys = {family: trial_key(build(family), packed=True) for family in FAMILIES}
    assert len(set(keys.values())) == len(keys)
    assert trial_key(build("llama", seed=1), packed=True) == keys["llama"]
    assert trial_key(build("llama"), packed=False) != keys["llama"]
    assert trial_key(build("llama").bfloat16(), packed=True) != keys["llama"]
    imported = "".join(f"import {name}; " for name in ("accelerate", "peft") if name in sys.modules)
    program = (
        f"{imported}from tests.engines.tiny import build; "
        "from draftwood.engines.transformers.seen import trial_key; "
        "print(trial_key(build('llama'), packed=True))"
    )
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == keys["llama"]
