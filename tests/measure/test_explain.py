"""Explaining steps: the reason of each, the summary, accept rates and cost, and rows that say less or nonsense."""

import json
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwood.cli.explain_tables import show_arms, show_step
from draftwood.errors import RecordError, UsageError
from draftwood.measure.records.records import Answer, header
from draftwood.measure.records.writer import RecordsWriter
from draftwood.measure.report.reading import explainable
from draftwood.measure.report.reasons import choice
from draftwood.measure.report.sentences import arms
from draftwood.measure.report.steps import steps_of
from draftwood.step import SourceStep, StageStep, Step

ALTERNATIVES = [[0, 1.0, 20.0], [1, 1.6, 22.0], [2, 1.9, 24.0], [4, 2.2, 36.0]]


def planned(**said):
    """A step of one source that scored two of four candidates, as the goodput planner tells it."""
    plan = {
        "planner": "goodput", "asked": 8, "candidates": 4, "chosen": 2, "best": 2, "explored": False,
        "context": 10, "rows": 1, "alternatives": ALTERNATIVES, "overhead_ms": 0.5, "policies": [], "sources": [],
    } | said  # fmt: skip
    drafted = plan["chosen"]
    accepted = min(1, drafted)
    trace = {
        "tokens": [5, 6][:drafted], "parents": [-1, 0][:drafted], "source": [0, 0][:drafted],
        "evidence": [3, 4][:drafted], "belief": [0.6, 0.5][:drafted], "lookahead": [False, False][:drafted],
        "path": [0][:accepted], "plan": plan,
    }  # fmt: skip
    own = SourceStep(1, asked=plan["asked"], proposed=plan["candidates"], kept=drafted, accepted=accepted)
    return Step(
        0, 10, (5,) * accepted + (9,), (0,) * accepted + (-1,), drafted=drafted, depth=drafted, accepted=accepted,
        by_source=(own,), score_s=0.024, trace=trace,
    )  # fmt: skip


def counted(**fields):
    """A step of which only counts are known."""
    own = SourceStep(1, asked=16, proposed=5, kept=3, accepted=1)
    return Step(0, 10, (5, 9), (0, -1), **{"drafted": 3, "accepted": 1, "by_source": (own,), **fields})


FIXED = {"alternatives": [], "planner": "fixed", "nodes": 3}
THRESHOLD = {"alternatives": [], "planner": "threshold", "nodes": 64, "floor": 0.25}


def told(step):
    found = choice(step)
    return found["reason"], found["why"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, ("part", "2 of 4 guesses pay")),
        ({"candidates": 2}, ("all", "all 2 guesses pay")),
        ({"candidates": 1, "chosen": 1}, ("all", "the one guess pays")),
        ({"explored": True, "best": 1}, ("explored", "checked 2 guesses instead of 1, to time such a pass")),
        ({"chosen": 0}, ("unlikely", "likeliest guess 60 %, pays from 10 %")),
        (
            {"chosen": 0, "alternatives": [[0, 1.0, 20.0], [1, 1.6, 40.0]]},
            ("unlikely", "likeliest guess 60 %, and even a sure one costs too much"),
        ),
        ({"chosen": 0, "alternatives": []}, ("unlikely", "no guess was likely enough")),
        ({"chosen": 0, "candidates": 0}, ("nothing", "no drafter had a guess")),
        ({"chosen": 0, "candidates": 0, "asked": 0}, ("rested", "drafters paused: their guesses had not paid")),
        ({"chosen": 0, "candidates": 0, "asked": 0, "planner": "off"}, ("off", "drafting is off")),
        ({"chosen": 0, "candidates": 0, "asked": 0, "most": 0}, ("off", "drafting is off")),
        ({"chosen": 0, "candidates": 0, "asked": 0, "planner": "fixed"}, ("off", "drafting is off")),
        ({"chosen": 0, "candidates": 0, "asked": 0, **FIXED}, ("end", "one token was left to write")),
        ({"most": 2}, ("most", "2 of 4 guesses checked, no more may be")),
        ({"most": 8}, ("part", "2 of 4 guesses pay")),
        ({"alternatives": [], "planner": "fixed"}, ("fixed", "2 of 4 guesses checked, a fixed number")),
        (FIXED | {"chosen": 3}, ("fixed", "3 of 4 guesses checked, a fixed number")),
        (FIXED | {"candidates": 2}, ("fixed", "2 of 2 guesses checked, 3 may be")),
        (FIXED | {"floor": 0.1}, ("likely", "2 of 4 guesses likely enough (10 % at least)")),
        (FIXED | {"floor": 0.1, "chosen": 0}, ("unlikely", "no guess was as likely as 10 %")),
        (THRESHOLD, ("likely", "2 of 4 guesses likely enough (25 % at least)")),
        (THRESHOLD | {"chosen": 1, "candidates": 1}, ("likely", "1 of 1 guess likely enough (25 % at least)")),
        (THRESHOLD | {"nodes": 2}, ("most", "2 of 4 guesses checked, no more may be")),
        ({"alternatives": [], "planner": "threshold"}, ("likely", "2 of 4 guesses likely enough")),
    ],
)
def test_every_choice_of_a_planner_has_its_reason(said, why):
    assert told(planned(**said)) == why


def test_a_policy_is_named_only_where_all_that_it_let_through_was_scored():
    held = planned(candidates=2, asked=2, policies=[["thermal", "43.0 °C"], ["battery", "no battery here"]])
    held = replace(held, held=("thermal",))
    assert told(held) == ("held", "thermal (43.0 °C) allowed no more than 2 guesses")
    roomy = planned(policies=[["thermal", "43.0 °C"]])
    roomy = replace(roomy, held=("thermal",))
    assert told(roomy)[0] == "part"
    stopped = planned(candidates=0, chosen=0, asked=0)
    stopped = replace(stopped, held=("backoff",))
    assert told(stopped) == ("held", "backoff allowed no guess")


def test_steps_without_a_plan_are_explained_by_their_counts():
    assert told(counted()) == ("counts", "3 of 5 guesses checked")
    assert told(Step(0, 10, (9,), (-1,))) == ("off", "drafting is off")
    silent = counted(drafted=0, accepted=0, by_source=(SourceStep(1, asked=16),))
    assert told(silent)[0] == "nothing"
    unscored = counted(drafted=0, accepted=0, by_source=(SourceStep(1, asked=16, proposed=3),))
    assert told(unscored) == ("unlikely", "no guess was likely enough")
    resting = counted(drafted=0, accepted=0, by_source=(SourceStep(),))
    assert told(resting)[0] == "rested"


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.floats() | st.just(10**400) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
columns = st.lists(st.integers(-2, 3) | st.floats(0, 1) | st.booleans(), max_size=4)
TRACE = planned().trace
PLAN = TRACE["plan"] | {"most": 64, "nodes": 16, "floor": 0.1}


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.sampled_from(sorted(PLAN)), anything) | anything,
    st.dictionaries(st.sampled_from(sorted(TRACE)), columns | anything, max_size=3) | anything,
)
def test_whatever_a_trace_holds_a_step_is_explained(plan, trace):
    whole = TRACE | {"plan": PLAN | plan if isinstance(plan, dict) else plan}
    step = replace(planned(), trace=whole | trace if isinstance(trace, dict) else trace)
    answer = Answer(0, "t", "n", "ngram", drafters=["ngram"], output_ids=[1, 5, 9], steps=[step])
    (whole,), (found,) = arms([answer]), steps_of(answer)
    assert whole["words"]
    assert found["why"]
    json.dumps([whole, found], allow_nan=False)
    with redirect_stdout(StringIO()) as printed:
        show_arms([whole])
        show_step(found, answer, str)
    assert printed.getvalue()


def test_the_summary_says_why_drafting_was_off():
    unlikely = [[0, 1.0, 20.0], [1, 1.05, 22.0]]
    steps = [planned(chosen=0, candidates=3, alternatives=unlikely) for _ in range(3)]
    steps += [planned(chosen=0, candidates=0), planned()]
    found = told_of(steps)["summary"]
    assert (found["steps"], found["tokens"]) == (5, 6)
    assert found["off_reasons"] == {"unlikely": {"steps": 3, "tokens": 3}, "nothing": {"steps": 1, "tokens": 1}}
    said = told_of(steps, "ngram")["words"]
    assert said[0].startswith("6 tokens in 5 passes: 1.20 tokens per pass, ")
    assert said[1] == (
        "No guess was checked for 67 % of the text: in 3 steps the likeliest guess had a median chance of 5 % "
        "(5 % at most), and checking one pays from 10 % on; in 1 step no drafter had a guess."
    )
    assert said[2] == (
        "Guesses were checked in 1 step, a median of 2 at a time (2 at most); 50 % of them were right, 1.00 per "
        "step."
    )


def test_the_summary_holds_the_forecast_against_what_came():
    found = {"passes": 2, "tokens": 2.9, "came": 3, "ms": 22, "took": 24, "speedup": 58 / 44}
    assert told_of([planned(), planned(chosen=0)])["summary"]["forecast"] == pytest.approx(found)


def test_policies_are_said_with_what_they_saw():
    held = planned(candidates=2, asked=2, policies=[["thermal", "43.0 °C"], ["battery", "no battery here"]])
    held = replace(held, held=("thermal",))
    said = told_of([held, planned()])["words"]
    assert "thermal allowed no more than 2 guesses in 50 % of the steps (43.0 °C)." in said
    assert "battery limited nothing (no battery here)." in said


def test_the_models_of_a_cascade_are_summed_up():
    stages = (StageStep("middle", 2, 7, 3, 0.5), StageStep("small", 9, 0, 0, 0.25))
    step = counted(by_source=(SourceStep(1, asked=16, stages=stages),))
    said = told_of([step, step], "draft-model")["words"]
    assert (
        "The draft model middle made 4 passes in 1000 ms; of 14 guesses of its own drafters 6 were right." in said
    )
    assert "The draft model small made 18 passes in 500 ms." in said


def test_a_failed_source_and_missing_plans_are_said():
    broken = counted(by_source=(SourceStep(1, failed=True),))
    said = told_of([broken, planned()], "ngram")["words"]
    assert "ngram failed and was switched off in 1 answer." in said
    assert "The planner's reasons were recorded for 1 of 2 steps; of the others only counts are known." in said
    assert told_of([])["words"] == ["Nothing was decoded: no pass beyond reading the prompt."]


def test_rows_of_steps_carry_their_text():
    steps = [planned(), counted()]
    answer = Answer(
        0, "t", "n", "ngram", drafters=["ngram"], output_ids=[1, 5, 9, 5, 9], pieces=list("abcde"), steps=steps
    )
    first, second = steps_of(answer)
    assert (first["text"], second["text"]) == ("bc", "de")
    assert (first["expected_tokens"], first["expected_ms"], first["candidates"]) == (1.9, 24.0, 4)
    assert (second["expected_tokens"], second["candidates"], second["asked"]) == (None, None, 16)
    assert json.loads(json.dumps(first))["alternatives"][1] == {
        "nodes": 1, "expected_tokens": 1.6, "ms": 22.0, "tokens_per_second": pytest.approx(72.7, abs=0.1)
    }  # fmt: skip


def told_of(steps, *drafters):
    ids = [1, *(token for step in steps for token in step.emitted)]
    (told,) = arms([Answer(0, "t", "n", "ngram", drafters=list(drafters), output_ids=ids, steps=steps)])
    return told


def save(path, answers, verb="bench"):
    writer = RecordsWriter(path, header(verb, {"model": "toy"}, {}))
    for answer in answers:
        writer.answer(answer)
    writer.close()
    return path


def answers():
    drafted = [Answer(i, "t", f"n{i}", "ngram", drafters=["ngram"], output_ids=[1, 5, 9], steps=[planned()])
               for i in (1, 2)]  # fmt: skip
    return [Answer(0, "t", "n1", "none", output_ids=[1, 9], steps=[Step(0, 3, (9,), (-1,))]), *drafted]


def test_files_that_hold_nothing_to_explain_are_refused(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "trace.jsonl").write_text(json.dumps(header("trace", {}, {})) + '\n{"prompt_ids": [1]}\n')
    (tmp_path / "broken.jsonl").write_text(json.dumps(header("bench", {}, {})) + "\nnothing\n{}\n")
    save(tmp_path / "none.jsonl", [])
    save(tmp_path / "plain.jsonl", answers()[:1])
    for name, kind, said in (
        ("empty", RecordError, "is empty"),
        ("trace", RecordError, "is a trace, which has no steps"),
        ("missing", UsageError, "cannot be read"),
        ("none", RecordError, "nothing to show"),
        ("plain", UsageError, "holds plain decoding only"),
        ("broken", RecordError, "line 2"),
    ):
        with pytest.raises(kind, match=said):
            explainable(tmp_path / f"{name}.jsonl")
