"""Prints what ``draftwood explain`` found: sentences, costs and accept rates, steps, the tree of one step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from draftwood.cli import screen
from draftwood.cli.render import styles
from draftwood.cli.screen import number, percent
from draftwood.measure.records.records import Answer, grouped_by
from draftwood.measure.records.timing import rates

_CLASSES = 5  # evidence classes shown of each source, the most frequent; --json has them all
_WIDE = 150  # columns of a terminal that shows all columns of the steps
_TEXT, _SHORT = 32, 16  # characters shown of what a step wrote, in wide and narrow terminals


def show_arms(arms: Sequence[dict[str, Any]]) -> None:
    """Print what the answers of each arm amount to."""
    to = screen.console()
    for arm in arms:
        n = len(arm["answers"])
        planner = f", planner {arm['planner']}" if arm["planner"] else ""
        to.print(f"{arm['drafters']}{planner}: {n} answer{'s' * (n != 1)}", style="bold")
        for sentence in arm["words"]:
            to.print(f"- {sentence}")
        to.print()
        _print(to, ("draft nodes", "ms believed", "passes", "ms taken"), map(_cost, arm["cost"]))
        by_source = grouped_by(arm["accept_rates"], itemgetter("source"))
        shown = [_accept_rate(row) for rows in by_source.values() for row in rows[:_CLASSES]]
        left = len(arm["accept_rates"]) - len(shown)
        note = f"{left} rarer classes are left out; --json has them all" if left else ""
        _print(to, ("source", "evidence class", "nodes", "believed", "came true"), shown, note)


def _print(to: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> None:
    """Print a table, a note and an empty line; nothing for no rows."""
    if rows := list(rows):
        to.print(screen.table(*columns, rows=rows), soft_wrap=False)
        to.print(note, end="\n\n" if note else "\n")


def _cost(row: dict[str, Any]) -> list[str]:
    low, high = row["nodes"]
    nodes = str(high) if low == high else f"{low} to {high}"
    return [nodes, number(row["believed_ms"], 1), str(row["passes"] or ""), number(row["ms"], 1)]


def _accept_rate(row: dict[str, Any]) -> list[str]:
    shares = (percent(row[name]) for name in ("believed", "came_true"))
    return [row["source"], str(row["evidence"]), str(row["nodes"]), *shares]


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
    """Print a line per step; narrow terminals get the columns that matter most."""
    to = screen.console()
    wide = to.width >= _WIDE
    columns = ("context", "text", "asked", "candidates", "scored", "accepted", "tokens", "ms")
    table = screen.table("step", *(columns if wide else ("text", "accepted", "ms")), last="why")
    table.columns[0].justify = "right"
    table.columns[2 if wide else 1].justify = "left"
    for column in table.columns[:-1]:
        column.no_wrap = True
    for row, text in zip(rows, _texts(answer, _TEXT if wide else _SHORT), strict=True):
        ms = f"{_of(row['expected_ms'])}{row['ms']:.1f}"
        if wide:
            names = ("asked", "candidates", "drafted", "accepted")
            counts = ["" if row[name] is None else str(row[name]) for name in names]
            tokens = f"{_of(row['expected_tokens'])}{len(row['emitted'])}"
            table.add_row(str(row["step"]), str(row["context"]), text, *counts, tokens, ms, row["why"])
        else:
            accepted = f"{row['accepted']} of {row['drafted']}" if row["drafted"] else ""
            table.add_row(str(row["step"]), text, accepted, ms, row["why"])
    to.print(table, soft_wrap=False)
    to.print(f"{'tokens, ms' if wide else 'ms'}: expected / came. All that is known of one step: --step K")


def _of(expected: float | None) -> str:
    return "" if expected is None else f"{expected:.1f} / "


def _texts(answer: Answer, most: int) -> Iterator[Text]:
    """Yield what each step wrote, cut, in the colours of its sources."""
    names, looks = answer.drafters, styles(answer.drafters)
    pieces = answer.pieces or [f"#{token} " for token in answer.output_ids]
    at = len(answer.output_ids) - sum(len(s.emitted) for s in answer.steps)
    for step in answer.steps:
        text = Text()
        for piece, source in zip(pieces[at:], step.sources, strict=False):
            text.append(screen.visible(piece), looks[names[source] if 0 <= source < len(names) else "model"])
        at += len(step.emitted)
        text.truncate(most, overflow="ellipsis")
        yield text


def show_step(found: dict[str, Any], answer: Answer, text: Callable[[int], str]) -> None:
    """Print all that is known of one step."""
    to = screen.console()
    show_head(to, found)
    to.print()
    names = ("asked", "proposed", "kept", "accepted", "match_length")
    sources = [[r["source"], *(str(r[n]) for n in names), number(r["draft_ms"])] for r in found["sources"]]
    _print(to, ("source", "asked", "proposed", "scored", "accepted", "match length", "ms"), sources)
    stages = [
        [
            row["source"],
            one["model"],
            *(str(one[n]) for n in ("passes", "proposed", "accepted")),
            number(one["ms"]),
        ]
        for row in found["sources"]
        for one in row.get("stages", ())
    ]
    _print(to, ("source", "its model", "passes", "drafts it scored", "accepted", "ms"), stages)
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
