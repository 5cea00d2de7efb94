"""``early-exit`` without layers runs those that ``draftwood profile --early-exit`` found best for the model."""

from __future__ import annotations

import pytest
from tests.engines.tiny import build

import draftwood
from draftwood.api import draft_models
from draftwood.api.setup import Setup
from draftwood.engines.self_draft import write_layers
from draftwood.measure.profile.draft_costs import DraftCosts
from draftwood.measure.profile.early_exit import Findings, Judged, write_findings
from draftwood.models import early_exit_place
from draftwood.models.early_exit_place import early_exit_path
from draftwood.models.findings import setting_of

COSTS = DraftCosts(0.1, 0.3, ((1, 1.0),))
PROMPT = [3, 1, 4, 1, 5]


@pytest.fixture
def model(monkeypatch, tmp_path):
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path))
    monkeypatch.setattr(draft_models, "_unpaid", set())
    monkeypatch.setattr(early_exit_place, "_SAID", set())
    model = build("llama")
    model.config._name_or_path = "owner/model"
    return model


def keep(model, layers, speedup, n_layers=3):
    setting = setting_of(model)
    best = Judged(layers, write_layers(layers), 0.9, 0.4, 3, 3.1, speedup)
    write_findings(early_exit_path(setting), Findings(n_layers, (best,), COSTS, (9, 9), 4), setting)


def run_layers(model, spec="early-exit"):
    setup = Setup(model, None, spec, "fixed:4")
    setup.refresh()
    return [index for index, _ in setup.drafters[0].target.target.decoder._blocks]


def test_the_layers_that_were_found_best_are_run(model, caplog):
    assert run_layers(model) == [0], "the first half"
    keep(model, (0, 2), 1.4)
    assert run_layers(model) == [0, 2]
    assert run_layers(model, "early-exit:layers=1") == [0]
    assert run_layers(model, "early-exit:layers=1.2") == [1, 2]
    plain = draftwood.generate(model, PROMPT, max_new_tokens=12, drafters="none")
    drafted = draftwood.generate(model, PROMPT, max_new_tokens=12, drafters="early-exit", planner="fixed:4")
    assert drafted.ids == plain.ids
    assert not caplog.messages


def test_where_none_paid_it_is_said_once(model, caplog):
    keep(model, (1, 2), 0.93)
    assert run_layers(model) == [1, 2]
    assert run_layers(model) == [1, 2]
    (said,) = caplog.messages
    assert "no choice of layers pays on owner/model" in said
    assert "0.93" in said


def test_a_choice_for_other_layers_is_left_alone(model, caplog):
    keep(model, (0, 4), 1.4, n_layers=5)
    assert run_layers(model) == [0]
    assert "the model has changed" in caplog.text


def test_a_model_without_a_name_has_the_first_half(model):
    keep(model, (0, 2), 1.4)
    model.config._name_or_path = ""
    assert run_layers(model) == [0]
