"""Draft models that stay loaded, and cascades by name."""

import pytest

import draftwood
from draftwood.api import draft_models
from draftwood.api.draft_models import LoadedModels, needing_room
from draftwood.drafters.load import load
from draftwood.errors import ModelError
from draftwood.testing import ToyTarget


class Model(ToyTarget):
    weight_bytes = 10


class Shelf:
    """Loads models and notes their names."""

    def __init__(self):
        self.loads, self.models = [], LoadedModels(self.load)

    def load(self, name):
        self.loads.append(name)
        return Model(), f"tokenizer of {name}"

    def get(self, *names):
        for name in names:
            model, tokenizer = self.models.get(name)
            assert isinstance(model, Model)
            assert tokenizer == f"tokenizer of {name}"


def test_a_model_in_use_is_neither_unloaded_nor_loaded_twice():
    shelf = Shelf()
    used, _ = shelf.models.get("a")
    shelf.get("b", "c", "d")
    assert shelf.models.get("a")[0] is used
    assert shelf.loads == ["a", "b", "c", "d"]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_want_of_memory_names_the_draft_model(error):
    with pytest.raises(ModelError, match="no room for the draft model small"), needing_room("small"):
        raise error


def test_a_loaded_model_stays_as_long_as_its_drafter(small):
    (drafter,) = draft_models.with_models(load("draft-model:model=small"), draft_models.DraftModels(ToyTarget()))
    assert drafter.target.owner is small["small"]


# --- cascades by name -------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    models = {"small": ToyTarget(order=2), "smaller": ToyTarget(order=1)}
    shelf = LoadedModels(lambda name: (models[name], None))
    monkeypatch.setattr(draft_models, "LOADED", shelf)
    return models


@pytest.mark.parametrize(
    "drafters", ["ngram", "ngram/recycling", "draft-model;model=smaller;length=8;drafters=ngram"]
)
def test_a_cascade_is_made_by_name(small, drafters):
    target, spec = ToyTarget(), f"draft-model:model=small:length=4:drafters={drafters}"
    plain = draftwood.generate(target, [1, 2, 0, 1, 2], drafters="none", max_new_tokens=40)
    for planner in ("goodput", "fixed:2"):
        drafted = draftwood.generate(target, [1, 2, 0, 1, 2], drafters=spec, planner=planner, max_new_tokens=40)
        assert drafted.ids == plain.ids
    stages = [stage for step in drafted.steps for source in step.by_source for stage in source.stages]
    assert {stage.name for stage in stages} == ({"small", "smaller"} if "smaller" in drafters else {"small"})
    assert all(target.open_sessions == 0 for target in small.values())
