"""Step: the record, there and back through JSON."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.errors import UsageError
from draftwood.step import MODEL, SourceStep, StageStep, Step, stages_of

COUNT = st.integers(0, 50)
SECONDS = st.floats(0, 10)
STAGE_STEPS = st.builds(StageStep, st.sampled_from("ab"), COUNT, COUNT, COUNT, SECONDS)
SOURCE_STEPS = st.builds(
    SourceStep, COUNT, SECONDS, SECONDS, SECONDS, COUNT, COUNT, COUNT, COUNT, COUNT, COUNT, st.booleans(),
    st.lists(STAGE_STEPS, max_size=2).map(tuple),
)  # fmt: skip
STEPS = st.builds(
    Step, index=COUNT, context=COUNT, emitted=st.lists(COUNT).map(tuple),
    sources=st.lists(st.integers(MODEL, 3)).map(tuple), drafted=COUNT, lookahead_scored=COUNT, accepted=COUNT,
    finish=st.sampled_from([None, "eos", "stop", "length"]),
    by_source=st.lists(SOURCE_STEPS, max_size=3).map(tuple), plan_s=SECONDS, draft_s=SECONDS, score_s=SECONDS,
    verify_s=SECONDS, keep_s=SECONDS, learn_s=SECONDS, temperature=st.none() | SECONDS,
    battery=st.none() | st.floats(0, 1), trace=st.none() | st.just({"tokens": [1, 2], "parents": [-1, 0]}),
)  # fmt: skip


@given(STEPS)
def test_json_there_and_back(step):
    assert Step.from_json(json.loads(json.dumps(step.to_json()))) == step


def test_fields_that_say_nothing_are_left_out():
    row = Step(0, 5).to_json()
    assert not {"finish", "temperature", "battery", "trace"} & set(row)
    assert Step.from_json(row) == Step(0, 5)
    assert Step.from_json({"index": 0, "context": 5}) == Step(0, 5)


def test_unknown_fields_are_refused():
    with pytest.raises(UsageError, match=r"unknown fields \['colour', 'mood'\]: written by another version\?"):
        Step.from_json(Step(0, 5).to_json() | {"mood": 1, "colour": 2})
    row = Step(0, 5, by_source=(SourceStep(),)).to_json()
    row["by_source"][0]["taste"] = 3
    with pytest.raises(UsageError, match=r"unknown fields \['taste'\]"):
        Step.from_json(row)
    row["by_source"][0] = {"stages": [{"name": "a", "smell": 1}]}
    with pytest.raises(UsageError, match=r"unknown fields \['smell'\]"):
        Step.from_json(row)


def test_stages_are_summed_by_name():
    steps = [[StageStep("a", 1, 2, 1, 0.5), StageStep("b", 3)], [StageStep("a", 2, 1, 1, 0.25)]]
    assert stages_of(steps) == (StageStep("a", 3, 3, 2, 0.75), StageStep("b", 3))


@given(STEPS)
def test_seconds_are_the_pass_and_the_overhead(step):
    parts = [f.name for f in dataclasses.fields(Step) if f.name.endswith("_s")]
    assert parts == ["plan_s", "draft_s", "score_s", "verify_s", "keep_s", "learn_s"]
    assert step.seconds == pytest.approx(sum(getattr(step, part) for part in parts))
    assert step.overhead_s == pytest.approx(step.seconds - step.score_s)
