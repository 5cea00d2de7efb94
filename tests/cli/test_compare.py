"""The timing comparison of `draftwood.measure.compare`."""

import pytest

from draftwood.api.generation import Generation
from draftwood.cli.answering import sameness, verdict
from draftwood.errors import UsageError
from draftwood.local.crowding import Others
from draftwood.measure.compare import PlainAndDrafted, _Arms, compare
from draftwood.step import Step
from draftwood.testing import ToyTarget

PROMPT = [1, 2, 0, 1, 2, 0, 1, 2]


def answer(ids, seconds, finish="length"):
    return Generation(ids=list(ids), steps=[Step(0, 1, tuple(ids), score_s=seconds)], finish_reason=finish)


def test_arms_take_turns_and_write_the_same():
    order, pieces = [], []
    result = compare(
        ToyTarget(), PROMPT, rounds=3, max_new_tokens=20, temperature=1.0,
        on_round=lambda arm, number: order.append((number, arm)), on_piece=pieces.append,
    )  # fmt: skip
    arms = ["drafted", "plain", "plain", "drafted", "drafted", "plain"]
    assert order == list(zip([0, 0, 1, 1, 2, 2], arms, strict=True))
    assert (result.identical, result.parted_at, result.margin, result.rounds) == (True, None, None, 3)
    assert {g.seed for g in result.plain + result.drafted} == {result.plain[0].seed}
    assert pieces == []  # no tokenizer, no text
    with pytest.raises(UsageError, match="at least 1"):
        compare(ToyTarget(), PROMPT, rounds=0)


def test_medians_and_speedup_of_finished_runs():
    plain, drafted = ([answer([1, 2], s) for s in each] for each in ((3.0, 1.0, 2.0), (1.0, 1.0, 9.0)))
    result = PlainAndDrafted(plain=plain, drafted=drafted)
    assert (result.plain_seconds, result.drafted_seconds, result.speedup) == (2.0, 1.0, 2.0)
    told = ["plain 2.00 s", "drafted 1.00 s (medians of 3): 2.00 times as fast", "identical to the last token"]
    assert verdict(result) == told
    odd = PlainAndDrafted(plain=[answer([1, 2], 2.2)], drafted=[answer([1, 2], 1.0)])
    assert verdict(odd)[1].endswith("2.20 times as fast (above the tokens per pass, which only noise can do)")
    result.busy = {0: "other programs took 1.5 of 2 cores meanwhile"}  # of the first round only
    assert (result.plain_seconds, result.drafted_seconds, result.speedup) == (1.5, 5.0, 0.3)
    result.busy |= dict.fromkeys((1, 2), "they took more")
    assert (result.plain_seconds, result.drafted_seconds, result.speedup) == (2.0, 1.0, None)
    assert verdict(result)[1].endswith("of 3): not comparable, since other programs took 1.5 of 2 cores meanwhile")
    unfinished = PlainAndDrafted(plain=[], drafted=[answer([1, 2], 1.0, finish=None)])
    assert (unfinished.rounds, unfinished.identical, unfinished.speedup) == (0, None, None)


def test_a_busy_machine_is_told_and_tried_once_more(draftwood, tiny, monkeypatch):
    taken = iter([2.0] * 4 + [0.0] * 2)  # two arms in each of three rounds
    monkeypatch.setattr(Others, "cores", property(lambda _: next(taken)))
    flags = ("generate", "one two one two", "-m", tiny, "--max-new-tokens", "12", "--compare", "--json")
    found = draftwood(*flags).document
    assert found["speedup"] == pytest.approx(found["plain_seconds"] / found["drafted_seconds"])
    assert (found["rounds"], list(found["busy"])) == (3, ["0", "1"])
    monkeypatch.setattr(Others, "cores", 2.0)
    found = draftwood(*flags).document
    assert (found["rounds"], len(found["busy"]), found["speedup"], found["identical"]) == (3, 3, None, True)


@pytest.mark.parametrize(("other", "index"), [([1, 9, 3], 1), ([1, 2], 2), ([1, 2, 3, 4], 3)])
def test_where_texts_part(other, index):
    result = PlainAndDrafted(plain=[answer([1, 2, 3], 1.0)], drafted=[answer(other, 1.0)])
    assert (result.identical, result.parted_at) == (False, index)
    assert f"NOT identical: they part at token {index}" in sameness(result)
    result.margin = 1e-6
    assert "differ by 1.0e-06" in verdict(result)[-1]


def test_the_margin_of_a_difference():
    target = ToyTarget()
    result = compare(target, PROMPT, rounds=1, max_new_tokens=6)
    result.drafted[0].ids[3] ^= 1
    for settings, is_told in (
        ({"temperature": 0.0}, True),
        ({"temperature": 1.0}, False),
        ({"repetition_penalty": 1.1}, False),
    ):
        margin = _Arms(target, PROMPT, settings | {"seed": 0}).margin(result)
        assert margin > 0 if is_told else margin is None
