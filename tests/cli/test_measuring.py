"""bench, simulate and generate -o as a stranger uses them, on a tiny random model."""

import json

import pytest

from draftwood.local.crowding import Others
from draftwood.measure.bench.arms import OurArm
from draftwood.measure.records.records import TRACED, read_records

SHORT = ("--max-new-tokens", "12", "--threads", "1")


@pytest.fixture(autouse=True)
def _no_times_are_doubted(monkeypatch):
    """The times of a busy machine do not decide how often something is run."""
    monkeypatch.setattr("draftwood.measure.bench.run.doubted", lambda *_: False)


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "mine.jsonl"
    rows = [
        {"task": "mine", "name": "a", "prompt": "one two one two one"},
        {"task": "mine", "name": "b", "messages": [{"role": "user", "content": "abc abc"}]},
        {"task": "warm", "prompt": "sampled", "temperature": 1.0},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# --- bench ---------------------------------------------------------------------------------------------------


def test_a_bench_is_one_json_document(draftwood, tiny, prompts, tmp_path):
    ran = draftwood("bench", "-m", tiny, "--prompts", prompts, "--drafters", "ngram,ngram+lookup", *SHORT,
                    "-o", tmp_path / "rows.jsonl", "--json")  # fmt: skip
    assert ran.err == ""
    found = ran.document
    assert {(r["task"], r["drafter"]) for r in found["rows"]} == {
        (task, arm) for task in ("mine", "warm") for arm in ("none", "ngram", "ngram+lookup")
    }
    for row in found["rows"]:
        assert row["identical"] is True
        assert row["speedup"] > 0
        assert row["rounds"] == 2
        assert {"tokens_per_second", "ttft", "tpot", "p95_itl", "accepted_per_cycle", "seconds"} <= set(row)
    assert found["difference"] == []
    assert found["interrupted"] is False
    assert found["header"]["provenance"]["command"]
    kept = read_records(tmp_path / "rows.jsonl")
    assert len(kept.answers) == 3 * 3 * 2 + 3 * 2  # drafted arms once more, with traces
    first = kept.answers[0]
    assert len(first.pieces) == len(first.output_ids)


def test_the_table_names_the_worst_first_and_says_what_it_means(draftwood, tiny, prompts):
    flags = ("--rounds", "1", "--peers", "transformers:lookup", "--temperature", "0")
    ran = draftwood("bench", "-m", tiny, "--prompts", prompts, *SHORT, *flags)
    assert "tokens per" in ran.out
    table = ran.out.splitlines()[:8]
    assert max(map(len, table[:6])) <= 80
    assert "geometric mean" in ran.out
    assert "NO" not in ran.out


def test_other_programs_are_counted_once_all_arms_have_ended_and_the_busiest_sitting_is_told(
    draftwood, tiny, prompts, tmp_path, monkeypatch
):
    closed = []
    monkeypatch.setattr(OurArm, "close", lambda _: closed.append("closed"))
    monkeypatch.setattr(Others, "cores", property(lambda _: 1 / len(closed) if closed else None))
    call = ("bench", "-m", tiny, "--prompts", prompts, "--limit", "1", *SHORT, "-o", tmp_path / "rows.jsonl")
    assert "took 0.5 of" in " ".join(draftwood(*call, "--rounds", "1").out.split())
    closed.append("again")
    assert draftwood(*call, "--rounds", "2", "--json").document["other_programs"] == 0.5
    kept = read_records(tmp_path / "rows.jsonl")
    assert [row["other_programs"] for row in kept.of_kind("machine")] == [0.5, 0.2]
    assert {a.other_programs for a in kept.answers if a.sitting == 0} == {0.5}  # those that did not know it


def test_a_bench_on_a_busy_machine_compares_nothing_and_the_next_run_measures_again(
    draftwood, tiny, prompts, tmp_path, monkeypatch
):
    call = ("bench", "-m", tiny, "--prompts", prompts, *SHORT, "-o", tmp_path / "rows.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(Others, "cores", 64.0)
        told = draftwood(*call).out
    assert told.count(" busy ") == 2 * 2
    assert "times" not in told
    assert "geometric mean" not in told
    assert "in no comparison, since other programs left too few cores: 18 of 18 answers" in told.replace("\n", " ")
    found = draftwood(*call, "--json").document  # three prompts of two arms: two rounds, and one more
    kept = read_records(tmp_path / "rows.jsonl").answers
    assert [sum(a.sitting == n for a in kept if a.round != TRACED) for n in (0, 1)] == [18, 12]
    assert all(row["speedup"] and row["beside"] and row["apart"] is None for row in found["rows"])


def test_a_sustained_bench_prints_its_trend(draftwood, tiny, prompts):
    told = draftwood("bench", "-m", tiny, "--prompts", prompts, "--sustain", "3", *SHORT).out
    assert "tokens/s in the first quarter" in told


# --- simulate ------------------------------------------------------------------------------------------------


def test_a_live_simulation_counts_replays_and_keeps_its_answers(draftwood, tiny, prompts, tmp_path):
    trace, flags = (
        tmp_path / "t.jsonl.zst",
        ("--planner", "fixed:1", "--planner", "fixed:8", "--drafters", "ngram,lookup", "--json"),
    )
    live = ("simulate", "--live", "-m", tiny, "--prompts", prompts, *SHORT, "--cost", "1=31,4=30,16=53")
    ran = draftwood(*live, *flags, "--trace", trace)
    assert ran.err == ""
    document = ran.document
    found = document["probe"]
    assert found["targets"] == 3 * 11
    assert found["proposals"] == sum(p["proposals"] for p in found["prompts"])
    assert found["proposal_rate"] == found["proposals"] / 33
    assert sum(row["proposals"] for row in found["per_n"]) == found["proposals"]
    assert [(r["task"], r["drafter"], r["planner"]) for r in document["rows"]][:4] == [
        ("mine", "ngram", "fixed:1"), ("mine", "lookup", "fixed:1"),
        ("mine", "ngram", "fixed:8"), ("mine", "lookup", "fixed:8"),
    ]  # fmt: skip
    assert all(row["ideal_speedup"] == row["generated"] / row["verifier_passes"] for row in document["rows"])
    assert document["totals"][0]["generated"] == 33
    again = draftwood("simulate", trace, "--cost", "1=31,4=30,16=53", "--tokenizer", tiny, *flags)
    assert again.err == ""
    same = ("task", "drafter", "planner", "generated", "verifier_passes")
    replayed = again.document["rows"]
    assert [[r[n] for n in same] for r in replayed] == [[r[n] for n in same] for r in document["rows"]]


def test_a_live_simulation_reads_token_ids_and_blocks_of_text(draftwood, tiny, tmp_path):
    file, live = tmp_path / "mine.txt", ("simulate", "--live", "-m", tiny, *SHORT)
    for text, code, said in (
        ("[5, 6, 7]\n\n8 9 8 9\n", 0, "accepted per"),
        ("five\n", 2, "line 1: no list of token ids"),
        ("5 9999999\n", 2, "outside the vocabulary"),
    ):
        file.write_text(text)
        ran = draftwood(*live, "--prompt-ids-file", file, code=code)
        assert said in ran.out + ran.err
        assert max(map(len, ran.out.splitlines()[:6]), default=0) <= 80
    file.write_text("first block\nof two lines\n\n\nsecond block\n")
    found = draftwood(*live, "--prompts", file, "--json").document["probe"]
    assert [p["name"] for p in found["prompts"]] == ["block 1", "block 2"]
    file.write_text("\n\n")
    assert "holds no prompt" in draftwood(*live, "--prompts", file, code=2).err


def test_simulate_takes_any_ids(draftwood, tmp_path):
    trace = tmp_path / "foreign.jsonl"
    trace.write_text('{"prompt_ids": [900000, 1], "output_ids": [1, 900000, 1, 900000, 1, 5]}\n')
    ran = draftwood("simulate", trace, "--planner", "fixed:2", "--planner", "fixed:4")
    assert "tokens per" in ran.out
    assert "default fixed:4" in ran.out
    trace.write_text(json.dumps({"prompt_ids": [1, 2, 3] * 9, "output_ids": [1, 2, 3] * 30}) + "\n")
    cheap = draftwood("simulate", trace, "--planner", "fixed:4", "--cost", "1=1000,2=200,8=100").out
    assert "?: above the tokens per pass, since by these costs a wider pass takes less time" in cheap.replace(
        "\n", " "
    )
    assert "noise" not in cheap


@pytest.mark.parametrize(("lines", "arguments", "code", "said"), [
    ("", (), 1, "holds no recorded answer"), ("{}\n", (), 1, "line 1: lacks prompt_ids and output_ids"),
    ('{"prompt": "a", "output": "b"}\n', (), 1, "name a model whose tokenizer reads it"),
    ('{"prompt_ids": [1], "output_ids": [2]}\n', ("--cost", "1=x"), 2, "1=x"),
    ('{"prompt_ids": [1], "output_ids": [2]}\n', ("--cost", "1=2", "--profile", "p"), 2, "give one of them"),
    ('{"prompt_ids": [1], "output_ids": [2]}\n', ("--profile", "nowhere"), 2, "nowhere cannot be read"),
])  # fmt: skip
def test_wrong_traces_and_calls_are_told(refused, tmp_path, lines, arguments, code, said):
    trace = tmp_path / "trace.jsonl"
    trace.write_text(lines)
    assert said in refused("simulate", trace, *arguments, code=code)


# --- generate ------------------------------------------------------------------------------------------------


def test_generate_keeps_its_answers(draftwood, tiny, tmp_path):
    path = tmp_path / "rows.jsonl"
    for number in range(2):
        given = ("-m", tiny, *SHORT, "--planner", "fixed:16", "-o", path, "--json")
        ran = draftwood("generate", "one two one two", *given)
        answers = read_records(tmp_path / "rows.jsonl").answers
        assert len(answers) == number + 1
    document = ran.document
    assert answers[-1].output_ids == document["ids"]
    assert "".join(answers[-1].pieces) == document["text"]
    assert any(step.trace and step.trace["tokens"] for step in answers[-1].steps)
    assert (answers[-1].limit, answers[-1].sampling) == (12, {"temperature": 0.7})


def test_texts_that_a_lossy_rule_changed_are_counted(draftwood, tiny, prompts, tmp_path):
    rows, page = tmp_path / "rows.jsonl", tmp_path / "page.html"
    flags = ("bench", "-m", tiny, "--prompts", prompts, *SHORT, "--rounds", "1", "--drafters", "ngram",
             "--planner", "fixed:8", "--rule", "top-k:k=99", "-o", rows)  # fmt: skip
    found = draftwood(*flags, "--json").document
    assert found["difference"] == []
    for row in found["rows"]:
        assert row["rule"] == ("top-k:k=99" if row["drafter"] == "ngram" else None)
    assert any(row["changed"] for row in found["rows"])
    shown = draftwood(*flags)  # all answers are in the file
    assert "% changed" in shown.out
    assert "lossy: by the rule top-k:k=99" in shown.out.replace("\n", " ")
    assert "NO" not in shown.out
    assert {a.rule for a in read_records(rows).answers} == {None, "top-k:k=99"}
    draftwood("report", rows, "-o", page)
    assert "by the lossy rule top-k:k=99" in page.read_text()
