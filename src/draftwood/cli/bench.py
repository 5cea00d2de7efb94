"""``draftwood bench``: compares drafters, and other engines, on the same prompts; the worst task comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from draftwood.cli import early, given, measuring, options, screen
from draftwood.errors import UsageError
from draftwood.local.crowding import Others, told
from draftwood.measure.wording import IMPOSSIBLE, count, doubted, number, percent, ratio

if TYPE_CHECKING:
    from draftwood.api.setup import Setup
    from draftwood.api.user_texts import UserTexts
    from draftwood.local.findings import Setting
    from draftwood.measure.bench.arms import Arm
    from draftwood.measure.bench.run import BenchSettings
    from draftwood.measure.records.records import Records, Row
    from draftwood.measure.records.writer import RecordsWriter


@options.shared
def bench(
    call: typer.Context,
    loading: options.Loading,
    tasks: Annotated[
        str | None,
        Option(
            metavar="TASK,TASK",
            help="Kinds of prompts; with a variant and a temperature: grammar:one-sentence@0.7. [default: all]",
        ),
    ] = None,
    prompts: measuring.Prompts = None,
    chat: options.Chat = None,
    limit: measuring.Limit = None,
    drafters: measuring.Arms = options.DRAFTERS_DEFAULT,
    peers: Annotated[
        str | None,
        Option(
            metavar="PEER,PEER", help="Other engines on the same weights: transformers:lookup, llama.cpp, all."
        ),
    ] = None,
    planner: options.PlannerName = options.PLANNER_DEFAULT,
    rule: options.RuleName = options.RULE_DEFAULT,
    *,
    texts: given.SourceFlags,
    temperature: Annotated[
        float | None, Option(help="Temperature for every prompt. [default: the task's own, else greedy]")
    ] = None,
    max_new_tokens: measuring.MaxNewTokens = 192,
    rounds: Annotated[int, Option(min=1, help="How often each prompt is answered by each arm.")] = 2,
    seed: Annotated[int, Option(help="Seed of sampling and of the order of runs.")] = 0,
    sustain: Annotated[
        float | None,
        Option(
            min=1,
            metavar="SECONDS",
            help="Instead of comparing, repeat one answer for this long and show how its speed changes.",
        ),
    ] = None,
    output: measuring.RecordsOut = None,
    as_json: options.Json = False,
) -> None:
    """Compare sets of drafters, and other engines, on the same prompts.

    Each set, but for none, drafts also from what --prediction, --memory, --corpus and --context give. Its memory
    carries over from prompt to prompt; each round starts with what the memory's file holds, and the file is not
    changed. A task whose speedup is above the tokens per pass is run once more.
    """
    from draftwood.api.setup import Setup
    from draftwood.api.user_texts import UserTexts
    from draftwood.measure.bench.run import Bench, BenchSettings, Sustained
    from draftwood.measure.bench.run import sustain as repeat
    from draftwood.measure.bench.table import table
    from draftwood.measure.peers import check_assistants, peer_names
    from draftwood.measure.ties import differences

    given.check_names(planner, rule)
    early.check_sampling({"temperature": temperature})
    if sustain is not None and "rounds" in dict(options.given_flags(call)):
        raise UsageError("--sustain repeats one answer for so long, which --rounds cannot count: leave one out")
    specs = _specs(drafters, planner, texts.sources)
    jobs = measuring.jobs_of(tasks, prompts, limit, chat)
    if peers:  # each with its engine's plain decoding
        names = peer_names(peers)
        check_assistants(names)
        peers = ",".join([*dict.fromkeys(peer.engine for peer in names), peers])
    early.check_rows(output, "bench")
    if peers is not None and "transformers" in peers:  # compared on the same weights
        loading = loading.for_transformers()
    model, tokenizer, jobs = measuring.load(loading, jobs, chat, own=prompts is not None, quiet=as_json)
    setting, sources = loading.setting_of(model), UserTexts(**texts.sources)
    settings = BenchSettings(planner, max_new_tokens, temperature, seed, rule)
    found: list[Sustained] = []
    with ExitStack() as held, screen.progress() as bar:
        setup, others = Setup(model, tokenizer, "none", planner), Others()
        writer = held.enter_context(closing(_writer(output, loading, setting, settings, sources)))
        begun, running = len(writer.records.answers), held.enter_context(ExitStack())
        made = _arms(setup, specs, peers, settings, sources, setting)
        arms = [running.enter_context(closing(arm)) for arm in made]
        work = Bench(setup, arms, jobs, settings, writer, bar)
        with screen.CtrlC() as stop:
            if sustain is None:
                work.run(rounds)
                work.run_doubted(rounds)
            else:
                length = int(sustain)
                repeat(work, arms, jobs[0], sustain, found, lambda arm, at: bar(int(at), length, arm))
        kept = writer.records
        repeated = (each.to_json() for each in found)
        for row in differences(kept, setup.target, setting.dtype) if sustain is None else repeated:
            writer.other(row)
        running.close()  # CPU time of servers that we started counts as ours once they have ended
        if (cores := others.cores) is not None and len(kept.answers) > begun:
            writer.other({"row": "machine", "other_programs": round(cores, 2)})
    taken = max((row["other_programs"] for row in kept.of_kind("machine")), default=None)
    rows, more = table(kept), {kind: kept.of_kind(kind) for kind in ("difference", "sustained")}
    document = {"rows": rows, **more, "header": kept.header, "interrupted": stop.pressed, "other_programs": taken}
    screen.finish(document, lambda: _show(rows, kept, told(taken)), as_json=as_json, interrupted=stop.pressed)


def _specs(drafters: str, planner: str, sources: dict[str, Any]) -> list[str]:
    """Return plain decoding and the sets of drafters, after opening their files once as a check."""
    from draftwood.drafters.load import arms

    specs = list(dict.fromkeys(["none", *(spec for spec, _ in arms(drafters))]))
    for spec in specs:
        given.check_sources(spec, {} if spec == "none" and len(specs) > 1 else sources)
    if len(specs) > 1:
        given.refuse_plain(specs[1], planner, "arms with drafters are compared with plain decoding")
    return specs


def _writer(
    output: Path | None, loading: options.Loading, setting: Setting, settings: BenchSettings, texts: UserTexts
) -> RecordsWriter:
    """Open the file of records; its header holds the settings that all its answers must share."""
    from draftwood.measure.records.provenance import provenance
    from draftwood.measure.records.records import header
    from draftwood.measure.records.writer import RecordsWriter

    names = {"model": loading.model, "dtype": setting.dtype, "threads": setting.threads}
    device = {} if loading.device is None else {"device": loading.device}
    said: dict[str, Any] = {**names, **asdict(settings), **texts.said(), **device}
    return RecordsWriter(output, header("bench", said, provenance(**names)))


def _arms(
    setup: Setup, specs: list[str], peers: str | None, settings: BenchSettings, texts: UserTexts, setting: Setting
) -> Iterator[Arm]:
    """Yield the arms, one for each label of drafters, and one for each peer."""
    from functools import partial

    from draftwood.api.user_texts import UserTexts
    from draftwood.measure.bench.arms import OurArm, PeerArm
    from draftwood.measure.peers import load_peers
    from draftwood.models.load import load

    labels: set[str] = set()
    for spec in specs:
        sources = texts if spec != "none" else UserTexts()
        label = sources.label(spec)
        if label not in labels:
            labels.add(label)
            yield OurArm(label, setup, settings.planner, sources, spec, settings.rule)
    if peers:
        by_name = partial(load, engine="transformers")
        found = load_peers(peers, setup.model, setup.tokenizer, setting.model, setting.threads, by_name)
        yield from map(PeerArm, found)


def columns() -> dict[str, Callable[[Row], str]]:
    """Return what the table shows of its rows."""
    from draftwood.measure.bench.table import sameness, tokens_per_pass

    def speedup(row: Row) -> str:
        found, interval = row["speedup_unlooped"], row["speedup_unlooped_interval"]
        between = f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval and interval[0] < interval[1] else ""
        return row["apart"] or ratio(found, row["most_speedup"]) + between

    return {
        "task": lambda r: r["task"],
        "arm": lambda r: r["drafter"],
        "speedup": speedup,
        "tokens per pass": lambda r: number(tokens_per_pass(r)),
        "tokens per second": lambda r: (
            number(r["tokens_per_second"], 1) + "~" * (not r["apart"] and not r["beside"])
        ),
        "same text": lambda r: sameness(r).replace("no", "NO"),
    }


def _show(rows: list[Row], kept: Records, machine: str) -> None:
    """Print the table, engine by engine and the worst task first, the means, trends and notes."""
    from draftwood.measure.bench.table import APART, geometric_mean

    def place(row: Row) -> tuple[bool, str, bool, float]:
        speedup = row["speedup_unlooped"]
        return row["engine"] != "draftwood", row["engine"], speedup is None, speedup or 0.0

    to, rows = screen.console(), sorted(rows, key=place)
    if rows:
        marks = {"(": "in brackets its 95 % interval over prompts", "?": IMPOSSIBLE}
        marks |= {kind: f"{kind}: {why}" for kind, why in APART.items()}
        said = screen.show_table(to, columns(), rows, ("task", "arm"), marks) + f"; {machine}" * bool(machine)
        to.print(f"speedup: over plain decoding of the same engine, without looped tails{said}. {screen.MORE}")
    if any(row["prompts"] > 1 for row in rows) and find_spec("scipy") is None:
        to.print('Intervals need scipy: run pip install "draftwood[measure]".')
    for arm in dict.fromkeys(row["drafter"] for row in rows):
        own = [row for row in rows if row["drafter"] == arm and row["speedup_unlooped"]]
        if own and arm != "none":
            odd = "?" * any(doubted(row["speedup_unlooped"], row["most_speedup"]) for row in own)
            worst = ratio(own[0]["speedup_unlooped"], own[0]["most_speedup"])  # rows are in this order
            mean = number(geometric_mean(row["speedup_unlooped"] for row in own))
            apart = any(row["drafter"] == arm and row["apart"] for row in rows)
            of = f" of {count(len(own), 'task')}" * apart
            to.print(f"{arm}: geometric mean{of} {mean}{odd}, worst task {worst}")
    for row in kept.of_kind("sustained"):
        to.print(_trend(row))
    for note in _notes(rows, kept):
        to.print(note)


def _trend(row: Row) -> str:
    if row["kept"] is None:
        return f"{row['drafter']}: too few answers on a quiet machine for a trend; give it more seconds"
    heat = [window["celsius"] for window in row["windows"] if "celsius" in window]
    warm = f"{heat[0]:.0f} to {heat[-1]:.0f} degrees Celsius" if heat else "temperature unknown"
    return (
        f"{row['drafter']}: {row['first_quarter']:.1f} tokens/s in the first quarter of the time, "
        f"{row['last_quarter']:.1f} in the last ({percent(row['kept'])} kept); {warm}"
    )


def _notes(rows: list[Row], kept: Records) -> Iterator[str]:
    """Yield what one must know to read the table."""
    from draftwood.measure.bench.table import draft_memory
    from draftwood.measure.records.records import TRACED

    looped = {r["task"]: r["looped_tokens"] for r in rows if r["drafter"] == "none" and r["looped_tokens"]}
    if looped:
        yield "looped tails of plain's answers, in tokens: " + ", ".join(f"{t} {n}" for t, n in looped.items())
    for rule in dict.fromkeys(row["rule"] for row in rows if row["rule"] is not None):
        yield f"lossy: by the rule {rule} texts may differ from those of plain decoding; the changed are counted"
    for arm in dict.fromkeys(row["drafter"] for row in rows):
        if memory := draft_memory(rows, arm):
            yield f"{arm}: {memory}"
    if failed := {r["drafter"]: r["failed"] for r in rows if r["failed"]}:
        yield "answers in which a drafter failed: " + ", ".join(f"{arm} {n}" for arm, n in failed.items())
    if sittings := len(kept.of_kind("resumed")):
        yield f"measured in {1 + sittings} sittings: a speedup is of answers of one"
    timed = [answer for answer in kept.answers if answer.round != TRACED]
    if busy := sum(not kept.is_quiet(answer) for answer in timed):
        yield f"in no comparison, since other programs left too few cores: {busy} of {count(len(timed), 'answer')}"
    by_id = {answer.id: answer for answer in kept.answers}
    for found in kept.of_kind("difference"):
        answer = by_id[found["answer"]]
        margin = "" if found["margin"] is None else f", where the two best scores differ by {found['margin']:.1e}"
        tie = {True: " (a near-tie)", False: " (NOT a near-tie: please report it)", None: ""}[found["near_tie"]]
        if found["near_tie"] and "rounding" in found:
            tie = f" (a near-tie: {found['cause']} moves scores by up to {found['rounding']:.2g})"
        yield f"{answer.arm} differs on {answer.task} {answer.name} from token {found['index']}{margin}{tie}"
