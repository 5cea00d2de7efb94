"""What a source is told of rows off the path: the target's choice there, where some drafter of the set asked."""

import pytest
from tests.helpers import PROMPT, Listening, write
from tests.toys import RandomDrafter

from draftwood.contracts import Sampling
from draftwood.testing import ToyTarget
from draftwood.verify.noise import KeyedNoise
from draftwood.verify.sampling import choose

VOCAB = 8
WARM = Sampling(temperature=0.8, seed=4)


def told(drafters, sampling):
    """Per pass of a request its text, tree, path and the choices that the first drafter was told."""
    target = ToyTarget(vocab_size=VOCAB, order=2)
    write(target, drafters, 12, limit=30, sampling=sampling, prompt=PROMPT)
    return target, [(text, f.tree, {-1, *f.path}, f.choice.tolist()) for text, f in drafters[0].heard]


def truth(target, text, tree, node, sampling):
    """What the target takes behind a node, by its whole distribution."""
    before = [*text, *tree.tokens[tree.path(node)].tolist()]
    noise = None if sampling.greedy else KeyedNoise(sampling.seed, 0, sampling.temperature)
    return choose(target.scores_after(before), sampling, noise, len(before))


@pytest.mark.parametrize("sampling", [Sampling(), WARM], ids=["greedy", "sampled"])
@pytest.mark.parametrize("asking", [0, 1], ids=["it asked itself", "another asked"])
def test_where_it_was_asked_for_the_choice_is_known_off_the_path_too(sampling, asking):
    drafters = [Listening(k=VOCAB, choice=asking == 0), Listening(k=VOCAB, seed=1, choice=asking == 1)]
    target, lessons = told(drafters, sampling)
    off = 0
    for text, tree, path, choice in lessons:
        for node in range(-1, len(tree)):
            assert choice[1 + node] == truth(target, text, tree, node, sampling)
            off += node not in path
    assert off > 50


@pytest.mark.parametrize("sampling", [Sampling(), WARM], ids=["greedy", "sampled"])
def test_where_nobody_asked_the_choice_is_known_on_the_path_alone(sampling):
    target, lessons = told([Listening(k=VOCAB), Listening(k=VOCAB, seed=1)], sampling)
    assert len(lessons) > 3
    for text, tree, path, choice in lessons:
        for node in range(-1, len(tree)):
            expected = truth(target, text, tree, node, sampling) if node in path else -1
            assert choice[1 + node] == expected


def test_who_asks_for_the_choice_and_no_top_k_learns_no_more_than_the_path():
    _, lessons = told([Listening(k=0, choice=True)], Sampling())
    for _, tree, path, choice in lessons:
        assert [node for node in range(-1, len(tree)) if choice[1 + node] >= 0] == sorted(path)


def test_each_source_is_told_which_of_the_set_it_is():
    drafters = [Listening(k=VOCAB), RandomDrafter(seed=3), Listening(k=VOCAB, seed=1)]
    told(drafters, Sampling())
    assert {f.source for _, f in drafters[0].heard} == {0}
    assert {f.source for _, f in drafters[2].heard} == {2}
    for _, feedback in drafters[2].heard:
        kept = feedback.node_map[feedback.node_map >= 0]
        assert set(feedback.tree.source[kept].tolist()) <= {0, 1, 2}
