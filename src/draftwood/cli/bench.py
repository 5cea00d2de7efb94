"""``draftwood bench``: compares drafters, and other engines, on the same prompts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from draftwood.cli import early, measuring, options, screen
from draftwood.errors import UsageError

if TYPE_CHECKING:
    from draftwood.api.setup import Setup
    from draftwood.api.user_texts import UserTexts
    from draftwood.measure.bench.arms import Arm
    from draftwood.measure.bench.run import BenchSettings
    from draftwood.measure.records.writer import RecordsWriter
    from draftwood.models.findings import Setting

Tasks = Annotated[
    str | None,
    Option(metavar="TASK,TASK", help="Kinds of prompts, as chat or grammar:one-sentence@0.7. [default: all]"),
]
Peers = Annotated[
    str | None,
    Option(
        metavar="PEER,PEER", help="Other engines on the same weights: transformers:assistant=NAME, llama.cpp:all."
    ),
]
Planner = Annotated[str | None, Option(help="How much is drafted. [default: goodput]")]
Draft = Annotated[int | None, Option(min=0, help="Short for --planner fixed:N.")]
Temperature = Annotated[
    float | None, Option(help="Temperature for every prompt. [default: the task's own, else greedy]")
]
Rounds = Annotated[int, Option(min=1, help="Runs of each arm on each prompt.")]
Seed = Annotated[int, Option(help="Seed of sampling and of the order of runs.")]
Sustain = Annotated[
    float | None,
    Option(
        min=1, metavar="SECONDS", help="Instead, repeat one answer for this long and show how its speed changes."
    ),
]


@options.shared
def bench(
    call: typer.Context,
    loading: options.Loading,
    tasks: Tasks = None,
    prompts: measuring.Prompts = None,
    chat: options.Chat = None,
    limit: measuring.Limit = None,
    drafters: measuring.Arms = options.DRAFTERS_DEFAULT,
    peers: Peers = None,
    planner: Planner = None,
    rule: options.RuleName = options.RULE_DEFAULT,
    draft: Draft = None,
    *,
    texts: options.SourceFlags,
    temperature: Temperature = None,
    max_new_tokens: measuring.MaxNewTokens = 192,
    rounds: Rounds = 2,
    seed: Seed = 0,
    sustain: Sustain = None,
    output: measuring.RecordsOut = None,
    wide: measuring.Wide = False,
    as_json: options.Json = False,
) -> None:
    """Compare drafters, and peers, on the same prompts.

    Every arm of draftwood except none drafts from what --prediction, --memory, --corpus and --context give.
    Within an arm, a memory carries over from prompt to prompt; each round starts with what the memory's file
    holds, and the file is not changed.
    """
    from draftwood.api.setup import Setup
    from draftwood.api.user_texts import UserTexts
    from draftwood.cli.bench_table import show
    from draftwood.measure.bench.run import Bench, BenchSettings, Sustained
    from draftwood.measure.bench.run import sustain as repeat
    from draftwood.measure.bench.table import table
    from draftwood.measure.ties import differences

    if planner is not None and draft is not None:
        raise UsageError(f"--draft {draft} means --planner fixed:{draft}: give one of them")
    chosen = f"fixed:{draft}" if draft is not None else planner or options.PLANNER_DEFAULT
    _check(call, chosen, rule, temperature, sustain)
    specs = _specs(drafters, chosen, texts.sources)
    jobs, peers = measuring.jobs_of(tasks, prompts, limit, chat), _with_plain(peers)
    early.check_rows(output, "bench")
    if peers is not None and "transformers" in peers:  # compared on the same weights
        loading = loading.for_transformers()
    model, tokenizer, jobs = measuring.load(loading, jobs, chat, own=prompts is not None, quiet=as_json)
    setting, given = loading.setting_of(model), UserTexts(**texts.sources)
    settings = BenchSettings(chosen, max_new_tokens, temperature, seed, rule)
    found: list[Sustained] = []
    with ExitStack() as held, screen.progress() as bar:
        setup = Setup(model, tokenizer, "none", chosen)
        writer = held.enter_context(closing(_writer(output, loading, setting, settings, given)))
        arms = [held.enter_context(closing(arm)) for arm in _arms(setup, specs, peers, settings, given, setting)]
        work = Bench(setup, arms, jobs, settings, writer, bar)
        with screen.CtrlC() as stop:
            if sustain is None:
                work.run(rounds)
            else:
                length = int(sustain)
                repeat(work, arms, jobs[0], sustain, found, lambda arm, at: bar(int(at), length, arm))
        kept = writer.records
        sustained = (each.to_json() for each in found)
        for row in differences(kept, setup.target, setting.dtype) if sustain is None else sustained:
            writer.other(row)
    rows, others = table(kept), {kind: kept.of_kind(kind) for kind in ("difference", "sustained")}
    document = {"rows": rows, **others, "header": kept.header, "interrupted": stop.pressed}
    screen.finish(document, lambda: show(rows, kept, wide=wide), as_json=as_json, interrupted=stop.pressed)


def _check(call: typer.Context, planner: str, rule: str, temperature: float | None, sustain: float | None) -> None:
    """Refuse, before the model is loaded, settings that are wrong or would have no effect."""
    from draftwood.planning.load import load as load_planner
    from draftwood.verify.load import load as load_rule

    load_planner(planner)
    load_rule(rule)
    early.check_sampling({"temperature": temperature})
    if sustain is not None and options.was_given(call, "rounds"):
        raise UsageError("--sustain repeats one answer for so long, which --rounds cannot count: leave one out")


def _specs(drafters: str, planner: str, sources: dict[str, Any]) -> list[str]:
    """Return plain decoding and the sets of drafters, after opening their files once as a check."""
    from draftwood.drafters.load import arms

    specs = list(dict.fromkeys(["none", *(spec for spec, _ in arms(drafters))]))
    for spec in specs:
        options.check_sources(spec, {} if spec == "none" and len(specs) > 1 else sources)
    if len(specs) > 1:
        options.refuse_plain(specs[1], planner, "arms with drafters are compared with plain decoding")
    return specs


def _with_plain(peers: str | None) -> str | None:
    """Return the peers, each with its engine's plain decoding beside it; their names are checked."""
    from draftwood.engines.peers import check_assistants, peer_names

    if not peers:
        return None
    names = peer_names(peers)
    check_assistants(names)
    return ",".join([*dict.fromkeys(peer.engine for peer in names), peers])


def _writer(
    output: Path | None, loading: options.Loading, setting: Setting, settings: BenchSettings, texts: UserTexts
) -> RecordsWriter:
    """Open the file of records, with all that must stay the same in it."""
    from draftwood.measure.records.provenance import provenance
    from draftwood.measure.records.records import header
    from draftwood.measure.records.writer import RecordsWriter

    names = {"model": loading.model, "dtype": setting.dtype, "threads": setting.threads}
    said: dict[str, Any] = {**names, **asdict(settings), **texts.said()}
    if settings.rule == options.RULE_DEFAULT:  # files of earlier versions do not name it
        del said["rule"]
    if not loading.pack:
        said["pack"] = False
    if loading.device is not None:
        said["device"] = loading.device
    return RecordsWriter(output, header("bench", said, provenance(**names)))


def _arms(
    setup: Setup, specs: list[str], peers: str | None, settings: BenchSettings, texts: UserTexts, setting: Setting
) -> Iterator[Arm]:
    """Yield the arms; drafters that come to the same label are one."""
    from functools import partial

    from draftwood.api.user_texts import UserTexts
    from draftwood.engines.peers import load_peers
    from draftwood.measure.bench.arms import OurArm, PeerArm
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
