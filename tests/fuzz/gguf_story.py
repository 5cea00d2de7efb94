"""Stories about the exact engines: random calls on a tiny GGUF file, every text compared with plain decoding."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np

import draftwood
from draftwood.contracts import Sampling
from draftwood.drafters.load import load as load_drafters
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.llama_cpp.target import LlamaTarget
from draftwood.errors import CapabilityError, UsageError
from tests.engines.cpu.small_models import Truth, write_mixed
from tests.engines.reading import ways_of_reading
from tests.engines.story import OneByOne
from tests.engines.tiny_gguf import write_gguf
from tests.fuzz.calls import WrongTextError, draw_prompt, draw_sampling
from tests.fuzz.interrupt import interrupted
from tests.fuzz.story import DRAFTERS, PLANNERS, TOYS
from tests.helpers import sampled_truth

FILES = {
    "cpu": (
        (
            "llama",
            "gemma3",
            "gemma4",
            "mixed",
            "lfm2",
            "qwen35",
            "qwen35moe",
            "qwen3next",
            "gpt-oss",
            "granitehybrid",
            "falcon-h1",
            "deepseek2",
            "nemotron_h",
        ),
        ("F32", "F16", "Q8_0", "Q4_0"),
    ),
    "llama.cpp": (("llama", "gemma3", "jamba"), ("Q8_0", "Q4_0", "Q4_1")),
}
"""Families and types of weights on each engine."""
LONGEST = 600  # tokens of a text that is read


class ToldOnCpu(CpuTarget):
    """With what `sampled_truth` asks for: the scores after a text, from another target with one thread."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, threads=2)
        self.generation_config = SimpleNamespace(eos_token_id=[2])  # one of the files has no vocabulary
        self.scores_after = Truth(CpuTarget(path, threads=1))


class ToldOnLlama(LlamaTarget):
    """The same on llama.cpp, whose threads spin, so that two are slow beside other programs."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, threads=1)
        self.scores_after = OneByOne(LlamaTarget(path, threads=1))


@cache
def target_of(engine: str, family: str, kind: str, seed: int) -> Any:
    """A target with random weights."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "model.gguf"
    if family == "mixed":
        write_mixed(path, seed)
    else:
        write_gguf(path, family=family, kind=kind, seed=seed)
    return (ToldOnCpu if engine == "cpu" else ToldOnLlama)(path)


class GgufStory:
    """Draws everything from its number, as `tests.fuzz.story.Story` does."""

    def __init__(self, engine: str, seed: int, number: int) -> None:
        self.engine, self.rng = engine, Random(f"{engine}/{seed}/{number}")
        self.log: list[str] = []
        self.counts: Counter[str] = Counter()

    def tell(self) -> None:
        """Run it; raises `WrongTextError` for a wrong text."""
        rng = self.rng
        families, kinds = FILES[self.engine]
        family, kind = rng.choice(families), rng.choice(kinds)
        self.target = target_of(self.engine, family, kind, rng.randrange(4))
        self.memory = draftwood.Memory(200)
        self.log.append(f"{family} {kind}")
        for event in rng.choices(
            ["call", "threads", "streams", "left", "cut", "read"], [9, 2, 2, 1, 3, 2], k=rng.randrange(2, 6)
        ):
            self.counts[event] += 1
            getattr(self, event)()

    def _call(self, *, prompts: int = 0) -> tuple[list[list[int]], dict[str, Any], Sampling]:
        rng = self.rng
        texts = [draw_prompt(rng) for _ in range(prompts or rng.choice([1, 1, 2, 3]))]
        sampling = draw_sampling(rng)
        drafters: Any = rng.choice(DRAFTERS)
        if rng.random() < 0.3:
            drafters = [*load_drafters(drafters), rng.choice(TOYS)()]
        settings = {
            "max_new_tokens": rng.choice([1, 4, 8, 14, 40]),
            "drafters": drafters,
            "planner": rng.choice(PLANNERS),
            **sampling,
        }
        if rng.random() < 0.3 and drafters != "none":
            settings["memory"] = self.memory
        self.log.append(f"{texts} {settings}")
        return texts, settings, Sampling(**sampling)

    def _check(self, call: Any, given: Sequence[list[int]], *, cut: bool = False) -> None:
        prompts, settings, sampling = call
        for prompt, ids in zip(prompts, given, strict=True):
            truth = sampled_truth(self.target, sampling, prompt, settings["max_new_tokens"])
            ends = set(self.target.generation_config.eos_token_id)
            truth = truth[: next((i + 1 for i, token in enumerate(truth) if token in ends), len(truth))]
            self.counts["texts"] += 1
            if ids != (truth[: len(ids)] if cut else truth):
                raise WrongTextError(f"{prompt} {settings}: ours {ids}, the model's own {truth}")

    def _run(self, call: Any, run: Callable[[], list[list[int]]], *, cut: bool = False) -> None:
        try:
            given = run()
        except (CapabilityError, UsageError) as error:  # this set of drafters is not for this engine or model
            if isinstance(error, UsageError) and "outside the model" not in str(error):
                raise
            self.counts["refused"] += 1
            return
        self._check(call, given, cut=cut)

    def _given(self, call: Any) -> list[list[int]]:
        return [one.ids for one in draftwood.generate(self.target, call[0], **call[1])]

    def call(self) -> None:
        """One call, perhaps with several prompts."""
        call = self._call()
        self._run(call, lambda: self._given(call))

    def threads(self) -> None:
        """Three calls at once."""
        calls = [self._call() for _ in range(3)]
        with ThreadPoolExecutor(3) as pool:
            running = [pool.submit(self._given, call) for call in calls]
        for call, one in zip(calls, running, strict=True):
            self._run(call, one.result)

    def streams(self) -> None:
        """Two streams, read in turns."""
        calls = [self._call(prompts=1) for _ in range(2)]
        try:
            streams = left = [draftwood.stream(self.target, call[0][0], **call[1]) for call in calls]
            while left:
                left = [one for one in left if next(one, None) is not None]
        except (CapabilityError, UsageError) as error:
            if isinstance(error, UsageError) and "outside the model" not in str(error):
                raise
            return
        for call, stream in zip(calls, streams, strict=True):
            self._check(call, [stream.generation.ids])

    def left(self) -> None:
        """A stream that is not read to its end."""
        call = self._call(prompts=1)

        def run() -> list[list[int]]:
            stream = draftwood.stream(self.target, call[0][0], **call[1])
            for _ in zip(range(3), stream, strict=False):
                pass
            stream.close()
            return [stream.generation.ids]

        self._run(call, run, cut=True)

    def cut(self) -> None:
        """Ctrl-C at some line."""
        call, lines = self._call(prompts=1), int(10 ** self.rng.uniform(0, 4.3))
        self.log.append(f"cut at line {lines}")

        def run() -> list[list[int]]:
            stream = None
            try:
                with interrupted(lines):
                    stream = draftwood.stream(self.target, call[0][0], **call[1])
                    list(stream)
            except KeyboardInterrupt:
                self.counts["interrupted"] += 1
            return [stream.generation.ids if stream else []]

        self._run(call, run, cut=True)

    def read(self) -> None:
        """A long text, read in several ways."""
        text = (draw_prompt(self.rng) * LONGEST)[: self.rng.randrange(2, 1 + LONGEST)]
        self.log.append(f"read {text}")
        expected = self.target.scores_after(text)
        for way, row in ways_of_reading(self.target, text, self.rng):
            self.counts["texts"] += 1
            if not np.array_equal(row, expected):
                raise WrongTextError(f"{len(text)} tokens {way}: other scores than token by token")
