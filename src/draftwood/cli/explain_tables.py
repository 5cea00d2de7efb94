"""Prints what ``draftwood explain`` found: sentences, steps, the tree of one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from draftwood.cli import screen
from draftwood.cli.screen import percent
from draftwood.measure.records.records import Answer
from draftwood.measure.records.timing import rates
from draftwood.measure.wording import count, number

_TEXT = 16  # characters shown of what a step wrote


def show_arms(arms: Sequence[dict[str, Any]]) -> None:
    """Print what the answers of each arm amount to."""
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
    columns: dict[str, Callable[[Answer], str]] = {
        "answer": lambda a: str(a.id),
        "tokens": lambda a: str(found[a.id].tokens),
        "passes": lambda a: str(found[a.id].passes),
        "acceptance length": lambda a: number(found[a.id].mean_acceptance_length),
        "acceptance rate": lambda a: percent(found[a.id].acceptance_rate),
        "prompt": lambda a: f"{a.task} {a.name}, {a.arm}" + (f", round {a.round + 1}" if a.round > 0 else ""),
    }
    screen.show_table(to, columns, answers, ("prompt",))
    to.print("the steps of one: --answer N")


def show_steps(rows: Sequence[dict[str, Any]], answer: Answer) -> None:
    """Print a line per step."""
    to, texts = screen.console(), dict(zip((row["step"] for row in rows), _texts(answer), strict=True))
    columns: dict[str, Callable[[dict[str, Any]], str | Text]] = {
        "step": lambda r: str(r["step"]),
        "text": lambda r: texts[r["step"]],
        "accepted": lambda r: f"{r['accepted']} of {r['drafted']}" if r["drafted"] else "",
        "expected ms": lambda r: number(r["expected_ms"], 1),
        "ms": lambda r: number(r["ms"], 1),
        "why": lambda r: r["why"],
    }
    screen.show_table(to, columns, rows, ("text", "why"))
    to.print("All that is known of one step: --step K")


def _texts(answer: Answer) -> Iterator[Text]:
    """Yield what each step wrote, cut, in the colours of its sources."""
    names, looks = answer.drafters, screen.styles(answer.drafters)
    pieces = answer.pieces or [f"#{token} " for token in answer.output_ids]
    at = len(answer.output_ids) - sum(len(s.emitted) for s in answer.steps)
    for step in answer.steps:
        text = Text()
        for piece, source in zip(pieces[at:], step.sources, strict=False):
            text.append(screen.visible(piece), looks[names[source] if 0 <= source < len(names) else "model"])
        at += len(step.emitted)
        text.truncate(_TEXT, overflow="ellipsis")
        yield text


def show_step(found: dict[str, Any], answer: Answer, text: Callable[[int], str]) -> None:
    """Print all that is known of one step."""
    to = screen.console()
    show_head(to, found)
    to.print()
    for row in found["sources"]:
        said = f"{row['proposed']} proposed, {row['kept']} scored, {row['accepted']} accepted"
        to.print(f"{row['source']}: {said}; match length {row['match_length']}, {number(row['draft_ms'])} ms")
        for one in row.get("stages", ()):
            did = f"{one['passes']} passes, {one['accepted']} of {one['proposed']} drafts accepted"
            to.print(f"{row['source']}, its model {one['name']}: {did}, {1000 * one['seconds']:.2f} ms")
    _show_alternatives(to, found)
    for policy in found["policies"]:
        held = "held this draft" if policy["held"] else "did not hold it"
        to.print(f"{policy['policy']} {held}{': ' if policy['why'] else ''}{policy['why']}")
    for note in found["notes"]:
        to.print(note)
    show_tree(to, found, answer, text)


def show_head(to: Console, found: dict[str, Any]) -> None:
    """Print what a step wrote, why it drafted as much, and its time."""
    written = screen.visible(found["text"] or " ".join(f"#{t}" for t in found["emitted"]))
    of = ", ".join(f"{name} {ms:.2f}" for name, ms in found["ms_of"].items() if ms)
    to.print(f"Step {found['step']}, after {found['context']} tokens: {written}", style="bold")
    to.print(f"{found['why']}; {found['ms']:.1f} ms{f' ({of})' if of else ''}")


def show_tree(to: Console, found: dict[str, Any], answer: Answer, text: Callable[[int], str]) -> None:
    """Print the tree that a step scored, if one is known."""
    if found["tree"]:
        to.print(_tree(found["tree"], answer, text), soft_wrap=False)
        to.print(
            "percentages: how likely the planner took each token to be right; ✓: accepted, ?: a lookahead node"
        )


def _show_alternatives(to: Console, found: dict[str, Any]) -> None:
    rows, plan = found["alternatives"], found["plan"]
    if not rows:
        return
    best = max(row["tokens_per_second"] for row in rows) or 1.0
    scored, most = plan.get("pooled", plan.get("chosen")), plan.get("best")
    marked = {most: "best", scored: "scored best" if scored == most else "scored"}
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "draft nodes": lambda r: str(r["nodes"]),
        "expected tokens": lambda r: number(r["expected_tokens"]),
        "ms": lambda r: number(r["ms"], 1),
        "tokens/s": lambda r: number(r["tokens_per_second"], 1),
        "of the best": lambda r: percent(r["tokens_per_second"] / best),
        "": lambda r: marked.get(r["nodes"], ""),
    }
    screen.show_table(to, columns, rows, ("",))
    if plan.get("rows", 1) > 1:
        to.print(f"the pass was shared by {plan['rows']} requests: these are sums over all of them")
    to.print()


def _tree(trace: dict[str, Any], answer: Answer, text: Callable[[int], str]) -> Tree:
    """Draw the scored tree: a run of only children is one line, branches hang below it."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(trace["parents"]):
        children.setdefault(parent, []).append(node)
    looks = [screen.styles(answer.drafters)[name] for name in answer.drafters]
    beliefs, sources, lookahead = (trace.get(name) or [] for name in ("belief", "source", "lookahead"))

    def said(node: int) -> Text:
        mark = "✓" if node in trace["path"] else "?" if lookahead and lookahead[node] else ""
        look = looks[sources[node]] if sources and 0 <= sources[node] < len(looks) else ""
        belief = f" {percent(beliefs[node])}" if beliefs else ""
        return Text.assemble(mark, (screen.edged(text(trace["tokens"][node])), look), (belief, "dim"))

    whole = Tree("the tree that was scored")
    waiting = [(whole, -1)]
    while waiting:
        branch, parent = waiting.pop()
        for first in children.get(parent, ()):
            run = [first]
            while len(below := children.get(run[-1], [])) == 1:
                run += below
            waiting.append((branch.add(Text("  ").join(map(said, run))), run[-1]))
    return whole
