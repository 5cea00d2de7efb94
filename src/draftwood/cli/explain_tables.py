"""Prints what ``draftwood explain`` found: sentences, steps, the tree of one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from draftwood.cli import screen
from draftwood.cli.render import styles
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
    to = screen.console()
    table = screen.table("answer", "tokens", "passes", "accept. length", "accept. rate", "coverage", last="prompt")
    for answer in answers:
        found = rates([answer])
        cells = [str(found.tokens), str(found.passes), number(found.mean_acceptance_length)]
        cells += [percent(found.acceptance_rate), percent(found.draft_coverage)]
        again = f", round {answer.round + 1}" if answer.round else ""
        table.add_row(str(answer.id), *cells, f"{answer.task} {answer.name}, {answer.arm}{again}")
    to.print(table, soft_wrap=False)
    to.print("the steps of one: --answer N")


def show_steps(rows: Sequence[dict[str, Any]], answer: Answer) -> None:
    """Print a line per step."""
    to = screen.console()
    table = screen.table("step", "text", "accepted", "ms", last="why")
    table.columns[0].justify, table.columns[1].justify = "right", "left"
    for column in table.columns[:-1]:
        column.no_wrap = True
    for row, text in zip(rows, _texts(answer), strict=True):
        accepted = f"{row['accepted']} of {row['drafted']}" if row["drafted"] else ""
        expected = "" if row["expected_ms"] is None else f"{row['expected_ms']:.1f} / "
        table.add_row(str(row["step"]), text, accepted, f"{expected}{row['ms']:.1f}", row["why"])
    to.print(table, soft_wrap=False)
    to.print("ms: expected / came. All that is known of one step: --step K")


def _texts(answer: Answer) -> Iterator[Text]:
    """Yield what each step wrote, cut, in the colours of its sources."""
    names, looks = answer.drafters, styles(answer.drafters)
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
    names = ("asked", "proposed", "kept", "accepted", "match_length")
    sources = [[r["source"], *(str(r[n]) for n in names), number(r["draft_ms"])] for r in found["sources"]]
    if sources:
        heads = ("source", "asked", "proposed", "scored", "accepted", "match length", "ms")
        to.print(screen.table(*heads, rows=sources), soft_wrap=False)
        to.print()
    for row in found["sources"]:
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
    table = screen.table("draft nodes", "expected tokens", "ms", "tokens/s", "of the best", last="")
    best = max(row["tokens_per_second"] for row in rows) or 1.0
    scored = plan.get("pooled", plan.get("chosen"))
    for row in rows:
        marks = [word for word, nodes in (("scored", scored), ("best", plan.get("best"))) if nodes == row["nodes"]]
        cells = number(row["expected_tokens"]), number(row["ms"], 1), number(row["tokens_per_second"], 1)
        table.add_row(
            str(row["nodes"]), *cells, percent(row["tokens_per_second"] / best), " ".join(marks),
            style="bold" if "scored" in marks else "",
        )  # fmt: skip
    to.print(table, soft_wrap=False)
    if plan.get("rows", 1) > 1:
        to.print(f"the pass was shared by {plan['rows']} requests: these are sums over all of them")
    to.print()


def _tree(trace: dict[str, Any], answer: Answer, text: Callable[[int], str]) -> Tree:
    """Draw the scored tree: a run of only children is one line, branches hang below it."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(trace["parents"]):
        children.setdefault(parent, []).append(node)
    whole = Tree("the tree that was scored")
    open_ = [(whole, -1)]
    while open_:
        branch, parent = open_.pop()
        for first in children.get(parent, ()):
            run = [first]
            while len(below := children.get(run[-1], [])) == 1:
                run += below
            open_.append((branch.add(_run(run, trace, answer, text)), run[-1]))
    return whole


def _run(nodes: Sequence[int], trace: dict[str, Any], answer: Answer, text: Callable[[int], str]) -> Text:
    names, looks, accepted = answer.drafters, styles(answer.drafters), set(trace["path"])
    beliefs, sources, lookahead_nodes = (trace.get(name) or [] for name in ("belief", "source", "lookahead"))
    said = Text()
    for node in nodes:
        mark = "✓" if node in accepted else "?" if node < len(lookahead_nodes) and lookahead_nodes[node] else ""
        source = sources[node] if node < len(sources) else -1
        look = looks.get(names[source] if 0 <= source < len(names) else "model", "")
        said.append(f"{'  ' if said else ''}{mark}")
        said.append(screen.edged(text(trace["tokens"][node])), look)
        said.append(f" {percent(beliefs[node])}" if node < len(beliefs) else "", "dim")
    return said
