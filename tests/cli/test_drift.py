"""``draftwood drift`` on a tiny random model."""

from __future__ import annotations

import json

import pytest

PROMPT = "abcabcabcabc"


def flags(model, tokens=16):
    return ["--model", model, "--max-new-tokens", str(tokens)]


def raw(model, tokens=16):
    return [*flags(model, tokens), "--raw"]


def test_drafts_change_nothing(draftwood, tiny):
    ran = draftwood("drift", PROMPT, *raw(tiny))
    assert (ran.code, ran.err) == (0, "")
    assert "drafted decoding (default, goodput), and plain decoding reading" in ran.out
    assert "100.0 %" in ran.out
    assert "differ by no more than rounding" in ran.out


@pytest.mark.parametrize("sampling", [[], ["--temperature", "1", "--seed", "3"]])
def test_json_is_one_document(draftwood, tiny, sampling):
    ran = draftwood("drift", PROMPT, *raw(tiny), "--json", *sampling)
    found = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert found["total"]["text_identical"] is True
    assert found["total"]["kl_max"] < 1e-6
    assert found["total"]["tokens"] == len(found["prompts"][0]["kl"]) == 16
    assert (found["dtype"], found["against_dtype"], found["drafters"]) == ("float32", None, "default")


def test_another_number_format(draftwood, tiny):
    found = json.loads(draftwood("drift", PROMPT, *raw(tiny), "--against-dtype", "bfloat16", "--json").out)
    assert found["total"]["kl_max"] > 1e-6
    assert (found["against_dtype"], found["drafters"]) == ("bfloat16", None)
    written = json.loads(draftwood("generate", PROMPT, *raw(tiny), "--drafters", "none", "--json").out)
    assert found["prompts"][0]["ids"] == written["ids"], "along the text of plain decoding"


def test_tasks_and_files(draftwood, tiny, tmp_path):
    ran = draftwood("drift", "--tasks", "chat,grammar", "--limit", "1", *flags(tiny, 4))
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()[3:6]] == ["chat", "grammar", "all"]
    file = tmp_path / "mine.txt"
    file.write_text("abc abc\n\nxyz xyz\n")
    found = json.loads(draftwood("drift", "--prompts", str(file), *flags(tiny, 4), "--json").out)
    assert [one["name"] for one in found["prompts"]] == ["block 1", "block 2"]
    assert found["total"]["tokens"] == 8


def test_ctrl_c_keeps_what_was_compared(draftwood, tiny, interrupt):
    interrupt(9)
    ran = draftwood("drift", PROMPT, *raw(tiny, 40), "--json")
    assert ran.code == 130
    assert 0 < json.loads(ran.out)["total"]["tokens"] < 40


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x", "--tasks", "chat"], "exclude each other"),
        (["--tasks", "chatt"], "did you mean 'chat'"),
        (["--prompts", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        (["x", "--drafters", "sufix"], "did you mean 'suffix'"),
        (["x", "--planner", "fixd:3"], "did you mean 'fixed'"),
        (["x", "--dtype", "float33"], "did you mean 'float32'"),
        (["x", "--against-dtype", "float33"], "did you mean 'float32'"),
        (["x", "--temperature", "-1"], "temperature must"),
    ],
)
def test_wrong_words_are_refused_before_a_model_is_loaded(unloaded, arguments, said):
    assert said in unloaded("drift", *arguments)


def test_rules_are_held_against_plain_decoding(draftwood, tiny):
    rules = ["--tau", "0,0.3", "--rule", "top-k:k=40", "--rule", "threshold:tau=0"]
    ran = draftwood("drift", PROMPT, *raw(tiny), *rules, "--drafters", "suffix")
    assert (ran.code, ran.err) == (0, "")
    assert "lossy: top-k:k=40, threshold:tau=0.3. Their texts may differ" in ran.out
    assert max(map(len, ran.out.splitlines()[1:6])) <= 80
    found = json.loads(draftwood("drift", PROMPT, *raw(tiny), *rules, "--drafters", "suffix", "--json").out)
    assert [one["rule"] for one in found["rules"]] == ["top-k:k=40", "threshold:tau=0.0", "threshold:tau=0.3"]
    assert [one["lossy"] for one in found["rules"]] == [True, False, True]
    assert found["rules"][1]["ids"] == [found["plain_ids"][0]]
    assert found["rules"][1]["changed"] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rule", "treshold"], "did you mean 'threshold'"),
        (["--tau", "0.1,2"], "tau must lie in"),
        (["--tau", "0.1", "--against-dtype", "bfloat16"], "leave one of them out"),
        (["--plot", "x.png"], "drift draws no pictures any more: --json"),
        (["--rule", "typical"], "the rule typical is no longer there: take top-k:k=2"),
        (["--rule", "ensemble:0.3"], "the rule ensemble is no longer there: take threshold:tau=0.15"),
        (["--rule", "top-k", "--drafters", "none"], "plain decoding"),
    ],
)
def test_wrong_rules_are_refused_before_a_model_is_loaded(unloaded, arguments, said):
    assert said in unloaded("drift", "x", *arguments)
