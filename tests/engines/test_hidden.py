"""Hidden states of the layers that somebody asks for, of text that is read and of trees that are scored."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

import draftwood
from draftwood.contracts import Needs, Watch
from draftwood.drafters.base import BaseDrafter, TextSession
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import CapabilityError
from draftwood.planning.base import RESTING
from draftwood.planning.fixed import FixedPlanner
from draftwood.tree import TokenTree
from tests.engines.rounding import TOLERANCE
from tests.engines.story import random_tree
from tests.engines.tiny import build

NOTHING = np.empty(0, dtype=np.int64)


def states_of(model, text):
    """What the model itself says of each layer, [tokens, width]."""
    with torch.inference_mode():
        return [states[0] for states in model(torch.tensor([text]), output_hidden_states=True).hidden_states]


def assert_near(found, expected):
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < TOLERANCE * max(1.0, float(expected.abs().max()))


def made(family, kind):
    model = build(family)
    target = TransformersTarget(model, packed=kind == "packed", lean=kind != "modules", chunk=16)
    return model, target


@pytest.mark.parametrize("kind", ["packed", "lean", "modules"])
@pytest.mark.parametrize("family", ["llama", "qwen2-window"])
def test_states_are_the_models_own(family, kind):
    (model, target), rng = made(family, kind), np.random.default_rng(0)
    layers, text, seen = target.capabilities.hidden, rng.integers(0, 64, 40).tolist(), []
    assert layers == (0, 1, 2, 3)  # the last ones are those that tokens are scored by
    watch = Watch(lambda *_: None, NOTHING, layers, lambda first, states: seen.append((first, states)))
    ((session, _),) = target.open([text], reserve=60, watch=[watch])
    assert [first for first, _ in seen] == [0, 16, 32]
    expected = states_of(model, text)
    for layer in layers:
        assert_near(torch.cat([states[layer] for _, states in seen]), expected[layer])
    (scores,) = target.score([(session, 4, TokenTree.empty())])
    with pytest.raises(CapabilityError, match="before the pass"):
        scores.hidden(1)
    session.hidden = layers
    for _ in range(6):
        tree, root = random_tree(rng, 6, 64), int(rng.integers(64))
        (scores,) = target.score([(session, root, tree)])
        for node in range(-1, len(tree)):
            path = [*text, root, *tree.tokens[tree.path(node)].tolist()]
            for layer, states in zip(layers, states_of(model, path), strict=False):
                assert_near(scores.hidden(layer)[1 + node], states[-1])
        kept = tree.path(int(rng.integers(-1, len(tree))))
        session.keep(kept)
        text += [root, *tree.tokens[kept].tolist()]


def test_texts_of_one_pass_keep_different_layers():
    model, target = made("llama", "packed")
    texts = [[1, 2, 3], [4, 5, 6, 7, 8], [9]]
    opened = target.open(texts)
    for (session, _), layers in zip(opened, [(0,), (1, 2), ()], strict=True):
        session.hidden = layers
    tree = TokenTree.build([5, 6], [-1, -1])
    found = target.score([(session, 11, tree) for session, _ in opened])
    for scores, layers, text in zip(found, [(0,), (1, 2)], texts, strict=False):
        for layer in layers:
            assert_near(scores.hidden(layer)[0], states_of(model, [*text, 11])[layer][-1])
            assert_near(scores.hidden(layer)[2], states_of(model, [*text, 11, 6])[layer][-1])


@dataclass(frozen=True)
class Collector(BaseDrafter):
    """Keeps the states of all committed tokens; proposes what the text repeats, so that trees are scored."""

    name = "collector"
    prior = np.full(1, 0.5, dtype=np.float32)
    layers: tuple[int, ...] = (1,)
    found: list = field(default_factory=list)

    @property
    def needs(self):
        return Needs(hidden=self.layers)

    def open(self, prompt, noise):
        return CollectorSession(prompt, self)


class CollectorSession(TextSession):
    def __init__(self, prompt, drafter):
        super().__init__(prompt)
        self.drafter = drafter

    def observe_hidden(self, first, states):
        assert set(states) == set(self.drafter.layers)
        for row, state in enumerate(states[self.drafter.layers[0]], first):
            self.drafter.found.append((row, state))

    def draft(self, nodes, lookahead_nodes, accept_rates):
        some = self.text[:nodes].tolist()
        return TokenTree.build(some, [-1] * len(some), belief=[0.9 / max(1, len(some))] * len(some), evidence=0)

    def learn(self, feedback):
        states, at = feedback.hidden[self.drafter.layers[0]], self._length - 1
        for row in (-1, *feedback.path):
            self.drafter.found.append((at, states[1 + row]))
            at += 1
        super().learn(feedback)


def complete(drafter, model, ids):
    """Each token but the last has one state, the model's own."""
    rows = dict(drafter.found)
    assert len(rows) == len(drafter.found), "no token came twice"
    assert sorted(rows) == list(range(len(rows)))
    assert len(rows) in (len(ids) - 1, len(ids))  # the last step may commit a token that nothing follows
    expected = states_of(model, ids)[drafter.layers[0]]
    for at, state in rows.items():
        if at < len(ids):
            assert_near(state, expected[at])


def test_a_drafter_sees_each_token_once():
    model, drafter = build("llama"), Collector()
    prompt = [3, 5, 7, 3, 5, 9]
    answer = draftwood.generate(model, prompt, max_new_tokens=24, drafters=[drafter], planner="fixed:8")
    complete(drafter, model, [*prompt, *answer.ids])


def test_also_beside_one_that_cannot_be_opened_and_in_a_batch():
    class Broken(Collector):
        def open(self, prompt, noise):
            raise RuntimeError

    model, other = build("llama"), Broken(layers=(2,))
    prompts = [[3, 5, 7, 3, 5, 9], [8, 8, 1]]
    answers = draftwood.generate(model, prompts, max_new_tokens=12, drafters=[other], planner="fixed:8")
    plain = draftwood.generate(model, prompts, max_new_tokens=12, drafters="none")
    assert [answer.ids for answer in answers] == [answer.ids for answer in plain]


def test_each_drafter_is_shown_its_own_layers_and_none_while_it_rests():
    class Strict(CollectorSession):
        def learn(self, feedback):
            assert set(feedback.hidden) in ({*self.drafter.layers}, set())
            shown[self.drafter.layers].append(bool(feedback.hidden))
            TextSession.learn(self, feedback)

    class Named(Collector):
        def open(self, prompt, noise):
            return Strict(prompt, self)

    class Resting(FixedPlanner):
        def _ask(self, state, rows):
            asks = super()._ask(state, rows)
            return [RESTING if state.step.index % 2 else asks[0], asks[1]]

    shown = {(1,): [], (2,): []}
    drafters, planner = [Named(), Named(layers=(2,))], Resting(8)
    draftwood.generate(build("llama"), [3, 5, 7, 3, 5, 9], max_new_tokens=16, drafters=drafters, planner=planner)
    assert all(shown[(2,)])
    assert len(shown[(1,)]) == len(shown[(2,)])
    assert True in shown[(1,)]
    assert False in shown[(1,)]


def test_a_layer_that_there_is_not_is_refused():
    with pytest.raises(CapabilityError, match="hidden states of layers"):
        draftwood.generate(build("llama"), [1, 2, 3], max_new_tokens=4, drafters=[Collector(layers=(40,))])
