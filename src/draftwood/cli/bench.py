"""``draftwood bench``: drafters and peers side by side on the same prompts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftwood.cli import measuring, options

if TYPE_CHECKING:
    from draftwood.api.setup import Setup
    from draftwood.api.user_texts import UserTexts
    from draftwood.measure.bench.arms import Arm
    from draftwood.measure.bench.run import Bench
    from draftwood.measure.records.writer import RecordsWriter

Tasks = Annotated[
    str | None,
    typer.Option(
        metavar="TASK,TASK", help="Kinds of prompts, as chat or grammar:one-sentence@0.7. [default: all]"
    ),
]
Peers = Annotated[
    str | None,
    typer.Option(metavar="PEER,PEER", help="Others on the same weights: transformers:lookup, llama.cpp:all."),
]
Planner = Annotated[str | None, typer.Option(help="How much is drafted. [default: goodput]")]
Draft = Annotated[int | None, typer.Option(min=0, help="Short for --planner fixed:N.")]
Temperature = Annotated[
    float | None, typer.Option(help="For every prompt. [default: what the task says, else greedy]")
]
Rounds = Annotated[int, typer.Option(min=1, help="Runs of each arm on each prompt.")]
Seed = Annotated[int, typer.Option(help="Of sampling, and of the order of runs.")]
Sustain = Annotated[
    float | None, typer.Option(min=1, metavar="SECONDS", help="Instead, repeat one answer for so long: the trend.")
]


def bench(
    model: options.Model = options.MODEL_DEFAULT,
    tasks: Tasks = None,
    prompts: measuring.Prompts = None,
    limit: measuring.Limit = None,
    drafters: measuring.Arms = options.DRAFTERS_DEFAULT,
    peers: Peers = None,
    planner: Planner = None,
    prediction: options.Prediction = None,
    memory: options.Memory = None,
    corpus: options.Corpus = None,
    context: options.Context = None,
    draft: Draft = None,
    temperature: Temperature = None,
    max_new_tokens: measuring.MaxNewTokens = 192,
    rounds: Rounds = 2,
    seed: Seed = 0,
    sustain: Sustain = None,
    output: measuring.RecordsOut = None,
    as_json: options.Json = False,
    dtype: options.Dtype = "float32",
    threads: options.Threads = None,
    pack: options.Pack = True,
) -> None:
    """Compare drafters, and peers, on the same prompts.

    Every arm of ours but none drafts from what --prediction, --memory, --corpus and --context give. A memory
    carries over from prompt to prompt within an arm; every round begins with what its file holds, which is
    not written to.
    """
    from draftwood.api.user_texts import UserTexts
    from draftwood.cli.bench_table import show
    from draftwood.drafters.load import arms
    from draftwood.measure.bench.differences import differences
    from draftwood.measure.bench.run import BenchSettings
    from draftwood.measure.bench.table import table

    chosen = measuring.planner_of(planner, draft, options.PLANNER_DEFAULT)
    specs = list(dict.fromkeys(["none", *(spec for spec, _ in arms(drafters))]))
    sources = options.read_sources(prediction, memory, corpus, context)
    for spec in specs:
        options.check_sources(spec, {} if spec == "none" and len(specs) > 1 else sources)
    jobs = measuring.jobs_of(tasks, prompts, limit)
    settings = BenchSettings(chosen, max_new_tokens, temperature, seed)
    run = _Run(model, dtype, threads, pack, specs, peers, settings, output, UserTexts(**sources))
    run.load()
    try:
        with measuring.progress() as bar:
            work = run.prepare(jobs, bar)
            if sustain is not None:
                interrupted = run.sustain(work, jobs[0], sustain, bar)
            else:
                interrupted = run.rounds(work, rounds)
                for row in differences(run.writer.rows, run.target, run.names["dtype"]):
                    run.writer.other(row)
    finally:
        run.close()
    rows = table(run.writer.rows)
    if as_json:
        others = {k: run.writer.rows.of_kind(k) for k in ("difference", "sustained")}
        print(json.dumps({"rows": rows, **others, "header": run.writer.rows.header, "interrupted": interrupted}))
    else:
        show(rows, run.writer.rows)
    if interrupted:
        raise typer.Exit(130)


class _Run:
    """Model, arms and rows of one bench."""

    def __init__(
        self, model: str, dtype: str, threads: int | None, pack: bool, specs: list[str], peers: str | None,
        settings: Any, output: Path | None, sources: UserTexts,
    ) -> None:  # fmt: skip
        from draftwood.engines.peers import peer_names
        from draftwood.planning.load import load as load_planner

        load_planner(settings.planner)  # wrong names are told before a model is loaded
        if peers:
            engines = [peer.engine for peer in peer_names(peers)]
            peers = ",".join([*dict.fromkeys(engines), peers])  # each with its engine's plain decoding beside it
        self.names = {"model": model, "dtype": dtype}
        self._threads, self._pack, self._specs, self._peers = threads, pack, specs, peers
        self._sources = sources
        self._settings, self._output = settings, output
        self.arms: list[Arm] = []
        self.writer: RecordsWriter
        self.target: Any = None

    def load(self) -> None:
        """Load the model."""
        name, dtype = self.names["model"], self.names["dtype"]
        self._model, self._tokenizer = options.load_model(name, dtype, self._threads, self._pack)
        self.names["dtype"] = options.dtype_of(self._model)

    def prepare(self, jobs: list[Any], bar: Any) -> Bench:
        """Open the rows file, make the arms."""
        from draftwood.api.setup import Setup
        from draftwood.engines.peers import load_peers
        from draftwood.measure.bench.arms import PeerArm
        from draftwood.measure.bench.run import Bench
        from draftwood.measure.records.provenance import provenance
        from draftwood.measure.records.records import header
        from draftwood.measure.records.writer import RecordsWriter

        setup = Setup(self._model, self._tokenizer, "none", self._settings.planner)
        self.target = setup.target
        threads = measuring.torch_threads(self._threads)
        said = {
            **self.names,
            "threads": threads,
            "planner": self._settings.planner,
            "max_new_tokens": self._settings.max_new_tokens,
            "temperature": self._settings.temperature,
            "seed": self._settings.seed,
        }
        if not self._pack:
            said["pack"] = False
        said |= self._sources.said()
        self.writer = RecordsWriter(self._output, header("bench", said, provenance(**self.names, threads=threads)))
        self.arms = [*self._ours(setup)]
        if self._peers:
            found = load_peers(self._peers, self._model, self._tokenizer, self.names["model"], threads)
            self.arms += [PeerArm(peer) for peer in found]
        return Bench(setup, self.arms, jobs, self._settings, self.writer, bar)

    def _ours(self, setup: Setup) -> Iterator[Arm]:
        """Yield the arms of ours; what two of them have become alike is one."""
        from draftwood.api.user_texts import UserTexts
        from draftwood.measure.bench.arms import OurArm

        seen: set[str] = set()
        for spec in self._specs:
            sources = self._sources if spec != "none" else UserTexts()
            label = sources.label(spec)
            if label not in seen:
                seen.add(label)
                yield OurArm(label, setup, self._settings.planner, sources, spec)

    def rounds(self, work: Bench, rounds: int) -> bool:
        """Run; returns whether it was interrupted."""
        try:
            work.run(rounds)
        except KeyboardInterrupt:
            return True
        return False

    def sustain(self, work: Bench, job: Any, seconds: float, bar: Any) -> bool:
        """Repeat one answer; returns whether it was interrupted."""
        from draftwood.measure.bench.sustain import Sustained, sustain

        found: list[Sustained] = []
        interrupted = False
        try:
            sustain(work, self.arms, job, seconds, found, lambda arm, at: bar(int(at), int(seconds), arm))
        except KeyboardInterrupt:
            interrupted = True
        for each in found:
            self.writer.other(each.to_json())
        return interrupted

    def close(self) -> None:
        """Close arms and file."""
        for arm in self.arms:
            arm.close()
        if hasattr(self, "writer"):
            self.writer.close()
