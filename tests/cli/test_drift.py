"""``draftwood drift`` on a tiny random model."""

import pytest

from draftwood.cli.drift import _show_rules
from draftwood.measure.drift import RuleDrift

PROMPT = "abcabcabcabc"


def flags(model, tokens=16):
    return ["--model", model, "--max-new-tokens", tokens]


def test_drafts_change_nothing(draftwood, tiny):
    ran = draftwood("drift", PROMPT, *flags(tiny), "--raw")
    assert ran.err == ""
    for said in ("drafted decoding (default, goodput), and plain decoding", "100.0 %", "by no more than rounding"):
        assert said in " ".join(ran.out.split())


@pytest.mark.parametrize("sampling", [[], ["--temperature", "1", "--seed", "3"]])
def test_json_is_one_document(draftwood, tiny, sampling):
    ran = draftwood("drift", PROMPT, *flags(tiny), "--raw", "--json", *sampling)
    found = ran.document
    assert ran.err == ""
    assert found["total"]["text_identical"] is True
    assert found["total"]["kl_max"] < 1e-6
    assert found["total"]["tokens"] == len(found["prompts"][0]["kl"]) == 16
    assert (found["dtype"], found["drafters"]) == ("float32", "default")


def test_tasks_and_files(draftwood, tiny, tmp_path):
    ran = draftwood("drift", "--tasks", "chat,grammar", "--limit", "1", *flags(tiny, 4))
    assert [line.split()[0] for line in ran.out.splitlines() if "100.0 %" in line] == ["chat", "grammar", "all"]
    file = tmp_path / "mine.txt"
    file.write_text("abc abc\n\nxyz xyz\n")
    found = draftwood("drift", "--prompts", file, *flags(tiny, 4), "--json").document
    assert [one["name"] for one in found["prompts"]] == ["block 1", "block 2"]
    assert found["total"]["tokens"] == 8


def test_ctrl_c_keeps_what_was_compared(draftwood, tiny, interrupt):
    interrupt(9)
    found = draftwood("drift", PROMPT, *flags(tiny, 40), "--raw", "--json", code=130).document
    assert 0 < found["total"]["tokens"] < 40


def test_a_rule_without_texts_has_no_change(capsys):
    named = {"model": "m", "dtype": "float32", "drafters": "d", "planner": "p"}
    _show_rules(named, [RuleDrift("exact", lossy=False).figures()], 1)
    assert "exact" in capsys.readouterr().out


def test_rules_are_held_against_plain_decoding(draftwood, tiny):
    asked = "top-k:k=40", "threshold:tau=0", "threshold:tau=0.3", "threshold:tau=0.0"
    rules = [f"--rule={rule}" for rule in asked]
    call = ("drift", PROMPT, *flags(tiny), "--raw", *rules, "--drafters", "ngram")
    ran = draftwood(*call)
    assert ran.err == ""
    assert "lossy: top-k:k=40, threshold:tau=0.3. Their texts may differ" in ran.out
    assert max(map(len, ran.out.splitlines()[1:6])) <= 80
    found = draftwood(*call, "--json").document
    assert [one["rule"] for one in found["rules"]] == ["top-k:k=40", "threshold:tau=0.0", "threshold:tau=0.3"]
    assert [one["lossy"] for one in found["rules"]] == [True, False, True]
    assert found["rules"][1]["ids"] == [found["plain_ids"][0]]
    assert found["rules"][1]["changed"] == 0
