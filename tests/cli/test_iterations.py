"""``draftwood generate --show-iterations``: what it prints on a tiny model, and what it makes of traces."""

import re

import pytest
from rich.style import Style

from draftwood.cli.iterations import _line
from draftwood.measure.report.reading import explainable
from draftwood.step import Step

PROMPT = "abcabcabcabc"
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
LINE = re.compile(r"^ +(\d+|-) +(\d+) +(\d+)  (?:(\[.+?\])(?: |$))?(?:(?!→)(.+?)(?: |$))?(?:→ (.+))?$")


def flags(model, *more):
    return ["--raw", "--model", model, "--max-new-tokens", "24", "--show-iterations", *more]


def table(text):
    """Each line of the table: number, new, fixed, accepted guesses, other guesses, the model's own."""
    lines = ESCAPE.sub("", text).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("pass "))
    rows = []
    for line in lines[start + 1 :]:
        if (found := LINE.match(line)) is None:
            return rows, line
        rows.append(found.groups())
    return rows, ""


@pytest.mark.parametrize("sampling", [[], ["--temperature", "1", "--seed", "4"]])
@pytest.mark.parametrize("spec", ["jacobi:block=6", "jacobi:start=previous"])
def test_every_pass_and_the_bound(draftwood, tiny, sampling, spec):
    ran = draftwood("generate", PROMPT, *flags(tiny, "--drafters", spec, *sampling))
    plain = draftwood("generate", PROMPT, "--raw", "--model", tiny, "--max-new-tokens", "24", *sampling)
    assert ran.out == plain.out
    assert "\x1b" not in ran.err
    rows, last = table(ran.err)
    assert [row[0] for row in rows] == ["-", *map(str, range(1, len(rows)))]
    new, fixed = [int(row[1]) for row in rows], [int(row[2]) for row in rows]
    assert fixed == [sum(new[: i + 1]) for i in range(len(new))]
    assert fixed[-1] == 24
    passes = len(rows) - 1
    assert passes <= 23, "never more passes than tokens"
    assert last.startswith(f"{passes} passes, 23 tokens, {23 / passes:.2f} tokens per pass; there are never more")
    assert [row[3] is not None for row in rows] == [count > 1 for count in new]
    assert "written by the model" in ran.err


def test_the_planner_scores_the_whole_block_unless_another_one_is_named(draftwood, tiny, tmp_path):
    def nodes(number, *more):
        rows = tmp_path / f"{number}.jsonl"
        draftwood("generate", PROMPT, *flags(tiny, "--drafters", "jacobi:block=5", "-o", rows, *more))
        (answer,) = explainable(rows)
        return answer.planner, max(step.drafted for step in answer.steps)

    assert nodes(1) == ("fixed:5", 5)
    assert nodes(2, "--planner", "fixed:2") == ("fixed:2", 2)


def test_a_terminal_gets_colours_and_one_token_needs_no_pass(draftwood, tiny):
    ran = draftwood("generate", PROMPT, *flags(tiny, "--drafters", "ngram+jacobi:block=4"), terminal=True)
    assert ("\x1b[1m→" in ran.out, "tokens per pass" in ran.err) == (True, False)
    rows, last = table(ran.out)
    assert (int(rows[-1][2]), "tokens per pass" in last) == (24, True)
    ran = draftwood("generate", PROMPT, *flags(tiny, "--drafters", "jacobi", "--max-new-tokens", "1"))
    assert "no pass was made" in ran.err


def test_an_interrupt_keeps_what_there_is(draftwood, tiny, interrupt):
    interrupt(4)
    assert "3 passes" in draftwood("generate", PROMPT, *flags(tiny, "--drafters", "jacobi"), code=130).err


def test_what_a_step_says():
    def said(tokens, parents, source, path, emitted):
        trace = {"tokens": tokens, "parents": parents, "source": source, "path": path}
        trace |= {name: [0] * len(tokens) for name in ("evidence", "belief")} | {
            "lookahead": [False] * len(tokens)
        }
        return _line(Step(0, 9, emitted=tuple(emitted), trace=trace), {0}, str, Style()).plain

    assert said([5, 6, 7], [-1, 0, 1], [0, 0, 0], [0, 1], [5, 6, 8]) == "[5│6] 7 → 8"
    assert said([5, 6, 7], [-1, 0, 1], [0, 0, 0], [], [8]) == "5│6│7 → 8"
    assert said([5, 6], [-1, 0], [0, 0], [0, 1], [5, 6]) == "[5│6]", "the text ended there"
    # The first guess is credited to the other drafter as well as the branch that was accepted.
    assert said([5, 6, 9, 7], [-1, 0, 0, 2], [1, 1, 0, 0], [0, 1], [5, 6, 8]) == "[5] 9│7 → 6│8"
    assert said([5, 6], [-1, -1], [1, 1], [1], [6, 8]) == said([], [], [], [], [6, 8]) == "→ 6│8"
