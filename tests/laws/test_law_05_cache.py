"""Law 5. After every step the target's cache equals a fresh prefill of all committed tokens but the last."""

from __future__ import annotations

from copy import copy

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from tests.drafter_list import EVERY, with_settings
from tests.helpers import GREEDY, PROMPT, SAMPLED, TARGETS, greedy_truth, trees
from tests.toys import SameDrafter

from draftwood.decoding.arrivals import open_sequences
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.planning.fixed import FixedPlanner
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree
from draftwood.verify.exact import SampleAndMatch


def check_cache(target, session, committed):
    """The cache is as if the text had just been read, in what it holds and in what it says next."""
    ((fresh, _),) = target.open([committed])
    assert session.contents == fresh.contents == (list(committed), list(range(len(committed))))
    assert session.length == len(committed)
    # Arrays of a toy's session are replaced, never written to.
    after, truth = target.extend([(copy(session), [0]), (fresh, [0])])
    assert after.raw(0).tolist() == truth.raw(0).tolist()
    fresh.close()


@pytest.mark.parametrize(("drafters", "variant"), with_settings(TARGETS, "trees"))
def test_after_every_step(drafters, variant):
    for sampling in (GREEDY, SAMPLED):
        target = ToyTarget(order=4, **TARGETS[variant])
        requests = [Request(PROMPT, 16, sampling), Request((3,), 9, sampling)]
        with open_sequences(target, EVERY[drafters](target, sampling), requests, SampleAndMatch()) as rows:
            for emission in decode_sequences(target, FixedPlanner(6), rows):
                row = rows[emission.row]
                check_cache(target, row.session, row.ids[:-1])
        assert target.open_sessions == 0


@pytest.mark.parametrize("variant", TARGETS)
def test_where_the_text_ends_within_the_path_too(variant):
    target = ToyTarget(vocab_size=32, **TARGETS[variant])
    text = greedy_truth(target)
    for at in range(1, 20):
        request = Request(PROMPT, 40, end_ids=frozenset({text[at]}))
        with open_sequences(target, [SameDrafter(target)], [request], SampleAndMatch()) as (row,):
            list(decode_sequences(target, FixedPlanner(16), [row]))
            assert row.finish == "eos"
            check_cache(target, row.session, row.ids[:-1])


@pytest.mark.parametrize("variant", TARGETS)
def test_from_one_turn_to_the_next(variant):
    target = ToyTarget(order=4, **TARGETS[variant])
    same = SameDrafter(target)
    with open_sequences(target, [same], [Request(PROMPT, 9)], SampleAndMatch()) as (row,):
        list(decode_sequences(target, FixedPlanner(4), [row]))
        said = list(row.ids)
        for prompt in (
            [*said, 3, 4],  # the next turn
            said,  # nothing new: only the last token is read again
            said[:7],  # an answer taken back
            [*said[:3], 7, 6, 5],  # an edited history
            [6, 5],  # another text altogether
        ):
            row.turn(Request(prompt, 9))
            check_cache(target, row.session, prompt)
            for _ in decode_sequences(target, FixedPlanner(4), [row]):
                check_cache(target, row.session, row.ids[:-1])
            assert row.ids[: len(prompt)] == list(prompt)


OPERATION = st.one_of(
    st.tuples(st.just("extend"), st.lists(st.integers(0, 3), min_size=1, max_size=4)),
    st.tuples(st.just("truncate"), st.integers(1, 12)),
    st.tuples(st.just("pass"), trees(max_size=8), st.integers(0, 99)),
    st.tuples(st.just("forgotten pass"), trees(max_size=8)),
)


@examples(max_examples=100)
@given(variant=st.sampled_from(sorted(TARGETS)), operations=st.lists(OPERATION, max_size=8))
def test_after_any_operations(variant, operations):
    """A list of tokens does what the cache does; a scored tree that nobody kept leaves no trace."""
    target = ToyTarget(vocab_size=4, order=5, **TARGETS[variant])
    ((session, _),) = target.open([PROMPT])
    text = [*PROMPT]
    for name, *arguments in operations:
        if name == "extend":
            target.extend([(session, arguments[0])])
            text += arguments[0]
        elif name == "truncate":
            session.truncate(arguments[0])
            text = text[: arguments[0]]
        else:
            tree = arguments[0]
            if not target.trees:
                tree = TokenTree.build(tree.tokens)
            target.score([(session, 3, tree)])
            if name == "pass":
                path = tree.path(arguments[1] % (len(tree) + 1) - 1)
                session.keep(path)
                text += [3, *tree.tokens[path].tolist()]
            else:
                session.truncate(len(text))
        check_cache(target, session, text)
    session.close()
    assert target.open_sessions == 0


def test_a_target_that_restores_and_replays_pays_for_it_and_nobody_else():
    for variant, replays in (("trees", False), ("chains only", False), ("snapshot and replay", True)):
        target = ToyTarget(**TARGETS[variant])
        drafters = EVERY["random"](target, GREEDY)
        with open_sequences(target, drafters, [Request(PROMPT, 16)], SampleAndMatch()) as rows:
            list(decode_sequences(target, FixedPlanner(6), rows))
        assert (target.replayed > 0) == replays
