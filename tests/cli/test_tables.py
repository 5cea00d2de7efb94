"""What stands below an answer, and tables, in terminals of 80 columns."""

import io
import sys

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from draftwood.api.generation import Generation
from draftwood.cli import bench
from draftwood.cli.answering import figures, loop_note, print_flow, print_summary, shares
from draftwood.cli.explain_tables import show_head
from draftwood.cli.screen import broken, console, say, show_facts, show_table
from draftwood.measure.records.records import Answer, Records
from draftwood.measure.wording import ratio
from draftwood.step import Step
from tests.cli.conftest import Terminal


def generation(*, drafted):
    steps = [Step(i, 10, (1,), drafted=drafted, accepted=0, score_s=0.001) for i in range(1000)]
    return Generation(ids=list(range(1001)), sources=["model"] * 1001, steps=steps, finish_reason="length")


def test_nothing_is_said_to_be_drafted_by_who_drafted_nothing():
    def said(sources, drafters):
        return [share.plain for share in shares(sources, drafters, colour=False)]

    mixed = said(["model", "model", "lookup"], ["ngram", "lookup"])
    assert mixed == ["written by the model 67 %", "drafted by lookup 33 %"]
    assert said(["model"], ["ngram"]) == ["written by the model 100 %"]
    assert "nothing drafted" in figures(generation(drafted=0))
    assert "acceptance rate 0 %" in figures(generation(drafted=3))


@pytest.mark.parametrize("width", [30, 60, 200])
def test_the_summary_breaks_between_figures_only(width):
    found, out = generation(drafted=3), io.StringIO()
    to = Console(file=out, width=width, color_system=None, soft_wrap=True, highlight=False)
    print_summary(to, found, ["ngram"])
    lines = out.getvalue().splitlines()[1:]
    assert all(len(line) <= width for line in lines)
    assert [part for line in lines for part in line.split(" · ")] == figures(found)


def test_loops_are_pointed_out():
    assert loop_note(list(range(20))) == ""
    assert loop_note([1, 2, *[3, 4] * 6]).startswith("the last 10 tokens only repeat themselves")


ROW = {
    "task": "code-edit", "drafter": "none", "engine": "draftwood", "identical": True,
    "mean_acceptance_length": 2.25, "mean_acceptance_length_unlooped": 2.25, "speedup_unlooped": 2.21,
    "speedup_unlooped_interval": (1.23, 3.45), "tokens_per_second": 123.4, "rule": None, "changed": None,
    "most_speedup": 2.25, "draft_weight_bytes": None, "draft_cache_bytes": None, "looped_tokens": 0, "failed": 0,
    "apart": None, "beside": True,
}  # fmt: skip


@pytest.mark.parametrize("arm", ["default", "ngram+lookup:length=8+prediction+draft-model:model=smollm2"])
def test_a_table_has_eighty_columns_and_cuts_nothing(arm):
    out = io.StringIO()
    rows = [ROW, ROW | {"drafter": arm, "task": "completion"}]
    show_table(Console(file=out, width=200), bench.columns(), rows, ("task", "arm"))
    text = out.getvalue()
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert text.split().count("2.21") == 2
    assert text.splitlines()[1].split() == ["task", "arm", "speedup", "pass", "second", "text"]


def test_what_cannot_be_is_marked_and_explained_below(capsys, monkeypatch):
    odd = ROW | {"speedup_unlooped": 3.4, "drafter": "ngram", "prompts": 2}
    machine = "other programs took 1.3 of 2 cores meanwhile"
    for row, marks in ((odd, ("?", "(")), (ROW | {"speedup_unlooped_interval": None, "prompts": 1}, ())):
        bench._show([row], Records({}), machine)
        lines = capsys.readouterr().out.splitlines()
        told = " ".join(lines[3:])
        assert max(map(len, lines)) <= 80
        notes = {"?: above what its tokens per pass allow": "?", "95 % interval": "("}
        assert [note in told for note in notes] == [mark in marks for mark in notes.values()]
        assert machine in told
        assert "--json has more figures." in told
    apart = odd | {"speedup_unlooped": None, "speedup_unlooped_interval": None, "apart": "busy"}
    bench._show(
        [odd, apart | {"task": "chat"}, ROW | {"task": "chat", "beside": False, "prompts": 2}], Records({}), ""
    )
    told = " ".join(capsys.readouterr().out.split())
    assert ("busy 2.25 123.4 yes" in told, "2.21 (1.23 to 3.45) 2.25 123.4~ yes" in told) == (True, True)
    assert "; busy: other programs left it or plain decoding too few cores" in told
    assert "; ~: of other prompts or another moment than other arms" in told
    assert "ngram: geometric mean of 1 task 3.40?, worst task 3.40?" in told
    low = ROW | {"drafter": "ngram", "prompts": 2, "speedup_unlooped_interval": None, "speedup_unlooped": 0.5}
    bench._show([low, odd | {"task": "chat"}, low | {"drafter": "x"}], Records({}), "")
    told = capsys.readouterr().out
    assert "ngram: geometric mean 1.30?, worst task 0.50\n" in told  # each marked where it is doubted
    assert "scipy" not in told  # it is installed: one prompt alone was timed on both sides
    monkeypatch.setattr(bench, "find_spec", lambda _: None)
    bench._show([low], Records({}), "")
    assert "Intervals need scipy" in capsys.readouterr().out
    assert [ratio(2.1, 2.0), ratio(2.11, 2.0), ratio(None, 1.0), ratio(1.0, None)] == ["2.10", "2.11?", "", "1.00"]


@pytest.mark.parametrize(("width", "fit"), [(80, 4), (60, 2), (36, 1), (5, 0)])
def test_columns_that_do_not_fit_are_left_out(width, fit):
    out, cell = io.StringIO(), "27.2 (23.8-28.0)"
    columns = {"arm": lambda _: "lookup+memory"} | dict.fromkeys("abcdef", lambda _: cell)
    show_table(Console(file=out, width=width), columns, [1], ("arm",))
    assert out.getvalue().count(cell) == fit


def test_prose_is_broken_by_cells_and_between_parts_without_a_dot_at_the_end():
    assert broken("one two/three-four five", 9) == "one\ntwo/three-four\nfive"
    assert broken("\n  数据 数据 e\u0301e\u0301 ab \n\n", 9, 1) == "\n  数据\n 数据 e\u0301e\u0301\n ab\n\n"
    for separator, end in ((" · ", ""), (", ", ",")):
        print_flow(Console(file=(out := io.StringIO()), width=12), ["数据数", "ab", "数据数数"], separator)
        assert out.getvalue() == f"数据数{separator}ab{end}\n数据数数\n"


def test_marks_are_those_of_numbers_and_wide_signs_count_twice():
    out, columns = io.StringIO(), {"arm": str, "speedup": lambda _: "2.25"}
    to, marks = Console(file=out, width=30), {"?": "no", "2": "two"}
    said = show_table(to, columns, ["what?", "数/据/" * 6], ("arm",), marks)
    assert said == "; two"
    assert max(map(cell_len, out.getvalue().splitlines())) <= 30
    assert "…" not in out.getvalue()


def test_only_prose_is_broken(capsys, monkeypatch):
    words = " ".join(["word"] * 40)
    say(words)
    show_facts({"file": f"/{words}", "size": 7})
    to = console()
    to.print(Text(words))
    to.print(words)
    said, fact, size, text, *prose = capsys.readouterr().out.splitlines()
    assert (said, fact, size, text, len(prose)) == (words, f"file  /{words}", "size  7", words, 3)
    step = {"step": 1, "context": 2, "text": words, "emitted": [], "ms_of": {}, "ms": 1.0, "why": "short"}
    show_head(to, step)  # what a model wrote
    assert words in capsys.readouterr().out
    monkeypatch.setattr("sys.stderr", err := Terminal())
    say(words, file=sys.stderr)
    assert err.getvalue() == f"{words}\n"
    monkeypatch.setattr("sys.stdout", out := Terminal())
    show_facts({"file": words})
    assert [line[:6] for line in out.getvalue().splitlines()] == ["file  ", *["      "] * 2]


PARTED = {"row": "difference", "answer": 1, "against": 0, "index": 2, "margin": 0.43, "near_tie": True}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"rounding": 2.5, "cause": "the rounding of activations to eight bits"},
            "(a near-tie: the rounding of activations to eight bits moves scores by up to 2.5)",
        ),
        ({"rounding": 0.1, "cause": "rounding", "near_tie": False}, "(NOT a near-tie: please report it)"),
    ],
)
def test_a_text_that_differs_is_explained_by_what_the_engine_rounds(more, said):
    kept = Records({}, answers=[Answer(0, "chat", "one", "none"), Answer(1, "chat", "one", "ngram")])
    kept.others.append(PARTED | more)
    (note,) = bench._notes([], kept)
    assert note == f"ngram differs on chat one from token 2, where the two best scores differ by 4.3e-01 {said}"
