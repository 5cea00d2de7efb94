"""Draft models with more or fewer tokens than the target: neither gets an id that it does not have."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers import PROMPT

import draftwood
from draftwood.api import draft_models
from draftwood.api.draft_models import DraftModels, LoadedModels, with_models
from draftwood.drafters.cascade.drafter import CascadeDrafter
from draftwood.drafters.draft_model.drafter import DraftModelDrafter
from draftwood.drafters.draft_model.growth import Growth
from draftwood.drafters.load import load
from draftwood.errors import VocabularyError
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree

TARGET = ToyTarget(8, seed=64)  # tokens from 8 on are unknown to it; the first that it writes are below 5


def drafted(make, limit=60, **settings):
    """Write with drafters, which must not fail; returns how many tokens the last one proposed."""
    plain = draftwood.generate(TARGET, list(PROMPT), drafters="none", max_new_tokens=limit, **settings)
    found = draftwood.generate(
        TARGET, list(PROMPT), drafters=make, planner="fixed:6", max_new_tokens=limit, **settings
    )
    assert found.ids == plain.ids
    sources = [source for step in found.steps for source in step.by_source]
    assert not any(source.failed for source in sources)
    return sum(step.by_source[-1].proposed for step in found.steps)


@pytest.mark.parametrize("temperature", [0, 1.5])
@pytest.mark.parametrize("trees", [True, False], ids=["trees", "chains"])
@pytest.mark.parametrize("size", [5, 13])
@pytest.mark.parametrize("drafters", ["draft-model:model=x", "draft-model:model=x:drafters=ngram"])
def test_models_by_name(monkeypatch, temperature, trees, size, drafters):
    model = ToyTarget(size, trees=trees, seed=3)
    monkeypatch.setattr(draft_models, "LOADED", LoadedModels(lambda _: (model, None)))
    for spec in (drafters, f"ngram+{drafters}"):
        settings = {"temperature": temperature, "seed": 1} if temperature else {}
        assert drafted(spec, **settings) > 0
    assert model.open_sessions == 0


def test_a_drafter_that_was_limited_is_limited_no_more():
    models = DraftModels(TARGET)
    for given in (DraftModelDrafter(target=ToyTarget(13)), CascadeDrafter(target=ToyTarget(13))):
        once = with_models([given], models)
        assert once != (given,)
        assert with_models(once, models)[0] is once[0]
        if isinstance(given, CascadeDrafter):
            assert once[0].stage_time is given.stage_time
    fits = with_models((DraftModelDrafter(target=ToyTarget(8)), CascadeDrafter(target=ToyTarget(8))), models)
    assert all(one is same for one, same in zip(fits, with_models(fits, models), strict=True))


@pytest.mark.parametrize("make", [DraftModelDrafter, CascadeDrafter])
def test_a_model_drafts_again_when_the_unknown_token_is_cut_off(make):
    drafter = make(target=ToyTarget(5))
    session = drafter.open([1, 2, 3], None)
    fresh = session.draft(4, 0, drafter.prior)
    assert len(fresh)
    for unknown in ([6], [4, 7, 2]):
        session.extend(unknown)
        assert not len(session.draft(4, 0, drafter.prior))
    session.extend([1])
    assert not len(session.draft(4, 0, drafter.prior)), "the unknown tokens are still there"
    session.truncate(3)
    assert session.draft(4, 0, drafter.prior).tokens.tolist() == fresh.tokens.tolist()
    session.close()


def test_copies_that_the_model_cannot_read_are_left_out():
    growth = Growth(8, 4, np.full(400, 0.5, np.float32))
    growth.add_base(TokenTree.build([3, 9, 4, 2, 1], [-1, 0, 1, 0, 3]), vocab_size=5)
    assert (growth.tokens, growth.parents) == ([3, 2, 1], [-1, 0, 1])


class _Tokenizer:
    def __init__(self, *names):
        self._names = names

    def __len__(self):
        return len(self._names)

    def get_vocab(self):
        return {name: token for token, name in enumerate(self._names)}


@pytest.mark.parametrize(
    ("theirs", "error"),
    [
        (("a", "b", "c"), None),
        (("a", "b"), None),
        (("a", "b", "[PAD2]", "c"), None),
        (("a", "x", "y"), r"\(2 of 3 ids differ: 1 is 'b' and 'x' there; .*of the target's own family"),
        (("[PAD0]",), "0 of 0 ids differ"),
    ],
)  # fmt: skip
def test_another_vocabulary_is_refused(monkeypatch, theirs, error):
    monkeypatch.setattr(draft_models, "LOADED", LoadedModels(lambda _: (ToyTarget(5), _Tokenizer(*theirs))))
    models = DraftModels(TARGET, _Tokenizer("a", "b", "c"))
    for spec in ("draft-model:model=x", "draft-model:model=x:drafters=ngram"):
        if error is None:
            assert with_models(load(spec), models)
        else:
            with pytest.raises(VocabularyError, match=error):
                with_models(load(spec), models)
