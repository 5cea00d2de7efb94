"""The worker writes each text as it would be written alone, whoever else comes, goes or fails."""

from __future__ import annotations

from queue import Queue
from threading import Event

import pytest

import draftwood
from draftwood.api.setup import Setup
from draftwood.errors import PromptError
from draftwood.serve.inbox import QueueFullError
from draftwood.serve.job import Job
from draftwood.serve.worker import Worker
from draftwood.testing import ToyTarget


def a_setup(target=None):
    return Setup(target or ToyTarget(vocab_size=16), None, "ngram", "fixed:4")


def a_job(setup, prompt, tokens=24, **settings):
    """A job, and a queue of what it is told."""
    told = Queue()
    return Job(setup.request(prompt, max_new_tokens=tokens, **settings), told.put), told


def text_of(told):
    """Wait for the end; returns the tokens and why they ended."""
    tokens = []
    while True:
        emission = told.get(timeout=60)
        tokens += emission.tokens
        if emission.finish is not None:
            return tokens, emission.finish


@pytest.fixture
def running():
    workers = []

    def start(setup, most_running=4, most_waiting=8):
        workers.append(Worker(setup, most_running, most_waiting))
        workers[-1].start()
        return workers[-1]

    yield start
    for worker in workers:
        worker.stop(10)


def test_texts_are_those_that_are_written_alone(running):
    setup = a_setup()
    worker, jobs = running(setup), []
    for number in range(12):
        settings = {"temperature": 0.7 * (number % 2), "seed": number}
        jobs.append((number, settings, *a_job(setup, [number, 2, 3], 10 + number, **settings)))
        worker.submit([jobs[-1][2]])
    for number, settings, _, told in jobs:
        alone = draftwood.generate(
            ToyTarget(vocab_size=16), [number, 2, 3], drafters="none", max_new_tokens=10 + number, **settings
        )
        assert text_of(told) == (alone.ids, "length")
    assert worker.inbox.running == worker.inbox.waiting == 0


def test_more_than_may_wait_are_refused(running):
    gate, target = Event(), ToyTarget(vocab_size=16)
    original = target.open
    target.open = lambda *a, **k: (gate.wait(60), original(*a, **k))[1]
    setup = a_setup(target)
    worker = running(setup, most_running=1, most_waiting=2)
    some = [a_job(setup, [1, 2]) for _ in range(3)]
    for job, _ in some:
        worker.submit([job])
    late, _ = a_job(setup, [1, 2])
    with pytest.raises(QueueFullError, match="try again later"):
        worker.submit([late])
    gate.set()
    assert all(text_of(told)[1] == "length" for _, told in some)
    again, told = a_job(setup, [1, 2])
    worker.submit([again])
    assert text_of(told)[1] == "length"


def test_one_that_is_cancelled_leaves_and_one_that_waits_never_begins(running):
    gate, target = Event(), ToyTarget(vocab_size=16)
    original = target.score
    target.score = lambda *a, **k: (gate.wait(60), original(*a, **k))[1]
    setup = a_setup(target)
    worker = running(setup, most_running=1)
    first, second, third = (a_job(setup, [1, 2], 1000) for _ in range(3))
    for job, _ in (first, second):
        worker.submit([job])
    first[1].get(timeout=60)
    first[0].cancel()
    second[0].cancel()
    gate.set()
    assert text_of(first[1])[1] == "cancelled"
    assert text_of(second[1]) == ([], "cancelled")
    worker.submit([third[0]])
    assert text_of(third[1])[1] == "length"


def test_one_whose_client_goes_while_it_is_begun_ends_before_the_next_pass(running):
    setup = a_setup()
    worker = running(setup)
    job, told = a_job(setup, [1, 2], 1000)
    worker._prefixes.begin = lambda *_: job.cancel()  # when it waits no more, and is no text yet
    worker.submit([job])
    assert text_of(told)[1] == "cancelled"


def test_a_model_that_fails_loses_the_texts_under_way_and_no_later_one(running, caplog):
    target, broken = ToyTarget(vocab_size=16), Event()
    original = target.score

    def score(requests):
        if broken.is_set():
            raise RuntimeError("out of memory")
        return original(requests)

    target.score = score
    setup = a_setup(target)
    worker = running(setup)
    broken.set()
    job, told = a_job(setup, [1, 2])
    worker.submit([job])
    assert text_of(told)[1] == "error"
    broken.clear()
    again, told = a_job(setup, [1, 2])
    worker.submit([again])
    assert text_of(told)[1] == "length"
    assert "out of memory" in caplog.text


def test_a_processor_that_fails_ends_its_own_text_alone(running):
    def fails(prefix, row):
        raise ZeroDivisionError

    setup = a_setup()
    worker = running(setup)
    bad, bad_told = a_job(setup, [1, 2], logits_processor=[fails])
    good, good_told = a_job(setup, [1, 2])
    worker.submit([bad, good])
    assert text_of(bad_told)[1] == "error"
    assert text_of(good_told)[1] == "length"


def test_what_cannot_be_written_is_refused_at_once(running):
    setup = a_setup()
    worker = running(setup)
    with pytest.raises(PromptError, match="outside the vocabulary"):
        worker.submit([a_job(setup, [99])[0]])


def test_stopping_serves_those_that_wait_and_refuses_others(running):
    setup = a_setup()
    worker = running(setup, most_running=1)
    some = [a_job(setup, [1, 2]) for _ in range(4)]
    for job, _ in some:
        worker.submit([job])
    worker.stop(60)
    assert all(text_of(told)[1] == "length" for _, told in some)
    with pytest.raises(QueueFullError, match="being stopped"):
        worker.submit([a_job(setup, [1, 2])[0]])
