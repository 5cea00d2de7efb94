"""Counts of own_passes.py are the bench's, and shares cover every prompt."""

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.files.lines import write_whole
from draftwood.measure.records import timing
from draftwood.measure.records.records import Answer, Records, header, read_records
from draftwood.step import SourceStep, Step

SETTINGS = {"model": "smollm2", "max_new_tokens": 128, "across": False}
TWO = {"ngram": {"accepted": 0, "failed": 0}, "recycling": {"accepted": 0, "failed": 0}}


@pytest.fixture(scope="module")
def table(script):
    return script("own_passes")


def answer(emitted, ids):
    """An answer whose steps emitted so many tokens; one draft node more was scored than accepted, and a probe."""
    steps = [
        Step(
            i, 10, emitted=(0,) * n, drafted=n, accepted=n - 1, lookahead_scored=1, score_s=0.5,
            by_source=(SourceStep(calls=1, proposed=n, kept=n, accepted=n - 1, lookahead_nodes=1),),
        )
        for i, n in enumerate(emitted)
    ]  # fmt: skip
    return Answer(0, "chat", "x", "ngram", drafters=["ngram"], output_ids=ids, steps=steps)


def row(table, one, **changed):
    fields = {"row": "run", "arm": one.arm, "draft": 32, "temperature": 0.0, "task": one.task, "name": one.name}
    return {**fields, **table.line(one), **changed}


def rows(*lines, **settings):
    return Records(header("own_passes", SETTINGS | settings, {}), others=list(lines))


def plain(tokens, passes, **changed):
    """The row of an answer of distinct tokens that took so many passes."""
    many = {"emitted": [1] * (passes - 1) + [tokens - passes + 1], "output_ids": list(range(tokens + 1))}
    zeros = {name: [0] * passes for name in ("accepted", "drafted", "lookahead_scored")}
    given = {"arm": "ngram+recycling", "draft": 32, "temperature": 0.0, "by_source": TWO, "seconds": {}}
    return {"row": "run", "name": "x", **given, **many, **zeros, **changed}


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.integers(0, 9))
def test_tokens_and_passes_before_a_looped_tail_are_counted_as_the_bench_counts_them(table, emitted, distinct):
    size = 1 + sum(emitted)
    ids = [*range(1, distinct + 1), *[0] * size][:size]
    one = answer(emitted, ids)
    (run,) = table.runs([rows(row(table, one))])
    assert table.length([run]) == timing.acceptance_length([one], unlooped=True)
    steps = timing.steps_until(one, timing.kept(one))
    assert run.passes == len(steps)
    assert table.scored([run]) == (sum(s.drafted for s in steps) / (len(steps) or 1), float(bool(steps)))
    assert run.by_source["ngram"]["accepted"] == sum(s.accepted for s in steps)
    assert run.seconds["score"] == 0.5 * len(steps)


def test_a_mean_is_summed_tokens_over_summed_passes_and_the_mix_needs_all_of_its_kinds(table):
    some = [plain(30, 10, task=kind) for kind in table.MIX]
    some[0] = plain(10, 10, task=table.MIX[0])
    found = table.lengths(table.runs([rows(*some)]))
    assert found["mix"] == pytest.approx(130 / 50)
    assert found[table.MIX[0]] == 1.0
    assert "mix" not in table.lengths(table.runs([rows(*some[1:])]))


def test_any_text_that_is_not_the_first_arms_is_told_with_the_place(table, tmp_path, capsys):
    other = plain(10, 5, task="chat", arm="ngram", output_ids=[0, 1, 2, 99, *range(4, 11)])
    file = tmp_path / "rows.jsonl"
    write_whole(file, [header("own_passes", SETTINGS, {}), plain(10, 5, task="chat"), other])
    ((run, against, place),) = table.differing(table.runs([read_records(file)]))
    assert (run.group.arm, against.group.arm, place) == ("ngram", "ngram+recycling", 3)
    assert table.show([file]) == 0
    printed = capsys.readouterr().out
    assert "texts: 1 of 2 differ from the first arm's" in printed
    assert "ngram at 32, T=0, chat x: parts from ngram+recycling at 32 at token 3" in printed


@given(st.integers(1, 5))
def test_shares_of_the_prompts_are_all_of_them_and_disjoint(table, of):
    chosen = table.chosen
    everything = [(job.task, job.name) for job in chosen("chat,prose", 3, False, None)]
    assert len(everything) == 6
    shares = [chosen("chat,prose", 3, False, f"{k}/{of}") for k in range(1, of + 1)]
    assert sorted(everything) == sorted((job.task, job.name) for share in shares for job in share)


@pytest.mark.parametrize("text", ["0/2", "1", "a/b", "-1/2"])
def test_a_share_that_is_none_is_refused(table, text):
    with pytest.raises(argparse.ArgumentTypeError, match="is no share"):
        table.part(text)


def test_what_a_step_takes_of_its_own_is_found(script):
    own_time = script("own_time")
    found = own_time.rows("ngram", own_time.read_traces(own_time.TRACES)[:1], 0.5, warm=True)
    assert "drafted" in str(found)
