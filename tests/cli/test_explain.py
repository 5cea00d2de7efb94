"""``draftwood explain``: rows and a live answer, for people and as JSON, and its errors."""

import re

import pytest

from draftwood.measure.records.records import Answer, header
from draftwood.measure.records.writer import RecordsWriter
from draftwood.step import SourceStep, Step

PROMPT = "abcabcabcabc"
ESCAPE = "\x1b["


@pytest.fixture(scope="module")
def rows(tiny, tmp_path_factory):
    """Two answers as generate keeps them."""
    from draftwood.cli.main import run

    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    for planner in ("goodput", "fixed:4"):
        flags = ["--raw", "--model", tiny, "--max-new-tokens", "30", "--planner", planner, "--json"]
        assert run(["generate", PROMPT, *flags, "-o", str(path)]) == 0
    return str(path)


def test_the_summary_comes_first_and_arms_are_told_apart(draftwood, rows):
    ran = draftwood("explain", rows)
    assert ran.err == ""
    first, *rest = ran.out.splitlines()
    assert first == "default, planner goodput: 1 answer"
    assert rest[0].startswith("- 29 tokens in ")
    assert "default, planner fixed:4: 1 answer" in rest
    assert rest[-1] == "To see the steps of one: --answer N"
    assert ESCAPE not in ran.out


def test_one_answer_is_shown_step_by_step(draftwood, rows):
    ran = draftwood("explain", rows, "--answer", "1")
    assert ran.err == ""
    assert "goodput" not in ran.out
    assert re.search(r"^ +1 ", ran.out, re.MULTILINE)
    assert "guesses" in ran.out


def test_one_step_is_shown_with_alternatives_and_tree(draftwood, rows):
    document = draftwood("explain", rows, "--answer", "0", "--json").document
    drafted = next(step["step"] for step in document["steps"] if step["drafted"])
    ran = draftwood("explain", rows, "--answer", "0", "--step", drafted)
    assert ran.err == ""
    assert ran.out.startswith(f"Step {drafted}, after ")
    for said in (" guess", "tokens/s", "chosen", "the guesses that were checked", "└── "):
        assert said in ran.out


def test_json_is_one_document(draftwood, rows):
    whole = draftwood("explain", rows, "--json").document
    assert [arm["planner"] for arm in whole["arms"]] == ["goodput", "fixed:4"]
    assert (whole["answer"], whole["steps"]) == (None, None)
    one = draftwood("explain", rows, "--answer", "1", "--json").document
    assert one["answer"] == 1
    assert sum(len(step["emitted"]) for step in one["steps"]) == 29
    assert [step["step"] for step in one["steps"]] == [*range(1, 1 + len(one["steps"]))]
    step = draftwood("explain", rows, "--answer", "0", "--step", "1", "--json").document
    assert step["step"] == 1
    assert step["plan"]["planner"] == "goodput"
    assert {"alternatives", "sources", "policies", "tree", "ms_of", "why"} <= step.keys()


def test_a_live_answer_is_written_and_explained(draftwood, tiny):
    flags = ["--model", tiny, "--max-new-tokens", "30", "--temperature", "0"]
    ran = draftwood("explain", "--live", *flags, PROMPT)
    plain = draftwood("generate", PROMPT, *flags).out
    assert ran.out.startswith(plain + "\n" + "default, planner goodput: 1 answer\n")
    assert "why" in ran.out
    found = draftwood("explain", "--live", PROMPT, *flags, "--json").document
    assert sum(len(step["emitted"]) for step in found["steps"]) == 29
    piped = draftwood("explain", "--live", "-", *flags, "--json", "--step", "1", stdin=PROMPT.encode())
    assert piped.document["step"] == 1


def test_a_terminal_gets_colours_unless_it_wants_none(draftwood, rows, monkeypatch):
    assert ESCAPE in draftwood("explain", rows, "--answer", "0", terminal=True).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert ESCAPE not in draftwood("explain", rows, "--answer", "0", terminal=True).out


def test_a_table_has_eighty_columns(draftwood, rows):
    out = draftwood("explain", rows, "--answer", "0").out.splitlines()
    head = next(i for i, line in enumerate(out) if line.split() == ["step", "text", "right", "ms", "ms", "why"])
    assert all(len(line) <= 80 for line in out[head:-1])


def test_an_answer_of_one_token_has_nothing_to_explain(draftwood, tiny):
    call = ("explain", "--live", PROMPT, "--model", tiny, "--max-new-tokens", "1")
    assert "nothing to explain" in draftwood(*call).out
    assert draftwood(*call, "--json").document["steps"] == []


def test_ctrl_c_explains_what_was_written(draftwood, tiny, interrupt):
    interrupt(6)
    ran = draftwood("explain", "--live", PROMPT, "--model", tiny, "--max-new-tokens", "200", "--json", code=130)
    assert 0 < len(ran.document["steps"]) <= 6


@pytest.mark.parametrize(("arguments", "said"), [
    (["ROWS", "--answer", "7"], "no drafted answer 7: its answers have numbers 0 to 1"),
    (["ROWS", "--step", "1"], "holds 2 answers: say with --answer which one's step 1"),
    (["ROWS", "--answer", "0", "--step", "99"], "there is no step 99"),
    (["ROWS", "--answer", "0", "--step", "0"], "--step"),
])  # fmt: skip
def test_wrong_use_is_one_line_and_exit_code_two(refused, rows, arguments, said):
    assert said in refused("explain", *[rows if word == "ROWS" else word for word in arguments])


def test_rows_of_earlier_versions_are_explained_as_far_as_their_counts_go(draftwood, tmp_path):
    own = SourceStep(1, proposed=5, kept=3, accepted=1)
    step = Step(0, 2, (4, 9), (0, -1), drafted=3, depth=3, accepted=1, by_source=(own,), score_s=0.02)
    writer = RecordsWriter(tmp_path / "rows.jsonl", header("bench", {}, {}))
    writer.answer(Answer(3, "chat", "one", "ngram", drafters=["ngram"], output_ids=[1, 4, 9], steps=[step]))
    writer.close()
    ran = draftwood("explain", tmp_path / "rows.jsonl")
    assert "The planner's reasons were recorded for no step; of the others only counts are known." in " ".join(
        ran.out.split()
    )
    assert "3 of 5 guesses checked" in ran.out
    one = draftwood("explain", tmp_path / "rows.jsonl", "--step", "1")
    assert one.out.startswith("Step 1, after 2 tokens: #4 #9")


def test_json_names_the_rule_of_answers_written_now_and_of_recorded_ones(draftwood, tiny, tmp_path):
    shared = ("--raw", "--model", tiny, "--max-new-tokens", "12", "--drafters", "ngram")
    flags, kept = ("--live", "abcabcabc", *shared, "--json"), str(tmp_path / "rows.jsonl")

    def said(*arguments):
        found = draftwood("explain", *arguments).document
        return found["rule"], found["lossy"]

    assert said(*flags) == ("exact", False)
    assert said(*flags, "--rule", "top-k:k=3") == ("top-k:k=3", True)
    assert said(*flags, "--rule", "top-k:k=3", "--step", "1") == ("top-k:k=3", True)
    for rule in ("exact", "top-k:k=3"):
        draftwood("generate", "abcabcabc", *shared, "--rule", rule, "-o", kept)
    assert said(kept, "--json") == (None, True)
    assert said(kept, "--answer", "0", "--json") == ("exact", False)
    assert said(kept, "--answer", "1", "--json") == ("top-k:k=3", True)
