"""The bench on toys: arms, rounds, resuming, the table and the differences."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from draftwood.api.setup import Setup
from draftwood.contracts import Sampling
from draftwood.engines.peer import PeerAnswer
from draftwood.errors import PromptError, UsageError
from draftwood.measure.bench.arms import OurArm, PeerArm
from draftwood.measure.bench.run import Bench, BenchSettings, Sustained, sustain
from draftwood.measure.bench.table import geometric_mean, table, tokens_per_pass
from draftwood.measure.prompt_files import PromptJob
from draftwood.measure.records.records import TRACED, Answer, Records, header, read_records
from draftwood.measure.records.writer import RecordsWriter
from draftwood.measure.report.standings import Standings
from draftwood.measure.ties import differences, limits
from draftwood.testing import ToyTarget

JOBS = [
    PromptJob("toy", "a", [1, 2, 0, 1, 2]),
    PromptJob("toy", "b", [3, 1]),
    PromptJob("other", "c", [5], {"temperature": 1.0}),
]


class FakePeer:
    """Writes what it was told to, a token a pass."""

    name, engine = "llama.cpp", "llama.cpp"

    def __init__(self) -> None:
        self.asked: list[tuple[int, Sampling]] = []

    def answer(self, ids, limit, *, end_ids, sampling):
        self.asked.append((limit, sampling))
        arrivals = [(n + 1, 1.0 + 0.5 * n) for n in range(limit)]
        return PeerAnswer([7] * limit, arrivals, 1.0, 0.5 * (limit - 1), 4, 2, limit - 1)

    def close(self):
        self.asked.append("closed")


def bench(labels=("none", "ngram"), jobs=JOBS, path=None, seen=None, peers=(), **settings):
    target = ToyTarget(order=2, seed=3)
    target.generation_config = SimpleNamespace()
    setup = Setup(target, None, "none", "fixed:8")
    writer = RecordsWriter(path, header("bench", {}, {}))
    chosen = BenchSettings("fixed:8", 24, **settings)
    arms = [*(OurArm(label, setup, "fixed:8") for label in labels), *map(PeerArm, peers)]
    note = (lambda *what: seen.append(what)) if seen is not None else (lambda *_: None)
    try:
        return Bench(setup, arms, jobs, chosen, writer, note), writer, arms
    except UsageError:  # PromptError is one too
        writer.close()
        raise


def finished(rounds, *given, **settings):
    """Run a bench to its end; returns its writer, closed."""
    work, writer, _ = bench(*given, **settings)
    work.run(rounds)
    writer.close()
    return writer


def test_every_arm_answers_every_prompt_in_every_round(tmp_path):
    seen: list = []
    work, writer, arms = bench(seen=seen, path=tmp_path / "rows.jsonl")
    work.run(2)
    writer.close()
    answers = writer.records.answers
    assert len({a.key for a in answers}) == len(answers) == 3 * 2 * 2 + 3
    assert [a.id for a in answers] == list(range(15))
    assert [s[:2] for s in seen] == [(i, 15) for i in range(15)]
    for a in answers:
        assert a.decode_s > 0
        assert len(a.output_ids) == 24
        assert sum(len(s.emitted) for s in a.steps) == 23
        assert (a.steps[0].trace is not None) == (a.round == TRACED), "trees are kept outside the timed rounds"
        assert a.planner == ("off" if a.arm == "none" else arms[1].planner)
        assert a.cpu_share is None or a.cpu_share >= 0
    assert {a.arm for a in answers if a.round == TRACED} == {"ngram"}
    keys = {(a.name, a.round) for a in answers if a.round != TRACED}
    orders = [[a.arm for a in answers if (a.name, a.round) == key] for key in keys]
    assert {tuple(order) for order in orders} == {("none", "ngram"), ("ngram", "none")}, "arms are shuffled"


def test_texts_agree_and_the_table_says_so():
    writer = finished(2)
    rows = {(r["task"], r["drafter"]): r for r in table(writer.records)}
    assert set(rows) == {(t, d) for t in ("toy", "other") for d in ("none", "ngram")}
    row = rows["toy", "ngram"]
    assert row["identical"] is True
    assert (row["prompts"], row["rounds"], row["generated"]) == (2, 2, 46)
    assert row["mean_acceptance_length"] > rows["toy", "none"]["mean_acceptance_length"] == 1
    assert row["speedup_interval"][0] <= row["speedup"] <= row["speedup_interval"][1]
    assert [dot["name"] for dot in row["per_prompt"]] == ["a", "b"]
    assert rows["other", "ngram"]["speedup_interval"] is None, "one prompt has no spread"
    assert rows["toy", "none"]["speedup"] == pytest.approx(1)
    assert list(differences(writer.records, None, "float32")) == []


def test_a_stopped_bench_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "rows.jsonl"
    seen: list = []
    work, writer, _ = bench(path=path, seen=seen)
    ran = work.answer
    work.answer = lambda *what: (
        ran(*what) if len(writer.records.answers) < 5 else (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        work.run(2)
    writer.close()
    kept = read_records(path).answers
    assert len(kept) == 5
    finished(2, path=path, seen=seen)
    rows = read_records(path)
    assert rows.answers[:5] == kept
    assert len({a.key for a in rows.answers}) == 15
    both = [(a.name, a.round, a.sitting) for a in rows.answers[5:7]]
    assert both == [("c", 0, 1)] * 2, "one arm of it was written before"
    assert len(rows.answers) == 16
    assert seen[-1][:2] == (14, 15)
    assert all(row["speedup"] and row["apart"] is None for row in table(rows))


def test_a_temperature_for_all_prompts():
    writer = finished(1, temperature=0.7, seed=5)
    assert {tuple(a.sampling.items()) for a in writer.records.answers} == {(("temperature", 0.7),)}
    assert {a.seed for a in writer.records.answers} == {5}
    assert len(writer.records.answers) == 3 * 2, "without a file no trace is written"
    writer = finished(1, temperature=0.0)
    assert {tuple(a.sampling) for a in writer.records.answers} == {()}
    assert BenchSettings().sampling(JOBS[2]) == {"temperature": 1.0}


def test_peers_stand_beside_us_with_their_own_clock():
    peer = FakePeer()
    work, writer, arms = bench(peers=[peer], jobs=JOBS[:2])
    work.run(1)
    arms[-1].close()
    assert peer.asked[-1] == "closed"
    assert peer.asked[0][0] == 4, "warmed up with a few tokens"
    row = next(r for r in table(writer.records) if r["drafter"] == "llama.cpp")
    assert row["engine"] == "llama.cpp"
    assert (row["tpot"], row["ttft"], row["p95_itl"]) == (0.5, 1.0, 0.5)
    assert (row["mean_acceptance_length"], row["acceptance_rate"]) == (1.0, 0.5)
    assert row["speedup"] == 1.0, "against plain of its own engine"
    assert row["identical"] is True
    assert row["draft_coverage"] is None


def test_tasks_with_a_speedup_that_cannot_be_are_run_once_more(monkeypatch):
    work, writer, _ = bench(("none", "ngram", "lookup"))
    work.run(1)
    odd = {"task": "toy", "drafter": "ngram", "engine": "draftwood", "speedup_unlooped": 2.2, "most_speedup": 2.0}
    odd["apart"] = None
    rows = [odd, odd | {"task": "other", "speedup_unlooped": 2.0}]
    monkeypatch.setattr("draftwood.measure.bench.run.table", lambda _: rows)
    for _ in range(2):  # not twice
        work.run_doubted(1)
        again = sorted((a.task, a.name, a.arm) for a in writer.records.answers if a.round == 1)
        assert again == [("toy", name, arm) for name in "ab" for arm in ("ngram", "none")]


def test_what_differs_is_told_with_its_margin():
    work, writer, _ = bench(jobs=JOBS[:1])
    work.run(2)
    for answer in writer.records.answers:
        if answer.arm == "ngram":
            answer.output_ids = [*answer.output_ids[:7], (answer.output_ids[7] + 1) % 8, *answer.output_ids[8:]]
    found = list(differences(writer.records, ToyTarget(order=2, seed=3), "float32"))
    assert len(found) == 1, "the same text in the next round is no news"
    assert found[0]["index"] == 7
    assert found[0]["margin"] > 0
    assert found[0]["near_tie"] is False
    assert found[0]["rounding"] < found[0]["margin"]
    assert next(r for r in table(writer.records) if r["drafter"] == "ngram")["identical"] is False
    writer.other(found[0])
    assert list(differences(writer.records, None, "float32")) == []


def test_plain_is_the_faster_of_ours_and_the_engines_own():
    def answer(number, arm, engine, seconds):
        return Answer(number, "t", "n", arm, engine, output_ids=[1, 2, 3], decode_s=seconds)

    rows = Records({}, [answer(0, "none", "draftwood", 2.0), answer(1, "transformers", "transformers", 1.0)])
    rows.answers += [answer(2, "ngram", "draftwood", 0.5), answer(3, "llama.cpp:ngram-mod", "llama.cpp", 0.1)]
    found = {r["drafter"]: r["speedup"] for r in table(rows)}
    assert found == {"none": 0.5, "transformers": 1.0, "ngram": 2.0, "llama.cpp:ngram-mod": None}
    assert geometric_mean([1.0, 4.0]) == 2.0
    assert geometric_mean([]) is None


def test_what_a_speedup_cannot_be_above_is_of_its_own_prompts():
    """Plain has not finished the second prompt, where drafts are wrong; the third only loops."""

    def answer(number, name, arm, tokens, passes, loops=False):
        ids = [1] * 40 if loops else list(range(1, 2 + tokens))
        arrived = [[1 + round(k * (len(ids) - 1) / passes), float(k)] for k in range(passes + 1)]
        return Answer(number, "t", name, arm, output_ids=ids, decode_s=float(passes), arrivals=arrived)

    answers = [answer(0, "a", "none", 8, 8), answer(1, "a", "x", 8, 2), answer(2, "b", "x", 8, 8)]
    found = table(Records({}, answers))[1]
    assert (found["speedup_unlooped"], found["most_speedup"], tokens_per_pass(found)) == (4.0, 4.0, 1.6)
    looped = [answer(0, "c", "none", 0, 39, loops=True), answer(1, "c", "x", 0, 13, loops=True)]
    for row, length in zip(table(Records({}, looped)), (1.0, 3.0), strict=True):
        assert row["speedup_unlooped"] is None
        assert row["speedup"] == row["most_speedup"] == tokens_per_pass(row) == length
    assert not any(
        row["doubted"] for records in (answers, looped) for row in Standings.of(Records({}, records)).rows
    )


def test_another_prompt_under_the_same_name_is_refused(tmp_path):
    finished(1, path=tmp_path / "r.jsonl")
    with pytest.raises(UsageError, match="holds another prompt named toy a: choose another -o"):
        bench(path=tmp_path / "r.jsonl", jobs=[PromptJob("toy", "a", [1, 2, 3])])
    work, writer, _ = bench(path=tmp_path / "r.jsonl")
    assert writer.records.of_kind("resumed") == [], "nothing was measured yet"
    work.run(2)
    writer.close()
    assert len(writer.records.of_kind("resumed")) == 1


def test_looped_tails_are_left_out_of_the_headline():
    loop = [1, 2] + [3] * 40
    arrivals = [[1, 0.0], [2, 1.0], *([n, 1.0 + 0.01 * n] for n in range(3, 43))]
    plain = Answer(
        0, "t", "n", "none", output_ids=loop, decode_s=41.0, arrivals=[[n, n - 1.0] for n in range(1, 43)]
    )
    fast = Answer(1, "t", "n", "x", output_ids=loop, decode_s=arrivals[-1][1], arrivals=arrivals)
    found = table(Records({}, [plain, fast]))[1]
    assert found["looped_tokens"] == 39
    assert found["speedup"] > 20
    assert found["speedup_unlooped"] == pytest.approx(2.0 / 1.03)


def test_a_prompt_that_cannot_be_written_is_told_before_anything_runs():
    with pytest.raises(PromptError, match="toy long: the prompt has 5000 tokens"):
        bench(jobs=[PromptJob("toy", "long", [1] * 5000)])


def test_a_sustained_run_tells_its_trend():
    work, _, arms = bench(jobs=JOBS[:1])
    found: list[Sustained] = []
    sustain(work, arms, JOBS[0], 0.05, found)
    assert [each.arm for each in found] == ["none", "ngram"]
    assert found[0].windows
    slower = [{"at_s": float(i), "tokens_per_second": 20.0 - i} for i in range(1, 9)]
    row = Sustained("none", slower).to_json()
    assert (row["first_quarter"], row["last_quarter"]) == (18.5, 13.0)
    assert row["kept"] == pytest.approx(13 / 18.5)
    assert Sustained("none", slower[:3]).to_json()["kept"] is None
    disturbed = [{**window, "tokens_per_second": 1.0, "busy": True} for window in slower[6:]]
    assert Sustained("none", [*slower[:6], *disturbed]).to_json()["last_quarter"] == 14.5


def test_near_ties_depend_on_the_number_format():
    assert limits("float32", 20.0).score < 0.1
    assert limits("bfloat16", 20.0).score == 2 * 2.0**-7 * 16
    assert limits("float32").score < 1e-7


def test_llama_cpp_declares_its_rounding():
    apart = 0.66  # as wide passes over 4-bit weights were seen to decide
    assert limits("F16 fast", 20.0).score < apart <= limits("Q4_0 fast", 20.0).score
    assert apart <= limits("Q4_0", 20.0).score, "long texts may be decoded in llama.cpp's own settings"
    assert limits("Q4_0 exact", 20.0).score < 1e-6, "exact passes round alike"
    assert limits("Q4_K - Medium fast").cause == "the rounding of activations to eight bits"
    assert (
        limits("Q4_0 exact").divergence == 0 < limits("all F32 fast").divergence < limits("Q8_0 fast").divergence
    )


def scripted(number, name, arm, seconds, sitting=0, **more):
    return Answer(number, "t", name, arm, output_ids=[1, 2, 3], decode_s=seconds, sitting=sitting, **more)


FACTS = {"provenance": {"cores": 2}, "settings": {"threads": 2}}


def test_an_arm_that_comes_later_is_timed_beside_plain_decoding_of_its_own_sitting(tmp_path):
    """Once "suffix 0.61", against plain decoding of another moment; together 1.42."""
    path = tmp_path / "rows.jsonl"
    for labels in (("none", "lookup"), ("none", "lookup", "ngram")):
        finished(2, labels, path=path)
    kept = read_records(path)
    assert [sum(a.arm == arm and a.round >= 0 for a in kept.answers) for arm in ("none", "lookup", "ngram")] == [
        12, 6, 6,
    ]  # fmt: skip
    slow = 3.0  # times as slow is the machine in the first sitting
    for a in kept.answers:
        a.decode_s = (2.0 if a.arm == "none" else 1.0) * (slow if a.sitting == 0 else 1.0)
    rows = {(r["task"], r["drafter"]): r for r in table(kept)}
    assert {key[1]: (row["speedup"], row["beside"]) for key, row in rows.items() if key[0] == "toy"} == {
        "none": (1.0, False), "lookup": (2.0, False), "ngram": (2.0, False),
    }  # fmt: skip
    assert rows["toy", "ngram"]["tokens_per_second"] == 23.0
    assert rows["toy", "lookup"]["tokens_per_second"] == pytest.approx(23.0 / slow)
    writer = finished(2, ("none", "lookup", "ngram"), path=path)
    assert len(writer.records.answers) == len(kept.answers), "nothing is missing"


def test_what_was_timed_in_other_sittings_or_on_a_busy_machine_is_in_no_comparison():
    answers = [
        scripted(0, "a", "none", 2.0), scripted(1, "a", "x", 1.0),
        scripted(2, "a", "none", 40.0, other_programs=1.3), scripted(3, "a", "x", 1.0, other_programs=0.1),
        scripted(4, "b", "none", 9.0), scripted(5, "b", "x", 1.0, 1),  # nothing to hold the latter against
        scripted(6, "a", "none", 4.0, 1), scripted(7, "a", "x", 3.0, 1),
    ]  # fmt: skip
    plain, x = table(Records(FACTS, answers))
    assert x["speedup"] == pytest.approx((2.0 + 4.0) / (1.0 + 3.0)), "the mean of both sittings"
    assert x["per_prompt"] == [{"name": "a", "speedup": pytest.approx(1.5)}]
    assert (x["apart"], x["beside"], plain["beside"]) == (None, True, True), "of a, twice"
    assert x["tokens_per_second"] == pytest.approx(4 / 4.0)
    alone, busy = ([scripted(0, "a", "none", 2.0), scripted(1, "a", "x", 1.0, **more)] for more in (
        {"sitting": 1}, {"other_programs": 0.6},
    ))  # fmt: skip
    for some, why in ((alone, "not comparable"), (busy, "busy")):
        plain, x = table(Records(FACTS, some))
        assert (x["speedup"], x["apart"], x["identical"], x["beside"]) == (None, why, True, False)
    assert table(Records({}, busy))[1]["speedup"] == 2.0, "nothing is known of this machine"
    on_a_card = FACTS | {"settings": {"threads": 2, "device": "cuda"}}
    assert table(Records(on_a_card, busy))[1]["speedup"] == 2.0, "it takes one core"


def test_files_of_earlier_versions_tell_sittings_by_their_order(tmp_path):
    path = tmp_path / "rows.jsonl"
    lines = [header("bench", {}, {})]
    for sitting, arms in enumerate((("none", "x"), ("y",))):
        lines += [{"row": "resumed", "provenance": {}}] * sitting
        lines += [{"row": "answer", "id": n, "task": "t", "name": "a", "arm": arm, "output_ids": [1, 2],
                   "decode_s": 1.0} for n, arm in enumerate(arms)]  # fmt: skip
        lines.append({"row": "machine", "other_programs": sitting / 2})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    kept = read_records(path)
    assert [(a.arm, a.sitting, a.other_programs) for a in kept.answers] == [
        ("none", 0, 0.0), ("x", 0, 0.0), ("y", 1, 0.5),
    ]  # fmt: skip
    assert [row["apart"] for row in table(kept)] == [None, None, "not comparable"]


def test_an_answer_that_is_written_again_is_not_remembered(tmp_path):
    """Its drafter would copy the very answer that it is about to write."""
    path, labels = tmp_path / "rows.jsonl", ("none", "memory")
    work, writer, _ = bench(labels, path=path, jobs=JOBS[:2])
    work.run(1)
    writer.other({"row": "machine", "other_programs": 9.0})
    writer.close()
    work, writer, arms = bench(labels, path=path, jobs=JOBS[:2])
    writer.records.header |= FACTS
    remembered = []
    arms[1].remember = remembered.append
    work.run(1)
    writer.close()
    assert remembered == []
    assert [a.sitting for a in writer.records.answers if a.round >= 0] == [0] * 4 + [1] * 4
