"""draftwood tune: what it writes, what it says, what it refuses; its file works at the other verbs."""

from __future__ import annotations

import json
import math

import pytest

from draftwood.errors import UsageError
from draftwood.measure import tune as tuning
from draftwood.measure.prompt_files import Job
from draftwood.measure.tune import tune
from draftwood.planning import learned
from draftwood.planning.learned_file import read_tuned
from draftwood.testing import ToyTarget

SHORT = ("--max-new-tokens", "24")
TEXT = "the cat sat on the mat, the cat sat on the mat, the cat"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text(f"{TEXT}\n\n{TEXT[::-1]}\n\none more\n")
    return str(path)


@pytest.fixture
def tuned(draftwood, tiny, prompts, tmp_path):
    path = tmp_path / "new" / "tuned.json"
    assert draftwood("tune", "-m", tiny, "--prompts", prompts, *SHORT, "-o", str(path)).code == 0
    return path


def test_it_says_what_it_learnt_and_where_it_put_it(draftwood, tiny, prompts, tmp_path):
    path = tmp_path / "tuned.json"
    ran = draftwood("tune", "-m", tiny, "--prompts", prompts, *SHORT, "-o", str(path))
    assert ran.code == 0
    assert "prompts: 3, 69 tokens" in ran.out
    assert "times plain decoding (prompts written both ways: 3)" in ran.out
    assert "tokens per pass" in ran.out
    assert "ngram" in ran.out
    assert ran.err.endswith(f"written: {path}\nuse it: --planner goodput:tuned={path}\n")
    found = read_tuned(path)
    assert found.beliefs
    assert found.curve is not None
    assert found.setting["dtype"] == "float32"


@pytest.fixture
def busy(monkeypatch):
    """Costs of a machine on which they are never sure, as one beside other work, are shown all the same."""
    monkeypatch.setattr(learned, "_KNOWN", math.inf)


@pytest.mark.usefixtures("busy")
def test_as_json(draftwood, tiny, prompts, cache):
    ran = draftwood("tune", "-m", tiny, "--prompts", prompts, *SHORT, "--limit", "2", "--json")
    found = json.loads(ran.out)
    assert (found["prompts"], found["interrupted"], found["speedup_prompts"]) == (2, False, 2)
    assert found["passes"][0]["n"] == 1
    assert found["passes"][0]["profiled_s"] is None
    assert found["passes"][0]["learnt_s"] > 0
    (source, *_) = found["sources"]
    assert source["name"] == "ngram"
    assert 0 <= source["right"] <= 1
    assert found["file"].startswith(str(cache / "tuned"))
    assert read_tuned(found["file"]).beliefs


def test_the_usual_place_tells_packed_weights_from_others(draftwood, tiny, prompts):
    given = ("tune", "-m", tiny, "--prompts", prompts, *SHORT, "--limit", "1", "--json")
    packed, unpacked = (json.loads(draftwood(*given, *more).out)["file"] for more in ((), ("--no-pack",)))
    assert unpacked == packed.removesuffix(".json") + "-unpacked.json"


@pytest.mark.parametrize(("name", "said"), [("file", "cannot be written"), ("a+b", "choose a name without these")])
def test_a_usual_place_that_cannot_be_used_is_told_before_the_writing(
    draftwood, tiny, prompts, tmp_path, monkeypatch, name, said
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path / name))
    monkeypatch.setattr(tuning, "tune", None)
    ran = draftwood("tune", "-m", tiny, "--prompts", prompts, *SHORT)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_tasks_bring_their_own_temperature(draftwood, tiny):
    ran = draftwood("tune", "-m", tiny, "--tasks", "chat@0.7", "--limit", "1", *SHORT, "--json")
    assert {source["greedy"] for source in json.loads(ran.out)["sources"]} == {False}


@pytest.mark.parametrize("planner", ["goodput", "fixed:8"])
def test_its_file_changes_no_text(draftwood, tiny, tuned, planner):
    given = ("generate", TEXT, "-m", tiny, *SHORT)
    plain = draftwood(*given, "--drafters", "none")
    begun = draftwood(*given, "--planner", f"{planner}:tuned={tuned}")
    assert (begun.code, begun.out) == (0, plain.out)


def test_bench_and_drift_take_its_file(draftwood, tiny, tuned, prompts):
    planner = ("--planner", f"goodput:tuned={tuned}")
    ran = draftwood("bench", "-m", tiny, "--prompts", prompts, *SHORT, "--rounds", "1", *planner, "--json")
    assert ran.code == 0
    assert {row["drafter"] for row in json.loads(ran.out)["rows"]} == {"none", "default"}
    assert draftwood("drift", TEXT, "-m", tiny, *SHORT, *planner).code == 0


def test_it_can_go_on_with_its_own_file(draftwood, tiny, tuned, prompts):
    before = read_tuned(tuned)
    again = ("--planner", f"goodput:tuned={tuned}", "-o", str(tuned))
    assert draftwood("tune", "-m", tiny, "--prompts", prompts, *SHORT, *again).code == 0
    after = read_tuned(tuned)
    labels = [sum(total for *_, total in found.beliefs[0]["labels"]) for found in (before, after)]
    assert labels[1] > labels[0]


def test_an_interrupt_keeps_what_was_learnt(draftwood, tiny, prompts, interrupt, tmp_path):
    path = tmp_path / "tuned.json"
    interrupt(90)
    ran = draftwood(
        "tune", "-m", tiny, "--prompts", prompts, *SHORT, "--drafters", "suffix", "-o", str(path), "--json"
    )
    assert (ran.code, json.loads(ran.out)["interrupted"]) == (130, True)
    assert read_tuned(path).beliefs


def test_an_interrupt_before_the_first_answer_writes_nothing(draftwood, tiny, prompts, interrupt, tmp_path):
    interrupt(3)
    ran = draftwood("tune", "-m", tiny, "--prompts", prompts, *SHORT, "-o", str(tmp_path / "tuned.json"))
    assert (ran.code, ran.out) == (130, "")
    assert "nothing was learnt" in ran.err
    assert not (tmp_path / "tuned.json").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "nothing to learn from: give --prompts FILE"),
        (("--prompts", "nowhere.txt"), "nowhere.txt cannot be read"),
        (("--prompts", "empty.txt"), "holds no prompt"),
        (("--prompts", "p.txt", "--tasks", "chat"), "give one of them"),
        (("--prompts", "p.txt", "-o", "."), "is a folder"),
        (("--prompts", "p.txt", "-o", "p.txt/below"), "cannot be written"),
        (("--prompts", "p.txt", "-o", "a+b"), "choose a name without these"),
        (("--prompts", "p.txt", "--planner", "gooput"), "did you mean 'goodput'"),
        (("--prompts", "p.txt", "--planner", "goodput:tuned=nowhere"), "tuned file"),
        (("--prompts", "p.txt", "--drafters", "sufix"), "did you mean 'suffix'"),
        (("--prompts", "p.txt", "--temperature", "-1"), "temperature"),
        (("--tasks", "chat", "--max-new-tokens", "0"), "max-new-tokens"),
    ],
)
def test_a_mistake_is_told_before_a_model_is_loaded(draftwood, monkeypatch, tmp_path, given, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.txt").write_text("a prompt")
    (tmp_path / "empty.txt").write_text("\n")
    ran = draftwood("tune", "-m", "no/such/model", *given)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "no/such/model" not in ran.err


@pytest.mark.parametrize("text", ["", "{", "no json"])
def test_a_bad_file_at_another_verb_is_one_line(draftwood, tmp_path, text):
    (tmp_path / "t").write_text(text)
    ran = draftwood("generate", "x", "-m", "no/such/model", "--planner", f"goodput:tuned={tmp_path / 't'}")
    assert (ran.code, ran.out) == (1, "")
    assert "is no file of draftwood tune" in ran.err


@pytest.mark.usefixtures("busy")
def test_a_target_of_somebody_elses_can_be_tuned():
    found = tune(ToyTarget(), [Job("t", str(n), [1, 2, 3, n]) for n in range(6)], max_new_tokens=20)
    assert (found.prompts, found.both, found.tokens) == (6, 4, 6 * 19)
    assert found.learned.setting is None
    assert found.learned.corrected() is not None
    assert found.speedup > 0


def test_plain_decoding_comes_first_at_every_other_prompt_that_is_written_both_ways(monkeypatch):
    order = []

    def written(_setup, drafters, request, _planner):
        order.append((request.prompt[0], bool(drafters)))
        return 1, 1.0

    monkeypatch.setattr(tuning, "_written", written)
    tune(ToyTarget(), [Job("t", str(n), [n, 1]) for n in range(8)], max_new_tokens=2)
    assert order[2:] == [
        (0, True), (0, False), (1, True), (2, False), (2, True), (3, True),
        (4, True), (4, False), (5, True), (6, False), (6, True), (7, True),
    ]  # fmt: skip


def test_a_prompt_that_cannot_be_written_is_told_before_the_first():
    seen = []
    with pytest.raises(UsageError, match="t empty"):
        tune(ToyTarget(), [Job("t", "1", [1, 2]), Job("t", "empty", [])], on_prompt=lambda n, _: seen.append(n))
    assert seen == []
