"""Parts of a model foretell, many rows at once, what they would draft one by one on the target's cache."""

from __future__ import annotations

import numpy as np
import pytest

from draftwood.engines.self_draft import write_layers
from draftwood.engines.transformers.partial_passes import PartialPasses
from draftwood.engines.transformers.self_draft import early_exit
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import CapabilityError
from draftwood.testing import ToyTarget
from tests.engines.tiny import build

PROMPTS = ([3, 1, 4, 1, 5, 2, 6, 5, 3, 5, 8, 9], [7])
LENGTH = 24
DEPTH = 4


def answer(target, prompt):
    """The target's own greedy text."""
    ((session, scores),) = target.open([prompt])
    found = [scores.argmax(0)]
    while len(found) < LENGTH:
        (scores,) = target.extend([(session, found[-1:])])
        found.append(scores.argmax(0))
    session.close()
    return found


def drafted(target, layers, prompt, answer):
    """Whether the d-th token drafted is right in each row, if those before it are: by real draft passes."""
    part = early_exit(target, write_layers(layers))
    found = np.zeros((DEPTH, len(answer)), dtype=bool)
    text = [*prompt, *answer]
    for row in range(len(answer)):
        at = len(prompt) - 1 + row  # the root
        session = None
        if at:
            ((session, _),) = target.open([text[:at]])
        else:
            ((session, _),) = target.open([text[:1]])
            session.truncate(0)
        for d in range(min(DEPTH, len(answer) - row)):
            (scores,) = part.grow([(session, [text[at + d]], [d - 1])])
            found[d, row + d] = scores.argmax(0) == text[at + d + 1]
        session.close()
    return found


@pytest.mark.parametrize("kind", ["llama", "qwen3", "qwen2-window", "mistral-window"])
@pytest.mark.parametrize("layers", [(0,), (0, 1), (1, 2), (0, 2), (2,)])
def test_rows_together_are_drafts_one_by_one(kind, layers):
    target = TransformersTarget(build(kind))
    texts = [(prompt, answer(target, prompt)) for prompt in PROMPTS]
    expected = np.concatenate([drafted(target, layers, *text) for text in texts], axis=1)
    assert expected.any()
    found = PartialPasses(target, texts).matches(layers, DEPTH)
    np.testing.assert_array_equal(found, expected)


def test_all_layers_foretell_every_token():
    target = TransformersTarget(build("llama"))
    passes = PartialPasses(target, [(prompt, answer(target, prompt)) for prompt in PROMPTS])
    assert passes.rows == LENGTH * len(PROMPTS)
    assert passes.exit_matches(passes.n_layers).all()
    assert not passes.exit_matches(1).all()
    np.testing.assert_array_equal(passes.exit_matches(2), passes.matches((0, 1))[0])


def test_the_shortlist_has_a_choice_of_every_size():
    target = TransformersTarget(build("llama"))
    passes = PartialPasses(target, [(PROMPTS[0], answer(target, PROMPTS[0]))])
    seen = []
    found = passes.shortlist(seen.append)
    assert [len(layers) for layers in found] == [1, 2]
    assert all(sorted(set(layers)) == list(layers) for layers in found)
    assert seen == [0, 1, 2]


def test_targets_without_a_pass_of_our_own_have_no_parts():
    for target in (ToyTarget(), TransformersTarget(build("llama"), lean=False)):
        with pytest.raises(CapabilityError, match="early-exit needs"):
            PartialPasses(target, [([1], [2])])
