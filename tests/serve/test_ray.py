"""Two copies behind Ray Serve, as the example starts them: texts, streams, clients that leave, and who wrote."""

from __future__ import annotations

import re
import runpy
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")
serve = pytest.importorskip("ray.serve")

pytestmark = [pytest.mark.slow, pytest.mark.smollm2, pytest.mark.filterwarnings("ignore")]  # Ray's own house

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_serve.py"
QUESTIONS = [
    f"Name the capital of {name}, and one of its rivers." for name in ("France", "Peru", "Kenya", "Japan")
]
WAIT = 120  # seconds at most until something has happened in another process
ASKED = {"model": "smollm2", "temperature": 0.0, "max_tokens": 24}


@pytest.fixture(scope="module")
def copies():
    """The address of two copies, and Ray's handle of them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        yield f"http://127.0.0.1:{port}", serve.run(runpy.run_path(str(EXAMPLE))["app"])
    finally:
        serve.shutdown()
        ray.shutdown()


@pytest.fixture(scope="module")
def client(copies):
    from openai import OpenAI

    with OpenAI(base_url=copies[0] + "/v1", api_key="none", timeout=WAIT, max_retries=0) as found:
        yield found


@pytest.fixture(scope="module")
def plain():
    """What plain decoding writes in this process."""
    import draftwood

    model, tokenizer = draftwood.load("smollm2")
    given = {"tokenizer": tokenizer, "drafters": "none", "temperature": 0.0, "max_new_tokens": ASKED["max_tokens"]}
    return [draftwood.generate(model, messages(question), **given).text for question in QUESTIONS]


def messages(question):
    return [{"role": "user", "content": question}]


def numbers(copies, name, labels=""):
    """A number of each copy's metrics, summed over its labels."""
    pattern = re.compile(rf"^{name}\{{.*{labels}.*\}} (\S+)$", re.MULTILINE)
    return [sum(map(float, pattern.findall(text))) for text in copies[1].broadcast("metrics").results()]


def cancelled(copies):
    return sum(numbers(copies, "vllm:request_success_total", 'finished_reason="cancelled"'))


def test_answers_of_both_copies_are_those_of_plain_decoding(copies, client, plain):
    def ask(question):
        answer = client.chat.completions.create(messages=messages(question), **ASKED)
        return answer.choices[0].message.content

    with ThreadPoolExecutor(4) as clients:
        assert list(clients.map(ask, QUESTIONS)) == plain
    written = numbers(copies, "vllm:generation_tokens_total")
    assert len(written) == 2
    assert all(written), "one copy has written everything"


def test_streams_come_in_pieces_and_are_the_same_texts(client, plain):
    for question, text in zip(QUESTIONS[:2], plain[:2], strict=True):
        pieces = [
            chunk.choices[0].delta.content or ""
            for chunk in client.chat.completions.create(messages=messages(question), stream=True, **ASKED)
        ]
        assert "".join(pieces) == text
        assert sum(map(bool, pieces)) > 2


def test_the_text_of_a_client_that_leaves_is_cancelled(copies, client):
    before = cancelled(copies)
    long = ASKED | {"max_tokens": 1000, "logit_bias": {"2": -100}}  # token 2 ends smollm2's answers
    stream = client.chat.completions.create(messages=messages("Count to a thousand."), stream=True, **long)
    for _, _ in zip(range(3), stream, strict=False):
        pass
    stream.close()
    limit = time.monotonic() + WAIT
    while cancelled(copies) == before and time.monotonic() < limit:
        time.sleep(0.2)
    assert cancelled(copies) == before + 1
    assert sum(numbers(copies, "vllm:num_requests_running")) == 0


def test_errors_keep_their_status(client):
    from openai import NotFoundError

    with pytest.raises(NotFoundError, match="ask for 'smollm2'"):
        client.chat.completions.create(messages=messages("hello"), **ASKED | {"model": "other"})
