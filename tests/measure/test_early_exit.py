"""The search for layers that draft best, on a model of which the answer is known."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.cli.conftest import TEMPLATE, save_tiny
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from draftwood.api.setup import Setup
from draftwood.errors import CapabilityError, UsageError
from draftwood.measure.profile.draft_costs import LONGEST, DraftCosts, measure_costs
from draftwood.measure.profile.early_exit import (
    Findings,
    Judged,
    _Search,
    expected,
    search_layers,
    steps,
    tokens_per_cycle,
    write_findings,
)
from draftwood.models import early_exit_place
from draftwood.models.early_exit_place import choice_of, early_exit_path
from draftwood.models.findings import Setting, newest_profile, profile_path
from draftwood.testing import ToyTarget

LAYERS, IDLE = 6, (1, 3, 4)
COSTS = DraftCosts(0.05, 0.9 / LAYERS, ((1, 1.0), (2, 1.0), (9, 1.1)))
SETTING = Setting("owner/model", "float32", 1)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    endless = TEMPLATE.replace("<end>", "")  # else answers may end where the template ends turns
    return AutoTokenizer.from_pretrained(save_tiny(tmp_path_factory.mktemp("models") / "tiny", endless))


def a_setup(tokenizer, idle=IDLE, layers=LAYERS):
    """A model some of whose layers change nothing."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024, initializer_range=0.5,
        eos_token_id=None, bos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for number in idle:
            model.model.layers[number].self_attn.o_proj.weight.zero_()
            model.model.layers[number].mlp.down_proj.weight.zero_()
    setup = Setup(model, tokenizer, "none", "fixed:0")
    setup.refresh()
    return setup


@pytest.fixture(scope="module")
def found(tokenizer):
    return search_layers(a_setup(tokenizer), asked=["2", "1.3"], tokens=12, costs=COSTS)


def test_layers_that_change_nothing_are_skipped_and_no_others(found):
    assert found.best.layers == (0, 2, 5)
    assert found.best.text == "0.2.5"
    assert found.best.agreement == 1
    assert found.pays
    assert found.best.tokens > found.best.length
    assert [one.speedup for one in found.judged] == sorted((one.speedup for one in found.judged), reverse=True)


def test_what_was_asked_for_and_the_default_are_judged_too(found):
    assert {"2", "1.3", "3"} <= {one.text for one in found.judged}
    assert found.tokens == (48, 48)
    assert found.tried >= LAYERS


def test_a_search_without_time_still_finds_an_answer(tokenizer):
    found = search_layers(a_setup(tokenizer), seconds=0, tokens=12, costs=COSTS)
    assert found.best.layers == (0, 2, 5), "the shortlist has it"


class KnownLosses:
    """Parts of a model that agree with it less by a known share per layer that is missing."""

    n_layers, rows = 12, 1000
    losses = (0.9, 0.5, 0.01, 0.02, 0.6, 0.0, 0.0, 0.7, 0.03, 0.0, 0.4, 0.8)

    def matches(self, layers):
        left = np.prod([1 - loss for layer, loss in enumerate(self.losses) if layer not in layers])
        return np.arange(self.rows)[None] < round(self.rows * left)

    def exit_matches(self, count):
        return self.matches(range(count))[0]

    def shortlist(self, on_layer=None):
        return [tuple(range(12 - count, 12)) for count in range(1, 12)]  # bad ones


def test_layers_are_dropped_while_that_pays_and_few_are_tried_twice():
    passes, costs = KnownLosses(), DraftCosts(0.05, 0.95 / 12, ((1, 1.0), (9, 1.1)))
    search = _Search(passes, costs, math.inf, lambda *_: None)
    best = search.best_subsets()[0]
    assert best == (0, 1, 4, 7, 10, 11), "all that cost less than they take are gone"
    assert search.tried < 80

    late = _Search(passes, costs, 0.0, lambda *_: None)
    assert late.best_subsets()
    assert late.tried == 11, "the shortlist alone"


def test_where_no_choice_pays_it_is_said(tokenizer):
    dear = DraftCosts(0.9, 0.1, ((1, 1.0), (9, 2.0)))
    found = search_layers(a_setup(tokenizer, idle=()), seconds=0, tokens=12, costs=dear)
    assert not found.pays
    rows = {row["row"]: row for row in found.rows()}
    assert rows["best"]["pays"] is False


def test_progress_goes_forward_to_the_end(tokenizer):
    said = []
    search_layers(
        a_setup(tokenizer), tokens=4, rounds=1, on_progress=lambda what, share: said.append((share, what))
    )
    shares = [share for share, _ in said]
    assert all(0 <= share <= 1 for share in shares)
    assert next(what for _, what in said) == "writing"
    assert {"timing passes", "first layers", "subsets", "judging"} <= {what for _, what in said}


@pytest.mark.parametrize("layers", ["6", "0-9", "x"])
def test_layers_that_the_model_has_not_are_refused_before_anything_is_written(tokenizer, layers):
    said = []
    with pytest.raises(UsageError, match="layers"):
        search_layers(a_setup(tokenizer), asked=[layers], on_progress=lambda *one: said.append(one))
    assert not said


def test_a_model_of_one_layer_has_none_to_leave_out(tokenizer):
    with pytest.raises(UsageError, match="layer"):
        search_layers(a_setup(tokenizer, idle=(), layers=1))


def test_targets_without_a_pass_of_our_own_are_refused(tokenizer):
    with pytest.raises(CapabilityError, match="early-exit needs"):
        search_layers(SimpleNamespace(target=ToyTarget(), tokenizer=tokenizer))


def test_costs_are_those_of_a_line_in_plain_passes(tokenizer):
    costs = measure_costs(a_setup(tokenizer).target, list(range(20)), rounds=3)
    assert costs.base >= 0
    assert costs.per_layer >= 0
    assert costs.verifying[0] == (1, 1.0)
    assert [n for n, _ in costs.verifying] == [1, 2, 3, 5, 1 + LONGEST]
    prices = [cost for _, cost in costs.verifying]
    assert prices == sorted(prices)
    assert costs.cycle(3, 2) == pytest.approx(2 * costs.draft(3) + prices[2])


def test_the_expected_speed_up():
    free = DraftCosts(0.0, 0.0, ((1, 1.0), (9, 1.0)))
    assert expected(1.0, 3, free) == pytest.approx(1 + LONGEST)
    assert expected(0.5, 3, free) == pytest.approx(2 - 0.5**LONGEST)
    assert expected(0.0, 3, free) == pytest.approx(1)
    assert expected(1.0, 3, DraftCosts(0.0, 1 / 3, ((1, 1.0), (9, 1.0)))) == pytest.approx(1)


def test_tokens_per_cycle_follow_the_text():
    right = np.zeros((2, 6), dtype=bool)
    right[0] = [True, True, False, False, True, True]
    right[1] = [False, True, False, False, False, False]
    # A chain of one: rows 0-1, 2, 3, 4-5. Of two: rows 0-2, 3, 4-5.
    assert tokens_per_cycle(right, [6], 1) == pytest.approx(6 / 4)
    assert tokens_per_cycle(right, [6], 2) == pytest.approx(6 / 3)
    assert tokens_per_cycle(right, [3, 3], 2) == pytest.approx(6 / 3)


def test_steps_from_a_choice():
    assert list(steps((0, 2), 4)) == [(2,), (0,), (0, 1, 2), (0, 2, 3)]
    assert list(steps((0, 1, 2), 4)) == [(1, 2), (0, 2), (0, 1), (2,), (0,)], "never all layers"


def a_finding(**changes):
    best = Judged((0, 2), "0.2", 0.8, 0.4, 4, 3.0, 1.3)
    return Findings(**{"n_layers": 4, "judged": (best,), "costs": COSTS, "tokens": (9, 9), "tried": 5} | changes)


@pytest.fixture
def kept(monkeypatch, tmp_path):
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path))
    monkeypatch.setattr(early_exit_place, "_SAID", set())
    path = early_exit_path(SETTING)
    write_findings(path, a_finding(), SETTING)
    return path


def test_a_choice_is_kept_beside_the_profile(kept):
    assert choice_of(SETTING, 4) == ((0, 2), 1.3, True)
    assert kept.parent == profile_path(*SETTING).parent
    assert kept != profile_path(*SETTING)
    assert newest_profile("owner/model") is None, "it is no profile"
    assert choice_of(SETTING._replace(threads=2), 4) is None
    assert choice_of(SETTING._replace(dtype="bfloat16"), 4) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: len(text) // 2], ""),
        (lambda text: "\n".join(text.splitlines()[:2]) + "\n", "cut off"),
        (lambda text: text.replace('"format": 1', '"format": 99'), "format"),
        (lambda text: text.replace('"float32"', '"float16"'), "other settings"),
        (lambda text: text.replace('"stamp": "', '"stamp": "0'), "changed"),
        (lambda text: text.replace("[0, 2]", "[0, 9]"), "none of the model's"),
        (lambda text: text.replace("[0, 2]", "[2, 0]"), "none of the model's"),
        (lambda text: text.replace('"speedup": 1.3', '"speedup": NaN'), "none of the model's"),
        (lambda text: "[]" + text, "not used"),
        (lambda _text: "", "no choice"),
        (lambda _text: "\0\xff", "not used"),
    ],
)
def test_a_stale_or_foreign_file_is_left_alone_with_a_note(kept, caplog, change, said):
    kept.write_text(change(kept.read_text()))
    assert choice_of(SETTING, 4) is None
    assert choice_of(SETTING, 4) is None
    (note,) = caplog.messages
    assert "is not used" in note
    assert said in note


def test_a_model_of_other_layers_has_no_choice(kept, caplog):
    assert choice_of(SETTING, 5) is None
    assert "the model has changed" in caplog.text


def test_the_file_holds_no_text(tokenizer, found, kept):
    write_findings(kept, found, SETTING)
    rows = [json.loads(line) for line in kept.read_text().splitlines()]
    assert {row["row"] for row in rows} == {"header", "choice", "best", "costs", "search"}
    assert not {"ids", "text_ids", "prompt", "answer", "tokens_ids"} & {key for row in rows for key in row}
