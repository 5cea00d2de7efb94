"""What was read is not read again for the same client, other clients gain nothing, and texts stay the same."""

from types import SimpleNamespace

import httpx2 as httpx
import pytest
from openai import OpenAI

from draftwood.api.setup import Setup
from draftwood.api.user_texts import UserTexts
from draftwood.engines.cpu.target import CpuTarget
from draftwood.serve.prefixes import Prefixes
from draftwood.testing import ToyTarget
from tests.serve.conftest import running

FIRST = [{"role": "user", "content": "hello, this is a conversation that becomes longer and longer"}]


@pytest.fixture(scope="module")
def target(tiny_folder):
    setup = Setup(str(tiny_folder), None, "none", "goodput")
    setup.refresh()
    return setup.target


def opened(target, ids):
    ((session, _),) = target.open([ids])
    return session


def ended(session):
    """A text whose drafters have learnt nothing."""
    return SimpleNamespace(session=session, ids=session.ids, readings=list)


def test_the_longest_known_beginning_is_found_in_its_own_namespace(target):
    text = [5 + n % 60 for n in range(90)]
    prefixes, first = Prefixes(target, 1 << 30), opened(target, text)
    prefixes.keep("", ended(first))
    first.close()
    for prompt, length in (([*text[:40], 7, 8], 40), (text, 89)):  # the last token is read again, for its scores
        found, _ = prefixes.begin("", prompt, 20)
        assert found.length == length
        found.close()
    assert prefixes.begin("other", text, 20) is None
    assert prefixes.begin("", [3] * 90, 20) is None
    assert Prefixes(ToyTarget(), 1 << 20).begin("", [1] * 90, 1) is None


def test_a_text_of_short_convolutions_goes_on_from_the_end_of_a_page(tiny_gguf):
    target, text = CpuTarget(tiny_gguf("lfm2", "Q8_0")), [5 + n % 60 for n in range(200)]
    prefixes = Prefixes(target, 1 << 30)
    prefixes.keep("", ended(opened(target, text)))
    for common, length in ((199, 192), (100, 64), (64, 64)):
        session, _ = prefixes.begin("", [*text[:common], 7, 8], 0)
        assert session.ids == text[:length]
        (scores,) = target.extend([(session, [*text[length:common], 7])])
        ((_, truth),) = target.open([[*text[:common], 7]])
        assert scores.raw(0).tobytes() == truth.raw(0).tobytes()
    assert prefixes.begin("", [*text[:63], 7, 8], 0) is None


def test_the_text_that_reaches_farthest_is_taken_where_states_lie_at_few_lengths(tiny_gguf):
    target, text = CpuTarget(tiny_gguf("qwen35", "Q8_0")), [5 + n % 60 for n in range(300)]
    prefixes = Prefixes(target, 1 << 30)
    long = [*text[:200], *text[:40]]  # 200 tokens in common, of which a state lies at 192
    for one in (long, [*text[:150], *text[:3]]):
        prefixes.keep("", ended(opened(target, one)))
    for common, length in ((250, 192), (195, 192), (152, 128), (130, 128)):
        session, _ = prefixes.begin("", [*text[:common], 7, 8], 0)
        assert session.ids == text[:length], common
        (scores,) = target.extend([(session, [*text[length:common], 7])])
        ((_, truth),) = target.open([[*text[:common], 7]])
        assert scores.raw(0).tobytes() == truth.raw(0).tobytes()
    assert prefixes.begin("", [*text[:100], 7, 8], 0) is None


def test_memory_is_bounded_and_longer_texts_take_the_place_of_their_beginnings(target):
    text = [5 + n % 60 for n in range(200)]
    one = opened(target, text[:100])
    size = target.save(one).nbytes
    prefixes = Prefixes(target, 3 * size)
    prefixes.keep("", ended(one))
    prefixes.keep("", ended(one))
    assert prefixes.nbytes == size
    two = opened(target, text)
    prefixes.keep("", ended(two))
    assert prefixes.nbytes == 2 * size
    for number in range(4):
        other = opened(target, [number, *text[:99]])
        prefixes.keep("", ended(other))
        other.close()
        assert prefixes.nbytes <= 3 * size
    one.close()
    two.close()


def test_the_next_turn_reads_only_what_is_new(tiny_folder, alone):
    with running(Setup(str(tiny_folder), None, "ngram+recycling", "fixed:6")) as server:
        mine = OpenAI(base_url=f"{server.url}/v1", api_key="mine")
        theirs = OpenAI(base_url=f"{server.url}/v1", api_key="theirs")
        first = mine.chat.completions.create(model="tiny", messages=FIRST, max_tokens=40, temperature=0)
        assert first.usage.prompt_tokens_details.cached_tokens == 0
        answer = {"role": "assistant", "content": first.choices[0].message.content}
        longer = [*FIRST, answer, {"role": "user", "content": "and on"}]
        wanted = alone(longer, max_new_tokens=40)
        for client, cached in ((theirs, False), (mine, True)):
            found = client.chat.completions.create(model="tiny", messages=longer, max_tokens=40, temperature=0)
            assert found.choices[0].message.content == wanted.text
            assert (found.usage.prompt_tokens_details.cached_tokens > 90) is cached


def test_a_memory_is_read_by_its_namespace_alone(tiny_folder, tmp_path, alone):
    texts = UserTexts(memory=tmp_path / "answers.dwm")
    asked = {"messages": FIRST, "max_tokens": 120, "temperature": 0}
    copied = {}
    with running(Setup(str(tiny_folder), None, "memory", "fixed:6", texts)) as server:
        for user in ("a", "b", "a"):
            found = httpx.post(
                f"{server.url}/v1/chat/completions", json=asked | {"user": user},
                headers={"x-draftwood": "trace"}, timeout=60,
            ).json()  # fmt: skip
            assert found["choices"][0]["message"]["content"] == alone(FIRST, max_new_tokens=120).text
            copied.setdefault(user, []).append(found["draftwood"][0]["sources"].count("memory"))
    assert copied["b"] == [0]
    assert copied["a"][0] == 0
    assert copied["a"][1] > 60
    assert (tmp_path / "answers.dwm").exists()
