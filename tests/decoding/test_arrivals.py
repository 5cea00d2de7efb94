"""Sequences that join and leave a running loop write what they would write alone."""

import random

import numpy as np
import pytest
from tests.helpers import GREEDY, SAMPLED, TARGETS, greedy_truth, sampled_truth
from tests.toys import RandomDrafter

from draftwood.decoding.arrivals import CHUNK
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.decoding.sequence import ActiveSequence
from draftwood.drafters.load import load
from draftwood.engines.cpu.target import CpuTarget
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.load import load as load_planner
from draftwood.testing import ToyTarget
from draftwood.verify.exact import SampleAndMatch


class Scripted:
    """Hands out sequences at given calls; cancels some of them at others."""

    def __init__(self, sequences, at, cancel=()):
        self.sequences, self.at, self.cancel = sequences, at, dict(cancel)
        self.calls, self.idle = 0, []

    def fetch(self, *, idle):
        self.calls += 1
        self.idle.append(idle)
        for number, call in self.cancel.items():
            if call == self.calls:
                self.sequences[number].cancel()
        last = max([*self.at, *self.cancel.values()])
        if self.calls > last:
            return None
        return [s for s, call in zip(self.sequences, self.at, strict=True) if call == self.calls]


def run(target, arrivals, planner=None):
    """All emitted tokens and how each text ended, by sequence; checks that nothing follows the end."""
    texts = {s.number: [] for s in arrivals.sequences}
    ends, errors = {}, {}
    try:
        for emission in decode_sequences(target, planner or FixedPlanner(6), arrivals):
            assert emission.row not in ends, "nothing follows the end"
            texts[emission.row] += emission.tokens
            if emission.finish is not None:
                ends[emission.row], errors[emission.row] = emission.finish, emission.error
    finally:
        for sequence in arrivals.sequences:
            sequence.close()
    return texts, ends, errors


def sequences(target, drafters, prompts, limit=20, sampling=GREEDY, **others):
    return [
        ActiveSequence(i, Request(p, limit, sampling, sequence=i, **others), target, drafters, SampleAndMatch())
        for i, p in enumerate(prompts)
    ]


@pytest.mark.parametrize("planner", ["fixed:6", "goodput"])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", TARGETS)
def test_whoever_comes_and_goes_each_text_is_the_one_it_is_alone(kind, sampling, planner):
    rng = random.Random(f"{kind}{sampling}")
    for drafters in (load("ngram"), (RandomDrafter(),), load("ngram+recycling") if kind == "trees" else ()):
        target = ToyTarget(**TARGETS[kind])
        prompts = [np.random.default_rng(i).integers(8, size=rng.randint(1, 700)).tolist() for i in range(6)]
        at = [1, *(rng.randint(1, 25) for _ in prompts[1:])]
        arrivals = Scripted(sequences(target, drafters, prompts, sampling=sampling), at)
        texts, ends, _ = run(target, arrivals, load_planner(planner))
        for i, prompt in enumerate(prompts):
            assert texts[i] == sampled_truth(target, sampling, prompt, 20, sequence=i)
            assert ends[i] == "length"
        assert target.open_sessions == 0


def test_a_long_prompt_is_read_between_the_passes_of_the_others():
    target = ToyTarget()
    some = sequences(target, (), [[1, 2], [3] * (10 * CHUNK)])
    between, seen = [], 0
    arrivals = Scripted(some, [1, 2])
    for emission in decode_sequences(target, FixedPlanner(0), arrivals):
        if emission.row == 0:
            seen += 1
        elif not between:
            between.append(seen)
    assert 9 <= between[0] <= 11, "one token of the running text for each chunk of the long prompt"
    for sequence in some:
        sequence.close()


def test_a_cancelled_text_ends_before_the_next_pass_and_the_others_go_on():
    target = ToyTarget()
    some = sequences(target, load("ngram"), [[1, 2], [3, 4], [5] * (4 * CHUNK)])
    texts, ends, _ = run(target, Scripted(some, [1, 1, 1], {0: 4, 2: 2}))
    assert ends == {0: "cancelled", 1: "length", 2: "cancelled"}
    assert 0 < len(texts[0]) < 20
    assert texts[0] == greedy_truth(target, [1, 2], 20)[: len(texts[0])]
    assert texts[1] == greedy_truth(target, [3, 4], 20)
    assert texts[2] == []


def test_a_prompt_that_cannot_be_read_ends_its_own_text_alone():
    target = ToyTarget(max_positions=2 * CHUNK)
    some = sequences(target, (), [[1, 2]])
    too_long = ActiveSequence(1, Request([1] * (3 * CHUNK), 20), target, (), SampleAndMatch())
    texts, ends, errors = run(target, Scripted([*some, too_long], [1, 2]))
    assert (ends, texts[1]) == ({0: "length", 1: "error"}, [])
    assert "positions" in str(errors[1])
    assert texts[0] == greedy_truth(target, [1, 2], 20)


def test_a_fetch_of_arrivals_may_wait_only_where_nothing_is_written():
    target = ToyTarget()
    arrivals = Scripted(sequences(target, (), [[1], [2]], limit=3), [3, 9])
    run(target, arrivals)
    assert arrivals.idle[:3] == [True, True, True]
    assert arrivals.idle[3] is False
    assert arrivals.idle[8] is True


def first_tokens(lengths, at, chunk=CHUNK):
    """The order in which texts begin, by number, and the calls after which they do."""
    target = ToyTarget(vocab_size=16)
    prompts = [[1 + n % 7 for n in range(length)] for length in lengths]
    # It counts calls so long.
    arrivals = Scripted(sequences(target, load("none"), prompts, limit=2000), at, {0: 1000})
    seen = {}
    for emission in decode_sequences(target, FixedPlanner(6), arrivals):
        seen.setdefault(emission.row, arrivals.calls)
        if len(seen) == len(lengths):
            break
    for sequence in arrivals.sequences:
        sequence.close()
    return seen


def test_a_short_prompt_begins_at_once_while_a_long_one_is_read():
    seen = first_tokens([20 * CHUNK, 30], [1, 4])
    assert seen[1] == 4
    assert seen[0] > 15


def test_a_long_prompt_waits_for_short_ones_at_most_every_other_time():
    count = 30
    seen = first_tokens([6 * CHUNK, *[40] * count], [1, *range(1, count + 1)])
    assert seen[0] <= 2 * 6 + 2
    assert all(seen[1 + number] <= number + 3 for number in range(count))


def test_the_rest_of_a_long_prompt_keeps_nobody_from_the_first_token():
    seen = first_tokens([2 * CHUNK + 100, 40], [1, 3])
    assert seen == {1: 3, 0: 4}


class CountingTarget(ToyTarget):
    """A toy that notes how many texts each call of `extend` has read, and that refuses to read some together."""

    together = 0
    refused = ()

    def extend(self, texts, watch=None):
        found = super().extend(texts, watch)
        if {tuple(session.tokens[:2]) for session, _ in texts} & {*self.refused}:
            raise RuntimeError("no room for this text")
        self.together = max(self.together, len(texts))
        return found


@pytest.mark.parametrize("refused", [(), (2, 3)])
@pytest.mark.parametrize("drafters", ["none", "ngram+recycling"])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_known_prompts_are_read_to_their_ends_in_one_call(sampling, drafters, refused):
    target = CountingTarget()
    prompts = [[1 + (n + number) % 7 for n in range(30 + number)] for number in range(6)]
    arrivals = Scripted(sequences(target, load(drafters), prompts, sampling=sampling), [1] * 6)
    for sequence, prompt in zip(arrivals.sequences, prompts, strict=True):
        ((session, _),) = target.open([prompt[: -1 - sequence.number]])
        sequence.resume(session)
    target.refused = (refused,)
    texts, ends, errors = run(target, arrivals)
    for number, prompt in enumerate(prompts):
        if tuple(prompt[:2]) == refused:
            assert (texts[number], ends[number]) == ([], "error")
            assert "no room" in str(errors[number])
        else:
            truth = sampled_truth(target, sampling, prompt, 20, sequence=number)
            assert (texts[number], ends[number]) == (truth, "length")
    assert target.together == (1 if refused else 6)


def test_a_text_that_is_cut_to_less_is_read_from_there_after_a_pass_that_failed(tiny_gguf):
    """States of delta nets are kept at few lengths, and reading such texts to their ends has left some of them."""
    path = tiny_gguf("qwen35", "Q8_0")

    class RefusingTarget(CpuTarget):
        def extend(self, texts, watch=None):
            found = super().extend(texts, watch)
            if len(texts) > 1:
                raise RuntimeError("no room for these texts")
            return found

    target, alone = RefusingTarget(path, threads=1), CpuTarget(path, threads=1)
    prompts = [[5 + (7 * n + number) % 60 for n in range(200)] for number in range(3)]
    arrivals = Scripted(sequences(target, [], prompts, limit=6), [1] * 3)
    for sequence, prompt in zip(arrivals.sequences, prompts, strict=True):
        ((session, _),) = target.open([prompt[:130]])
        sequence.resume(session)
    texts, *_ = run(target, arrivals)
    assert [texts[n] for n in range(3)] == [
        run(alone, Scripted(sequences(alone, [], [p], 6), [1]))[0][0] for p in prompts
    ]
