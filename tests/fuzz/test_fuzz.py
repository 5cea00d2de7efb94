"""Sixty of the stories that ``make fuzz`` tells by the thousand, and tests that it finds errors."""

import json
import subprocess
import sys

import pytest
import torch

import draftwood
from tests.engines.tiny import build
from tests.fuzz.calls import Call, WrongTextError
from tests.fuzz.gguf_story import GgufStory
from tests.fuzz.interrupt import interrupted
from tests.fuzz.story import Story, tell
from tests.tiers import rest_is_slow


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Models of this size are not faster with more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", rest_is_slow(range(60), *range(0, 60, 4)))
def test_story(number):
    found = tell(0, number)
    assert not found["error"], "\n".join([found["error"], *found["story"]])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["cpu", "llama.cpp"])
@pytest.mark.parametrize("number", rest_is_slow(range(40), *range(0, 40, 8)))
def test_story_of_an_exact_engine(engine, number):
    story = GgufStory(engine, 0, number)
    try:
        story.tell()
    except Exception as error:
        raise AssertionError("\n".join(story.log)) from error


def test_a_story_is_the_same_again():
    told = []
    for _ in range(2):
        story = Story(0, 3)
        story.tell()
        told.append([line.split("objects=")[0] for line in story.log])
    assert told[0] == told[1]
    assert len(told[0]) > 2


def test_a_wrong_token_is_found():
    call = Call(build("llama"), "generate", [[5, 6, 7, 5, 6]], 12)
    (truth,) = call.expected()
    assert call.check([truth], [truth]) == 0
    wrong = [*truth[:7], (truth[7] + 1) % 64, *truth[8:]]
    with pytest.raises(WrongTextError, match="token 7 differs"):
        call.check([wrong], [truth])
    with pytest.raises(WrongTextError, match="token 7 differs"):
        call.check([truth[:7]], [truth])
    assert call.check([truth[:7]], [truth], cut=True) == 0


def test_sampled_truth_is_that_of_plain_decoding():
    call = Call(build("qwen3"), "generate", [[5, 6, 7]], 16, ["penalty"], {"temperature": 0.8, "seed": 4})
    call.objects = {"drafters": "none"}
    assert call.given() == call.expected()


def test_an_interrupt_comes_at_its_line():
    model = build("llama")
    stream = draftwood.stream(model, [5, 6, 7], max_new_tokens=30, drafters="ngram")
    with pytest.raises(KeyboardInterrupt), interrupted(2000):
        list(stream)
    assert sys.gettrace() is None or "interrupt" not in repr(sys.gettrace())
    assert len(stream.generation.ids) < 30


@pytest.mark.slow
def test_the_command_goes_on_behind_what_is_done(tmp_path):
    rows = tmp_path / "rows.jsonl"
    command = [sys.executable, "-m", "tests.fuzz", "--seed", "5", "--cases", "1", "-o", str(rows)]
    for cases in ("1", "2"):
        command[command.index("--cases") + 1] = cases
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "0 wrong" in done.stdout
    assert [json.loads(line)["number"] for line in rows.read_text().splitlines()] == [0, 1]
