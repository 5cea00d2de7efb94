"""A text whose scores are broken, or whose processor fails, ends with a sentence; the others go on."""

from dataclasses import replace

import numpy as np
import pytest
from tests.api.fake import TOKENIZER, text_of, toy
from tests.decoding.test_loop import Listening
from tests.drafter_list import EVERY, with_settings
from tests.helpers import (
    GREEDY,
    PROMPT,
    SAMPLED,
    Everything,
    Grammar,
    TwiceAtMost,
    go_on,
    opened,
    sampled_truth,
    write,
    write_batch,
)
from tests.toys import RandomDrafter, SameDrafter, TopKDrafter

import draftwood
from draftwood.contracts import Sampling
from draftwood.decoding.loop import decode
from draftwood.decoding.request import Request
from draftwood.errors import DraftwoodError
from draftwood.planning.fixed import FixedPlanner
from draftwood.testing import ToyTarget
from draftwood.testing.targets import NumpyScores
from draftwood.verify.exact import SampleAndMatch

LIMIT = 12
SENTENCE = r"the scores of the model at position \d+ contain NaN"


def break_after(target, text, value=np.nan):
    """Put a NaN into the scores of what follows this text, and of every text with the same last tokens."""
    rows = np.flatnonzero((target._table == target.scores_after(text)).all(axis=1))
    assert len(rows) == 1
    target._table[rows[0], 3] = value
    if value == -np.inf:
        target._table[rows[0]] = value


def broken(sampling=GREEDY, at=7, prompt=PROMPT, **options):
    """A toy that fails after so many tokens of its answer, and these tokens."""
    target = ToyTarget(order=6, **options)
    text = sampled_truth(target, sampling, prompt, LIMIT)[:at]
    break_after(target, [*prompt, *text])
    return target, text


def gather(target, drafters, requests, nodes=6):
    """Per request its tokens, and its last emission; and what was raised in the end."""
    ids, last, raised = [[] for _ in requests], [None] * len(requests), None
    try:
        for emission in decode(target, drafters, FixedPlanner(nodes), SampleAndMatch(), requests):
            ids[emission.row] += emission.tokens
            assert last[emission.row] is None or last[emission.row].finish is None, "nothing follows the end"
            last[emission.row] = emission
    except DraftwoodError as error:
        raised = error
    assert target.open_sessions == 0
    return ids, last, raised


@pytest.mark.parametrize(("drafters", "settings"), with_settings(("greedy", "sampled"), "greedy"))
def test_the_text_before_broken_scores_is_kept_whatever_was_drafted(drafters, settings):
    sampling = GREEDY if settings == "greedy" else SAMPLED
    target, text = broken(sampling)
    made = EVERY[drafters](target, sampling)
    ((ids,), (last,), raised) = gather(target, made, [Request(PROMPT, LIMIT, sampling)])
    assert ids == text
    assert last.finish == "error"
    assert raised is last.error
    assert str(raised).startswith(f"the scores of the model at position {len(PROMPT) + 7} contain NaN")


@pytest.mark.parametrize("at", [0, 1, 7])
@pytest.mark.parametrize("who", [0, 1, 2])
def test_of_a_batch_of_three_one_fails_and_two_are_written_to_their_end(at, who):
    prompts = [(5, 6, 7, 7), (4, 4, 2, 0, 0), (3, 1, 3)]
    target, text = broken(at=at, prompt=prompts[who])
    requests = [Request(prompt, LIMIT) for prompt in prompts]
    ids, last, raised = gather(target, [SameDrafter(target, GREEDY)], requests)
    for row, prompt in enumerate(prompts):
        if row == who:
            assert (ids[row], last[row].finish) == (text, "error")
            assert raised is last[row].error
        else:
            assert ids[row] == sampled_truth(target, GREEDY, prompt, LIMIT)
            assert (last[row].finish, last[row].error) == ("length", None)


@pytest.mark.parametrize("options", [{}, {"trees": False}, {"rollback": "snapshot"}])
def test_a_turn_after_broken_scores_goes_on_as_a_fresh_request_would(options):
    target, text = broken(**options)
    made = [SameDrafter(target, GREEDY), TopKDrafter()]
    with opened(target, made, Request(PROMPT, LIMIT)) as row:
        with pytest.raises(DraftwoodError, match=SENTENCE):
            go_on(target, row)
        assert row.ids == [*PROMPT, *text]
        for prompt in ([*PROMPT, *text, 1, 1], [*PROMPT, *text[:3], 2]):
            row.turn(Request(prompt, 3))
            assert go_on(target, row).ids == sampled_truth(target, GREEDY, prompt, 3)
            assert (row.finish, row.error) == ("length", None)


def test_rows_off_the_path_may_be_anything():
    """They teach nothing: no choice, no probability, and no drafter stumbles over them."""
    target = ToyTarget(order=3)
    truth = sampled_truth(target, GREEDY, limit=24)
    on_path = {target.scores_after([*PROMPT, *truth[:n]]).tobytes() for n in range(25)}
    for row, scores in enumerate(target._table):
        if scores.tobytes() not in on_path:
            target._table[row] = (np.nan, -np.inf, np.inf)[row % 3]
    listener = Listening(k=3)
    for sampling in (GREEDY, Sampling(temperature=1e-3, seed=1)):
        drafters = [SameDrafter(target, GREEDY), TopKDrafter(), listener]
        written = write(target, drafters, Everything(12), sampling=sampling)
        assert written.ids == truth
        assert not any(own.failed for step in written.steps for own in step.by_source[1:])
    broken_rows = 0
    for _, feedback in listener.heard:
        ids, probabilities = feedback.top_k
        for row in np.flatnonzero(probabilities[:, 0] == 0).tolist():
            broken_rows += 1
            on_way = row == 0 or row - 1 in feedback.path
            assert feedback.choice[row] == -1 or on_way
            assert ((ids[row] >= 0) & (ids[row] < 8)).all()
            assert not probabilities[row].any()
    assert broken_rows


class Spoilt(ToyTarget):
    """Spoils every row of a pass that holds a certain token in a tree, as masked rows that are NaN do."""

    def __init__(self, bad, *, neighbours=False, **options):
        super().__init__(**options)
        self.bad, self.neighbours, self.spoilt = bad, neighbours, 0

    def score(self, requests):
        found = super().score(requests)
        hit = [self.bad in tree.tokens for _, _, tree in requests]
        if self.neighbours and any(hit):
            hit = [True] * len(hit)
        self.spoilt += sum(hit)
        return [NumpyScores(np.full_like(s.rows, np.nan)) if bad else s for s, bad in zip(found, hit, strict=True)]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, replace(SAMPLED, repetition_penalty=1.3)], ids=str)
@pytest.mark.parametrize("options", [{}, {"trees": False}, {"rollback": "snapshot"}], ids=str)
@pytest.mark.parametrize("neighbours", [False, True])
def test_a_draft_that_spoils_the_rows_of_others_changes_no_text(sampling, options, neighbours):
    target = Spoilt(5, neighbours=neighbours, order=3, **options)
    requests = [
        Request(prompt, 24, sampling, processors)
        for prompt, processors in zip(
            [(1, 2, 0, 1, 2), (5, 6, 7, 7), (4, 4, 2)], [(), [TwiceAtMost()], [Grammar()]], strict=True
        )
    ]
    found = write_batch(target, [RandomDrafter(8), SameDrafter(target, sampling)], requests, 6)
    assert target.spoilt > 10
    for one, request in zip(found, requests, strict=True):
        fresh = [type(p)() for p in request.processors]
        assert one.ids == sampled_truth(target, sampling, request.prompt, 24, fresh)
        assert one.finish == "length"


def test_a_text_that_is_broken_itself_ends_after_one_more_look():
    target, text = broken()
    ((ids,), (last,), raised) = gather(target, [RandomDrafter(8)], [Request(PROMPT, LIMIT)])
    assert (ids, last.finish) == (text, "error")
    assert str(raised).startswith("the scores of the model")


def test_a_processor_that_mends_broken_rows_is_let_to():
    """As transformers' `remove_invalid_values` does; it sees each row once."""
    seen = []

    def mend(prefix, row):
        seen.append(len(prefix))
        return np.nan_to_num(row, nan=-1.0)

    target, text = broken()
    request = Request(PROMPT, LIMIT, processors=[mend])
    (written,) = write_batch(target, [SameDrafter(target, GREEDY)], [request])
    assert written.ids[:7] == text
    assert seen == list(range(len(PROMPT), len(PROMPT) + LIMIT))


# --- the public functions -----------------------------------------------------------------------------------


def of_the_fake():
    model = toy(order=6)
    text = sampled_truth(model, GREEDY, (3, 4), LIMIT)[:5]
    break_after(model, [3, 4, *text])
    return model, text


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_a_list_of_prompts_says_which_has_failed_and_why(batch_size):
    model, text = of_the_fake()
    settings = {"tokenizer": TOKENIZER, "max_new_tokens": LIMIT, "batch_size": batch_size}
    first, failed, last = draftwood.generate(model, [[4, 4], [3, 4], [5]], **settings)
    assert (failed.ids, failed.text, failed.finish_reason) == (text, text_of(text), "error")
    assert failed.error == (
        "the scores of the model at position 7 contain NaN: its weights or precision are broken"
    )
    for one, prompt in ((first, [4, 4]), (last, [5])):
        assert one.ids == sampled_truth(model, GREEDY, prompt, LIMIT)
        assert one.text == text_of(one.ids)
        assert (one.finish_reason, one.error) == ("length", None)
    assert model.open_sessions == 0


def test_a_single_prompt_raises_and_its_text_is_kept():
    model, text = of_the_fake()
    with pytest.raises(DraftwoodError, match=SENTENCE):
        draftwood.generate(model, [3, 4], max_new_tokens=LIMIT)
    shown = []
    with draftwood.stream(model, [3, 4], tokenizer=TOKENIZER, max_new_tokens=LIMIT) as pieces:
        with pytest.raises(DraftwoodError, match=SENTENCE):
            shown.extend(piece.text for piece in pieces)
        written = pieces.generation
    assert (written.ids, written.text, written.finish_reason) == (text, text_of(text), "error")
    assert written.text.startswith("".join(shown))
    assert "NaN" in written.error
    assert model.open_sessions == 0


def test_a_processor_that_fails_ends_its_own_text_only():
    def failing(prefix, row):
        if prefix.tolist()[:3] == [4, 4, 4] and len(prefix) == 6:
            raise ZeroDivisionError("mine")
        return row

    model = toy()
    settings = {"max_new_tokens": LIMIT, "logits_processor": failing}
    one, failed = draftwood.generate(model, [[5], [4, 4, 4]], **settings)
    assert failed.ids == sampled_truth(model, GREEDY, [4, 4, 4], LIMIT)[:3]
    assert (failed.finish_reason, failed.error) == ("error", "ZeroDivisionError: mine")
    assert one.finish_reason == "length"
    with pytest.raises(ZeroDivisionError, match="mine"):
        draftwood.generate(model, [4, 4, 4], **settings)


def test_what_is_nobodys_fault_alone_is_raised_from_a_list_too():
    model = toy()
    model.score = None
    with pytest.raises(TypeError):
        draftwood.generate(model, [[5], [4, 4, 4]], max_new_tokens=LIMIT)
    assert model.open_sessions == 0


def test_a_conversation_keeps_what_was_said_and_goes_on():
    def failing(prefix, row):
        if len(prefix) == 12:
            raise DraftwoodError("the grammar is broken")
        return row

    model = toy()
    settings = {"tokenizer": TOKENIZER, "max_new_tokens": 20, "drafters": "ngram"}
    with draftwood.Conversation(model, logits_processor=failing, **settings) as talk:
        with pytest.raises(DraftwoodError, match="grammar"):
            list(talk.say("ab"))
        assert talk.generation.finish_reason == "error"
        assert talk.messages[-1] == {"role": "assistant", "content": talk.generation.text}
        talk.messages.append({"role": "user", "content": "aa"})
        list(talk.say("b" * 9))
        assert talk.generation.finish_reason == "length"
