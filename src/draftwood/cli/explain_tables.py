"""Prints what ``draftwood explain`` found: sentences, steps, the tree of one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from draftwood.cli import screen
from draftwood.measure.records.records import Answer, Row
from draftwood.measure.records.timing import rates
from draftwood.measure.report.steps import stretches
from draftwood.measure.wording import count, number, percent

_TEXT = 16  # characters shown of what a step wrote


def show_arms(arms: Sequence[Row]) -> None:
    """Print for each arm the sentences that sum up its answers."""
    to = screen.console()
    for arm in arms:
        planner = f", planner {arm['planner']}" if arm["planner"] else ""
        to.print(f"{arm['drafters']}{planner}: {count(len(arm['answers']), 'answer')}", style="bold")
        for sentence in arm["words"]:
            to.print(f"- {sentence}")
        to.print()


def show_answers(answers: Sequence[Answer]) -> None:
    """Print a line per answer, and how to see more of one."""
    to, found = screen.console(), {answer.id: rates([answer]) for answer in answers}
    screen.show_table(
        to,
        {
            "answer": lambda a: str(a.id),
            "tokens": lambda a: str(found[a.id].tokens),
            "passes": lambda a: str(found[a.id].passes),
            "tokens per pass": lambda a: number(found[a.id].mean_acceptance_length),
            "guesses right": lambda a: percent(found[a.id].acceptance_rate),
            "prompt": lambda a: f"{a.task} {a.name}, {a.arm}" + (f", round {a.round + 1}" if a.round > 0 else ""),
        },
        answers,
        ("prompt",),
    )
    to.print("To see the steps of one: --answer N")


def show_steps(rows: Sequence[Row], answer: Answer) -> None:
    """Print a line per step."""
    to, texts = screen.console(), dict(zip((row["step"] for row in rows), _texts(answer), strict=True))
    screen.show_table(
        to,
        {
            "step": lambda r: str(r["step"]),
            "text": lambda r: texts[r["step"]],
            "guesses right": lambda r: f"{r['accepted']} of {r['drafted']}" if r["drafted"] else "",
            "expected ms": lambda r: number(r["expected_ms"], 1),
            "ms": lambda r: number(r["ms"], 1),
            "why": lambda r: r["why"],
        },
        rows,
        ("text", "why"),
    )
    to.print("To see all that is known of one step: --step K")


def _texts(answer: Answer) -> list[Text]:
    """Return what each step wrote, cut, in the colours of its drafters."""
    looks, found = screen.styles(answer.drafters), []
    _, *steps = stretches(answer)
    for step in steps:
        text = Text.assemble(*((screen.visible(piece), looks[name]) for piece, name in step))
        text.truncate(_TEXT, overflow="ellipsis")
        found.append(text)
    return found


def show_step(found: Row, answer: Answer, text: Callable[[int], str]) -> None:
    """Print all that is known of one step."""
    to = screen.console()
    show_head(to, found)
    to.print()
    for row in found["sources"]:
        seen = f", after {count(row['match_length'], 'token')} seen before" if row["match_length"] else ""
        said = f"{count(row['proposed'], 'guess', 'guesses')} in {number(row['draft_ms'])} ms{seen}"
        to.print(f"{row['source']}: {said}; {row['kept']} checked, {row['accepted']} right")
        for one in row.get("stages", ()):
            did = f"{count(one['passes'], 'pass', 'passes')}, {one['accepted']} of {one['proposed']} guesses right"
            to.print(f"{row['source']}, its model {one['name']}: {did}, {1000 * one['seconds']:.2f} ms")
    _show_alternatives(to, found)
    for policy in found["policies"]:
        held = "limited this step" if policy["held"] else "did not limit it"
        to.print(f"{policy['policy']} {held}{': ' if policy['why'] else ''}{policy['why']}")
    for note in found["notes"]:
        to.print(note)
    show_tree(to, found, answer, text)


def show_head(to: Console, found: Row) -> None:
    """Print what a step wrote, why it checked as many guesses, and its time."""
    written = screen.visible(found["text"] or " ".join(f"#{t}" for t in found["emitted"]))
    of = ", ".join(f"{name} {ms:.2f}" for name, ms in found["ms_of"].items() if ms)
    to.print(Text(f"Step {found['step']}, after {found['context']} tokens: {written}", "bold"))
    to.print(f"{found['why']}; {found['ms']:.1f} ms{f' ({of})' if of else ''}")


def show_tree(to: Console, found: Row, answer: Answer, text: Callable[[int], str]) -> None:
    """Print the tree of guesses that a step checked, if one is known."""
    if found["tree"]:
        to.print(_tree(found["tree"], answer, text), soft_wrap=False)
        to.print("✓: right; percentages: how likely the planner thought each guess; ?: looked at to learn only")


def _show_alternatives(to: Console, found: Row) -> None:
    rows, plan = found["alternatives"], found["plan"]
    if not rows:
        return
    best = max(row["tokens_per_second"] for row in rows) or 1.0
    chosen, most = plan.get("chosen"), plan.get("best")
    marked = {most: "best", chosen: "chosen, the best" if chosen == most else "chosen"}
    to.print("\nWhat the planner expected of so many guesses:")
    screen.show_table(
        to,
        {
            "guesses": lambda r: str(r["nodes"]),
            "expected tokens": lambda r: number(r["expected_tokens"]),
            "ms": lambda r: number(r["ms"], 1),
            "tokens/s": lambda r: number(r["tokens_per_second"], 1),
            "of the best": lambda r: percent(r["tokens_per_second"] / best),
            "": lambda r: marked.get(r["nodes"], ""),
        },
        rows,
        ("",),
    )
    to.print()


def _tree(tree: Row, answer: Answer, text: Callable[[int], str]) -> Tree:
    """Draw the tree of guesses: a run of only children is one line, branches hang below it."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(tree["parents"]):
        children.setdefault(parent, []).append(node)
    looks = dict(enumerate(screen.styles(answer.drafters)[name] for name in answer.drafters))

    def said(node: int) -> Text:
        mark = "✓" if node in tree["path"] else "?" if tree["lookahead"][node] else ""
        token = screen.edged(text(tree["tokens"][node])), looks.get(tree["source"][node], "")
        return Text.assemble(mark, token, (f" {percent(tree['belief'][node])}", "dim"))

    whole = Tree("the guesses that were checked")
    waiting = [(whole, -1)]
    while waiting:
        branch, parent = waiting.pop()
        for first in children.get(parent, ()):
            run = [first]
            while len(below := children.get(run[-1], [])) == 1:
                run += below
            waiting.append((branch.add(Text("  ").join(map(said, run))), run[-1]))
    return whole
