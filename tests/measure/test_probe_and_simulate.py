"""The probe and the simulation: each on its own, and the identity that ties them together."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers import PROMPT, untimed, write, write_batch
from tests.toys import RaisingDrafter

from draftwood.cli.main import run
from draftwood.decoding.request import Request
from draftwood.drafters.load import load
from draftwood.drafters.lookup.drafter import LookupDrafter
from draftwood.drafters.memory.drafter import save_all
from draftwood.engines.replay import ReplayTarget
from draftwood.measure.records.records import Answer
from draftwood.measure.records.traces import Trace, write_traces
from draftwood.measure.simulate import probe, probed, row, simulate
from draftwood.planning.cost_curve import CostCurve
from draftwood.testing import ToyTarget

LOOKUP = LookupDrafter(max_ngram=8, min_ngram=2, length=1)
TEXTS = st.lists(st.integers(0, 3), min_size=2, max_size=60)


def asked(target, prompt, limit, drafter=LOOKUP) -> Answer:
    return probe(target, drafter, Request(prompt, limit), Answer(0, "toy", "a", "lookup"))


def naive_probe(prompt, output, least=2, most=8):
    """What followed the newest occurrence of the longest repeated suffix, in its plainest words."""
    text, found = [*prompt, output[0]], []
    for token in output[1:]:
        proposal = None
        for n in range(min(most, len(text) - 1), least - 1, -1):
            ends = [e for e in range(n, len(text)) if text[e - n : e] == text[-n:]]
            if ends:
                proposal = (n, text[ends[-1]])
                break
        found.append((proposal, proposal is not None and proposal[1] == token))
        text.append(token)
    return found


def test_decoding_is_unchanged_and_every_token_is_a_target():
    target = ToyTarget(order=2, seed=4)
    plain = write(target, [], 0, limit=50)
    answer = asked(target, PROMPT, 50)
    assert answer.output_ids == plain.ids
    assert answer.finish_reason == "length"
    assert [s.drafted for s in answer.steps] == [0] * 49
    counts = probed([answer])
    assert counts["targets"] == 49
    assert counts["proposals"] == sum(s.by_source[0].proposed for s in answer.steps)
    assert 0 < counts["accepted"] <= counts["proposals"]


@given(TEXTS, TEXTS)
@settings(max_examples=60, deadline=None)
def test_the_probe_is_its_definition(prompt, output):
    answer = asked(ReplayTarget(prompt, output, vocab_size=4), prompt, len(output))
    truth = naive_probe(prompt, output)
    counts = probed([answer])
    assert counts["targets"] == len(truth)
    assert counts["proposals"] == sum(p is not None for p, _ in truth)
    assert counts["accepted"] == sum(right for _, right in truth)
    for one in counts["per_n"]:
        assert one["proposals"] == sum(p is not None and p[0] == one["n"] for p, _ in truth)
        assert one["accepted"] == sum(right for p, right in truth if p is not None and p[0] == one["n"])
    assert counts["acceptance_rate"] == counts["accepted"] / max(1, counts["proposals"])


@given(TEXTS, TEXTS)
@settings(max_examples=60, deadline=None)
def test_simulated_with_a_draft_of_one_the_hits_are_the_probes_at_the_positions_it_visits(prompt, output):
    right = [
        bool(s.trace and s.trace["right"]) for s in asked(ReplayTarget(prompt, output), prompt, len(output)).steps
    ]
    (simulated,) = simulate([Trace("t", "a", prompt, output)], [LOOKUP], "fixed:1")
    position, hits = 0, 0  # among the decode tokens
    for step in simulated.steps:
        last = position == len(right) - 1  # the pass adds a token itself: nothing is drafted for the last one
        assert step.accepted == (right[position] and not last)
        hits += step.accepted
        position += len(step.emitted)
    assert position == len(right)
    assert len(simulated.steps) == len(right) - hits


def test_a_failing_drafter_proposes_nothing_and_changes_nothing():
    target = ToyTarget(order=2, seed=4)
    answer = asked(target, PROMPT, 20, RaisingDrafter("draft"))
    assert answer.output_ids == write(target, [], 0, limit=20).ids
    assert probed([answer])["proposals"] == 0


def test_source_document_zeros_arithmetic():
    # 100 tokens in 49 passes are 2.04x, in 41 passes 2.44x.
    answers = list(simulate([Trace("t", "a", [1, 2, 3], [1, 2, 3] * 34)], "ngram", "fixed:4"))
    found = row(answers)
    assert found["generated"] == 101
    assert found["ideal_speedup"] == found["generated"] / found["verifier_passes"]
    assert found["mean_acceptance_length"] == found["ideal_speedup"]
    assert found["mean_acceptance_length_unlooped"] < found["mean_acceptance_length"]
    assert found["predicted_speedup"] is None


@pytest.fixture
def only_passes_take_time(monkeypatch):
    """The real clock stands still, so that simulated seconds are exact on a busy machine, too."""
    for module in ("engines.replay", "decoding.sequence", "decoding.draft_source", "decoding.propose"):
        monkeypatch.setattr(f"draftwood.{module}.perf_counter", lambda: 0.0)


@pytest.mark.usefixtures("only_passes_take_time")
def test_with_a_cost_time_is_simulated_too():
    curve = CostCurve.parse("1=100,5=200")
    trace = Trace("t", "a", [1, 2, 3], [1, 2, 3] * 20)
    (drafted,) = simulate([trace], "ngram", "fixed:4", cost=curve.seconds)
    (plain,) = simulate([trace], "none", "fixed:0", cost=curve.seconds)
    for step in drafted.steps:
        assert step.score_s == pytest.approx(curve.seconds(1 + step.drafted))
    assert plain.decode_s == pytest.approx(59 * 0.1)
    found = row([drafted], [plain])
    assert found["predicted_speedup"] == pytest.approx(plain.decode_s / drafted.decode_s)
    assert 1.5 < found["predicted_speedup"] < 2.5


def test_a_replay_writes_no_file_and_no_task_knows_of_another(tmp_path):
    answer = list(range(100, 140))
    traces = [Trace(task, name, [1, 2], answer) for task in "ab" for name in "xyz"]
    memory, counts = tmp_path / "m.dwm", tmp_path / "c.dwn"
    for spec in (f"memory:file={memory}", "memory", f"ngram-cache:dynamic={counts}:save=true:n_draft=16"):
        for _ in range(2):
            passes = {(a.task, a.name): len(a.steps) for a in simulate(traces, spec)}
            assert passes["a", "x"] == passes["b", "x"] == 39
            assert passes["a", "z"] == passes["b", "z"] < 39
    save_all()
    assert not memory.exists()
    assert not counts.exists()


# --- several answers in one pass -----------------------------------------------------------------------------

TRACES = [Trace("t", str(i), [1, 2, 3], [1, 2, 3] * n) for i, n in enumerate((4, 20, 12))]


@pytest.mark.parametrize("nodes", [0, 3, 8])
def test_a_replayed_batch_is_the_live_one_step_for_step(nodes):
    target = ToyTarget(order=2, seed=4)
    requests = [Request([*PROMPT, i], limit) for i, limit in enumerate((30, 9, 50))]
    live = write_batch(target, load("ngram"), requests, nodes)
    traces = [
        Trace("t", str(i), list(r.prompt), one.ids, r.limit, one.finish)
        for i, (r, one) in enumerate(zip(requests, live, strict=True))
    ]
    answers = list(simulate(traces, "ngram", f"fixed:{nodes}", batch=3))
    assert [a.output_ids for a in answers] == [one.ids for one in live]
    assert [[untimed(s) for s in a.steps] for a in answers] == [[untimed(s) for s in one.steps] for one in live]


@pytest.mark.usefixtures("only_passes_take_time")
def test_a_batch_pays_for_the_sum_of_its_tokens_and_each_row_its_share():
    curve, widths = CostCurve.parse("1=100,64=200"), []

    def cost(n: int, context: int) -> float:
        widths.append(n)
        return curve.seconds(n, context)

    answers = list(simulate(TRACES, "ngram", "fixed:4", cost=cost, batch=2))
    assert [(a.name, len(a.output_ids)) for a in answers] == [("0", 12), ("1", 60), ("2", 36)]
    assert sum(widths) == sum(1 + s.drafted for a in answers for s in a.steps)
    assert len(widths) == max(len(a.steps) for a in answers[:2]) + len(answers[2].steps)
    passes = sum(curve.seconds(n) for n in widths)
    assert sum(s.score_s for a in answers for s in a.steps) == pytest.approx(passes)
    assert sum(a.decode_s for a in answers) == pytest.approx(passes)
    assert row(answers, answers)["predicted_speedup"] == pytest.approx(1)


# --- planners that go by time --------------------------------------------------------------------------------


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    write_traces(path, TRACES, {}, None)
    return str(path)


@pytest.mark.parametrize(("arguments", "planner"), [
    ((), "fixed:16"), (("--cost", "1=10,64=11"), "goodput"), (("--planner", "off"), "off"),
    (("--planner", "goodput:8", "--cost", "1=10"), "goodput:8"),
])  # fmt: skip
def test_the_command_goes_by_goodput_where_passes_have_a_cost(trace, capsys, arguments, planner):
    assert run(["simulate", trace, "--drafters", "ngram", "--json", *arguments]) == 0
    (found,) = json.loads(capsys.readouterr().out)["rows"]
    assert found["planner"] == planner
    assert (found["predicted_speedup"] is None) == ("--cost" not in arguments)


@pytest.mark.parametrize(("arguments", "said"), [
    (("--planner", "goodput"), "goes by what passes cost: say it with --cost or --profile"),
    (("--planner", "fixd:1"), "unknown planner 'fixd'"),
])  # fmt: skip
def test_a_wrong_call_of_the_command_is_told(trace, capsys, arguments, said):
    assert run(["simulate", trace, *arguments]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert not told.out
