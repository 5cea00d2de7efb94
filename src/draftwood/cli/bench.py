"""``draftwood bench``: compares drafters, and other engines, on the same prompts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from draftwood.cli import early, measuring, options, screen
from draftwood.errors import UsageError

if TYPE_CHECKING:
    from draftwood.measure.bench.arms import Arm
    from draftwood.measure.bench.run import Bench, BenchSettings
    from draftwood.measure.prompt_files import Job
    from draftwood.measure.records.writer import RecordsWriter

Tasks = Annotated[
    str | None,
    Option(metavar="TASK,TASK", help="Kinds of prompts, as chat or grammar:one-sentence@0.7. [default: all]"),
]
Peers = Annotated[
    str | None,
    Option(metavar="PEER,PEER", help="Other engines on the same weights: transformers:lookup, llama.cpp:all."),
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
    draft: Draft = None,
    *,
    texts: options.SourceFlags,
    temperature: Temperature = None,
    max_new_tokens: measuring.MaxNewTokens = 192,
    rounds: Rounds = 2,
    seed: Seed = 0,
    sustain: Sustain = None,
    output: measuring.RecordsOut = None,
    as_json: options.Json = False,
) -> None:
    """Compare drafters, and peers, on the same prompts.

    Every arm of draftwood except none drafts from what --prediction, --memory, --corpus and --context give.
    Within an arm, a memory carries over from prompt to prompt; each round starts with what the memory's file
    holds, and the file is not changed.
    """
    from draftwood.cli.bench_table import show
    from draftwood.measure.bench.differences import differences
    from draftwood.measure.bench.run import BenchSettings
    from draftwood.measure.bench.table import table

    if planner is not None and draft is not None:
        raise UsageError(f"--draft {draft} means --planner fixed:{draft}: give one of them")
    chosen = f"fixed:{draft}" if draft is not None else planner or options.PLANNER_DEFAULT
    _check(call, chosen, temperature, sustain)
    specs = _arms(drafters, chosen, texts.sources)
    jobs = measuring.jobs_of(tasks, prompts, limit, chat)
    settings = BenchSettings(chosen, max_new_tokens, temperature, seed)
    run = _Run(loading, specs, peers, settings, output, texts.sources)
    jobs = run.load(jobs, chat, own=prompts is not None, quiet=as_json)
    try:
        with screen.progress() as bar:
            work = run.prepare(jobs, bar)
            if sustain is not None:
                interrupted = run.sustain(work, jobs[0], sustain, bar)
            else:
                with screen.CtrlC() as stop:
                    work.run(rounds)
                interrupted = stop.pressed
                for row in differences(run.writer.records, run.target, run.names["dtype"]):
                    run.writer.other(row)
    finally:
        run.close()
    kept, rows = run.writer.records, table(run.writer.records)
    others = {kind: kept.of_kind(kind) for kind in ("difference", "sustained")}
    document = {"rows": rows, **others, "header": kept.header, "interrupted": interrupted}
    screen.finish(document, lambda: show(rows, kept), as_json=as_json, interrupted=interrupted)


def _check(call: typer.Context, planner: str, temperature: float | None, sustain: float | None) -> None:
    """Refuse, before the model is loaded, settings that are wrong or would have no effect."""
    from draftwood.planning.load import load as load_planner

    load_planner(planner)
    early.check_sampling({"temperature": temperature})
    if sustain is not None and options.was_given(call, "rounds"):
        raise UsageError("--sustain repeats one answer for so long, which --rounds cannot count: leave one out")


def _arms(drafters: str, planner: str, sources: dict[str, Any]) -> list[str]:
    """Return plain decoding and the sets of drafters, after opening their files once as a check."""
    from draftwood.drafters.load import arms

    specs = list(dict.fromkeys(["none", *(spec for spec, _ in arms(drafters))]))
    for spec in specs:
        options.check_sources(spec, {} if spec == "none" and len(specs) > 1 else sources)
    if len(specs) > 1:
        options.refuse_plain(specs[1], planner, "arms with drafters are compared with plain decoding")
    return specs


class _Run:
    """Model, arms and records of one bench."""

    def __init__(
        self, loading: options.Loading, specs: list[str], peers: str | None, settings: BenchSettings,
        output: Path | None, sources: dict[str, Any],
    ) -> None:  # fmt: skip
        from draftwood.api.user_texts import UserTexts
        from draftwood.engines.peers import peer_names

        if peers:
            engines = [peer.engine for peer in peer_names(peers)]
            peers = ",".join([*dict.fromkeys(engines), peers])  # each with its engine's plain decoding beside it
        early.check_rows(output, "bench")
        self.names = {"model": loading.model, "dtype": loading.dtype}
        self._loading, self._specs, self._peers = loading, specs, peers
        self._sources = UserTexts(**sources)
        self._settings, self._output = settings, output
        self.arms: list[Arm] = []
        self.writer: RecordsWriter
        self.target: Any = None

    def load(self, jobs: list[Job], chat: bool | None, *, own: bool, quiet: bool) -> list[Job]:
        """Load the model; returns the prompts, in its chat template where that applies."""
        self._model, self._tokenizer, jobs = measuring.load(self._loading, jobs, chat, own=own, quiet=quiet)
        self.setting = self._loading.setting_of(self._model)
        self.names["dtype"] = self.setting.dtype
        return jobs

    def prepare(self, jobs: list[Job], bar: Any) -> Bench:
        """Open the records file, make the arms."""
        from draftwood.api.setup import Setup
        from draftwood.api.user_texts import UserTexts
        from draftwood.engines.peers import load_peers
        from draftwood.measure.bench.arms import OurArm, PeerArm
        from draftwood.measure.bench.run import Bench
        from draftwood.measure.records.provenance import provenance
        from draftwood.measure.records.records import header
        from draftwood.measure.records.writer import RecordsWriter

        setup = Setup(self._model, self._tokenizer, "none", self._settings.planner)
        self.target = setup.target
        threads = self.setting.threads
        said: dict[str, Any] = {**self.names, "threads": threads, **asdict(self._settings)}
        if not self._loading.pack:
            said["pack"] = False
        if self._loading.device is not None:
            said["device"] = self._loading.device
        said |= self._sources.said()
        self.writer = RecordsWriter(self._output, header("bench", said, provenance(**self.names, threads=threads)))
        ours: dict[str, Arm] = {}  # drafters that come to the same label are one arm
        for spec in self._specs:
            sources = self._sources if spec != "none" else UserTexts()
            label = sources.label(spec)
            if label not in ours:
                ours[label] = OurArm(label, setup, self._settings.planner, sources, spec)
        self.arms = [*ours.values()]
        if self._peers:
            found = load_peers(self._peers, self._model, self._tokenizer, self.names["model"], threads)
            self.arms += [PeerArm(peer) for peer in found]
        return Bench(setup, self.arms, jobs, self._settings, self.writer, bar)

    def sustain(self, work: Bench, job: Job, seconds: float, bar: Any) -> bool:
        """Repeat one answer; returns whether it was interrupted."""
        from draftwood.measure.bench.run import Sustained, sustain

        found: list[Sustained] = []
        with screen.CtrlC() as stop:
            sustain(work, self.arms, job, seconds, found, lambda arm, at: bar(int(at), int(seconds), arm))
        for each in found:
            self.writer.other(each.to_json())
        return stop.pressed

    def close(self) -> None:
        for arm in self.arms:
            arm.close()
        if hasattr(self, "writer"):
            self.writer.close()
