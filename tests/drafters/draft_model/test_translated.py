"""Drafting by a model of another vocabulary."""

from __future__ import annotations

import pytest
from tests.drafters.draft_model.test_translation import LETTERS, PAIRS

from draftwood.drafters.draft_model.drafter import DraftModelDrafter, DraftTarget
from draftwood.drafters.draft_model.translation import Translation
from draftwood.errors import CapabilityError
from draftwood.testing import ToyTarget

TEXT = "ab" * 20


def opened(own, draft, room):
    model = ToyTarget(len(draft.pieces), max_positions=room)
    drafter = DraftModelDrafter(target=DraftTarget(model, False, Translation(own, draft)))
    return drafter.open(own.encode(TEXT), None), drafter


def test_the_context_is_compared_with_the_draft_models_own_tokens():
    session, drafter = opened(LETTERS, PAIRS, 30)
    assert len(session.draft(4, 0, drafter.prior)), "40 tokens of the target are 20 of the draft model"
    session.close()
    with pytest.raises(CapabilityError, match=r"has 40 tokens for the draft model .* at most 30"):
        opened(PAIRS, LETTERS, 30)
