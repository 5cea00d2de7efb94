"""A story: a model or two, objects that its calls share, and a few events; every text is checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import numpy as np
import torch

import draftwood
from draftwood.drafters.draft_model.drafter import DraftModelDrafter, DraftTarget
from draftwood.drafters.load import load as load_drafters
from draftwood.engines.transformers.shared import prepare, shared_target
from draftwood.errors import CapabilityError
from draftwood.planning.load import load as load_planner
from tests.drafters.answers import check as check_memory
from tests.fuzz.calls import PROCESSORS, SPELLER, Call, WrongTextError, draw_prompt, draw_sampling
from tests.fuzz.interrupt import interrupted
from tests.fuzz.models import CHANGES, draw_model
from tests.toys import HugeDrafter, InvalidDrafter, LyingDrafter, RaisingDrafter, RandomDrafter

DRAFTERS = (
    "default", "none", "ngram-mod", "copy-and-recycle", "lookup", "recycling", "recycling:keep=true+ngram",
    "jacobi:block=5", "lookahead:window=4:ngram=3", "logits-extend+ngram", "ngram-mod:n_match=2:n_min=0",
    "ngram-cache", "ngram-map-k4v:size_n=1:size_m=6", "ngram-simple:size_n=3", "ngram+lookup+recycling",
    "ngram:frequent=0+lookup", "parrot:p=0.2", "early-exit:layers=1", "ngram+early-exit:layers=2",
    "early-exit:layers=0.2+recycling",
)  # fmt: skip
TOYS: tuple[Callable[[], Any], ...] = (
    lambda: RandomDrafter(64, seed=3),
    lambda: HugeDrafter(64, size=90),
    lambda: LyingDrafter(64),
    lambda: RaisingDrafter("draft"),
    lambda: InvalidDrafter("parents"),
)
PLANNERS = (
    "goodput", "goodput:most=4", "fixed:8", "fixed:16:floor=0.1", "fixed:30", "threshold",
    "fixed:8+backoff:misses=1:pause=2", "goodput+switching", "goodput+deadline:ms=1", "off",
)  # fmt: skip


class ModelFailsError(Exception):
    """A changed model does not run by itself (say, an adapter on a layer that returns tuples)."""


class Story:
    """Draws everything from its number: ``Story(seed, number).tell()`` twice is the same story twice."""

    def __init__(self, seed: int, number: int) -> None:
        self.rng = Random(f"{seed}/{number}")
        self.log: list[str] = []
        self.counts: Counter[str] = Counter()

    def tell(self) -> None:
        """Run it.

        Raises
        ------
        WrongTextError
            For a wrong text; anything else that is raised is a finding, too, but for
        ModelFailsError
            where the model itself fails.
        """
        rng = self.rng
        torch.manual_seed(rng.randrange(1000))
        self.models = []
        self.drafting: list[Any] = []  # models that only draft
        for _ in range(rng.choice([1, 1, 2])):
            name, model = draw_model(rng)
            self.models.append(model)
            self.log.append(name)
            if rng.random() < 0.3:
                prepare(model, pack=rng.random() < 0.5)
        self.memory = draftwood.Memory(rng.choice([100, 400]))
        self.planners = [load_planner(spec) for spec in rng.sample(PLANNERS, 2)]
        self.sets = [self._set() for _ in range(2)]
        self.decodings = [self._decoding() for _ in range(2)]
        self.chat: Any = None
        events = [self._event() for _ in range(rng.randrange(2, 6))]
        if events[-1] == "change":
            events.append("call")
        for event in events:
            self.counts[event] += 1
            getattr(self, event)()
        check_memory(self.memory)

    # --- what calls share ------------------------------------------------------------------------------------

    def _event(self) -> str:
        weights = {"call": 9, "change": 4, "threads": 2, "streams": 1, "say": 2, "cut": 2, "left": 1}
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def _set(self) -> Any:
        """Drafters as objects, which several calls may share."""
        chosen = list(load_drafters(self.rng.choice(DRAFTERS)))
        if self.rng.random() < 0.3:
            chosen += self._draft_model()
        return [*chosen, self.rng.choice(TOYS)()] if self.rng.random() < 0.3 else chosen

    def _draft_model(self) -> list[Any]:
        """A draft model, often of another kind than those that it drafts for; none where it cannot be one."""
        _, model = draw_model(self.rng)
        self.drafting.append(model)
        try:
            return [DraftModelDrafter(length=self.rng.choice([2, 16])).bound(DraftTarget(shared_target(model)))]
        except CapabilityError:  # it carries a state, and cannot take tokens back
            return []

    def _sources(self, drafters: Any) -> dict[str, Any]:
        rng, found = self.rng, {}
        if drafters in ("none", []):  # sources are refused with it
            return found
        text = draw_prompt(rng)
        if rng.random() < 0.25:
            found["memory"] = self.memory
        if rng.random() < 0.15:
            found["prediction"] = text
        if rng.random() < 0.1:
            found["corpus"] = draftwood.Corpus.of([np.array(text)])
        if rng.random() < 0.1:
            found["context"] = text
        return found

    def _decoding(self) -> Any:
        spec = self.rng.choice([self.rng.choice(DRAFTERS), self.sets[0]])
        seed = self.rng.randrange(99)
        made = draftwood.decode_with(
            spec, self.rng.choice([*PLANNERS, *self.planners]), seed=seed, tokenizer=SPELLER, **self._sources(spec)
        )
        return made, seed

    def _call(
        self, functions: tuple[str, ...] = ("generate", "generate", "decode_with", "decode_with", "stream")
    ) -> Call:
        rng = self.rng
        function = rng.choice(functions)
        prompts = [draw_prompt(rng) for _ in range(1 if function == "stream" else rng.choice([1, 1, 2, 3]))]
        names = rng.sample(list(PROCESSORS), rng.choice([0, 0, 0, 1, 2]))
        call = Call(
            rng.choice(self.models),
            function,
            prompts,
            rng.choice([1, 4, 8, 14]),
            sorted(names),
            draw_sampling(rng),
        )
        if function == "decode_with":
            decoding, seed = rng.choice(self.decodings)
            call.objects["decoding"] = decoding
            if call.sampling:
                call.sampling["seed"] = seed
            return call
        call.stop = rng.choice([None, None, None, chr(rng.randrange(65, 120)), "ab"])
        drafters = rng.choice([rng.choice(DRAFTERS), *self.sets])
        planner = rng.choice([*PLANNERS, *self.planners])
        call.objects = {"drafters": drafters, "planner": planner, **self._sources(drafters)}
        if function == "generate":
            call.objects["batch_size"] = rng.choice([1, 2, 8])
        return call

    def _note(self, what: str, call: Call | None = None) -> None:
        about = "" if call is None else f" model {self.models.index(call.model)}: {call}"
        self.log.append(what + about)

    # --- events ----------------------------------------------------------------------------------------------

    def call(self) -> None:
        """One call of one public function."""
        call = self._call()
        self._note("call", call)
        self._check(call, call.given)

    def _check(self, call: Call, run: Callable[[], list[list[int]]], *, cut: bool = False) -> None:
        truths = self._expected(call)
        try:
            given = run()
        except CapabilityError:  # this set of drafters is not for this type
            self.counts["refused"] += 1
            return
        self.counts["texts"] += len(truths)
        self.counts["ties"] += call.check(given, truths, cut=cut)

    def _expected(self, call: Call) -> list[list[int]]:
        try:
            return call.expected()
        except Exception as failure:
            raise ModelFailsError(f"{type(failure).__name__}: {failure}") from failure

    def change(self) -> None:
        """Change the model itself."""
        change, number = self.rng.choice(CHANGES), self.rng.randrange(len(self.models))
        self._note(f"change {change.__name__} of model {number}")
        try:
            change(self.rng, self.models[number])
        except (ValueError, IndexError, NotImplementedError, TypeError, AttributeError) as reason:
            self._note(f"  not possible: {type(reason).__name__}")  # this type has no such part

    def threads(self) -> None:
        """Several calls at once, each in a thread of its own."""
        calls = [self._call() for _ in range(3)]
        for call in calls:
            self._note("thread", call)
        truths = [self._expected(call) for call in calls]
        with ThreadPoolExecutor(3) as pool:
            running = [pool.submit(call.given) for call in calls]
        for call, done, truth in zip(calls, running, truths, strict=True):
            if isinstance(done.exception(), CapabilityError):
                continue
            self.counts["texts"] += len(truth)
            self.counts["ties"] += call.check(done.result(), truth)

    def streams(self) -> None:
        """Two streams of one thread, read in turns."""
        calls = [self._call(("stream",)) for _ in range(2)]
        for call in calls:
            self._note("stream", call)
        truths = [self._expected(call) for call in calls]
        try:
            streams = left = [call.stream() for call in calls]
            while left:
                left = [one for one in left if next(one, None) is not None]
        except CapabilityError:
            return
        for call, stream, truth in zip(calls, streams, truths, strict=True):
            self.counts["texts"] += 1
            self.counts["ties"] += call.check([stream.generation.ids], truth)

    def left(self) -> None:
        """A stream that is not read to its end."""
        call = self._call(("stream",))
        self._note("left", call)
        pieces = self.rng.randrange(4)

        def run() -> list[list[int]]:
            stream = call.stream()
            for _ in zip(range(pieces), stream, strict=False):
                pass
            stream.close()
            return [stream.generation.ids]

        self._check(call, run, cut=True)

    def cut(self) -> None:
        """Ctrl-C at some line; what was written until then must be correct."""
        call = self._call(("stream", "decode_with"))
        lines = int(10 ** self.rng.uniform(0, 4.3))
        self._note(f"cut at line {lines}", call)

        def run() -> list[list[int]]:
            if call.function == "stream":
                stream = None
                try:
                    with interrupted(lines):
                        stream = call.stream()
                        list(stream)
                except KeyboardInterrupt:
                    self.counts["interrupted"] += 1
                return [stream.generation.ids if stream else []]
            decoding = call.objects["decoding"]
            before = decoding.generations
            try:
                with interrupted(lines):
                    return call.given()
            except KeyboardInterrupt:
                self.counts["interrupted"] += 1
                told = decoding.generations
                begun = told and not (before and told[0] is before[0])
                return [g.ids for g in told] if begun else [[] for _ in call.prompts]

        self._check(call, run, cut=True)

    def say(self) -> None:
        """A turn of the conversation."""
        rng = self.rng
        if self.chat is None or rng.random() < 0.2:
            settings = {"max_new_tokens": rng.choice([4, 8]), **(draw_sampling(rng) or {"seed": 1})}
            drafters = rng.choice([rng.choice(DRAFTERS), *self.sets])
            self._note(f"conversation {settings} {drafters}")
            self.chat_settings, self.chat_model = settings, rng.choice(self.models)
            planner = rng.choice(self.planners)
            try:
                self.chat = draftwood.Conversation(
                    self.chat_model, tokenizer=SPELLER, drafters=drafters, planner=planner, **settings
                )
            except CapabilityError:  # this set of drafters is not for this type
                self.chat = None
                self.counts["refused"] += 1
                return
        question = "".join(chr(rng.randrange(65, 123)) for _ in range(rng.randrange(1, 9)))
        if rng.random() < 0.2:
            self.chat.undo()
        messages = [*self.chat.messages, {"role": "user", "content": question}]
        prompt = SPELLER.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        sampling = {name: v for name, v in self.chat_settings.items() if name != "max_new_tokens"}
        limit = self.chat_settings["max_new_tokens"]
        call = Call(self.chat_model, "say", [list(prompt)], limit, sampling=sampling)
        if "temperature" not in sampling:
            call.sampling = {}
        lines = int(10 ** rng.uniform(2, 4.3)) if rng.random() < 0.2 else 0
        self._note(f"say, cut at {lines}", call)

        def run() -> list[list[int]]:
            try:
                if lines:
                    with interrupted(lines):
                        list(self.chat.say(question))
                else:
                    list(self.chat.say(question))
            except KeyboardInterrupt:
                self.counts["interrupted"] += 1
                return [[]]  # not checked: `generation` may still be the last turn's
            return [self.chat.generation.ids]

        try:
            self._check(call, run, cut=bool(lines))
        finally:
            if self.chat.messages and self.chat.messages[-1]["role"] == "user":
                self.chat.undo()


def tell(seed: int, number: int) -> dict[str, Any]:
    """Run one story; what came of it, as a line of JSON may hold it."""
    story = Story(seed, number)
    error = None
    try:
        story.tell()
    except ModelFailsError as reason:
        story.counts["model fails"] += 1
        story.log.append(str(reason))
    except WrongTextError as wrong:
        error = str(wrong)
    except Exception as failure:
        import traceback

        error = f"{type(failure).__name__}: {failure}\n" + "".join(traceback.format_tb(failure.__traceback__)[-6:])
    found = {"number": number, "counts": dict(story.counts), "error": error}
    if error:
        found["story"] = story.log
    return found
