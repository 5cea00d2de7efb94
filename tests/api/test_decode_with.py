"""``model.generate(custom_generate=decode_with())`` gives what ``model.generate`` gives, drafted or not."""

from contextlib import contextmanager
from functools import partial

import pytest
import torch
from tests.api.generating import ONE, PROMPT, ROWS, SETS, SETTINGS, Every, batch, drafted, plain, same, speller
from tests.engines.tiny import FAMILIES, build
from tests.tiers import rest_is_slow
from transformers import GenerationConfig, LogitsProcessor, StoppingCriteria, StoppingCriteriaList

import draftwood
from draftwood.engines.transformers import shared
from draftwood.errors import PromptError, UsageError


@pytest.mark.parametrize("family", rest_is_slow(FAMILIES, "llama", "qwen2-window", "gemma3", "mistral-window"))
def test_greedy_text(family):
    same(build(family))


@contextmanager
def number_format(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize(
    ("around", "setting"),
    [
        (torch.device, "meta"), (number_format, torch.bfloat16), (number_format, torch.float64),
        (torch.inference_mode, True), (torch.set_grad_enabled, True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("family", ["llama", "mistral-window"])
def test_what_torch_is_set_to_around_a_call_changes_no_text_and_outlives_no_call(
    family, around, setting, monkeypatch
):
    """The first call with a model decides how it is run from then on."""
    monkeypatch.setattr(shared, "_passed", {})
    model = build(family)
    text = plain(model, stopping_criteria=[After(30)])
    decode = draftwood.decode_with(SETS["tree"])
    with around(setting):
        ours = drafted(model, decoding=decode, streamer=Notes(), stopping_criteria=[After(30)])
        assert ours.tolist() == text.tolist()
        assert drafted(model, decoding=decode, do_sample=True).shape[1] > len(PROMPT)
    assert shared.known_target(model).decoder is not None  # the fastest way, as without
    same(model)


@pytest.mark.parametrize("family", ["llama", "mistral-window"])
def test_autocast_is_refused_before_the_first_token_and_spoils_nothing(family, monkeypatch):
    monkeypatch.setattr(shared, "_passed", {})
    model, streamer, on = build(family), Notes(), partial(torch.autocast, "cpu", torch.bfloat16)
    refused = partial(pytest.raises, UsageError, match=r"torch\.autocast is on")
    for _ in range(2):  # before the first use and after it
        with on(), refused():
            drafted(model, streamer=streamer)
        with on(), refused():
            draftwood.generate(model, PROMPT, max_new_tokens=4)
        text = speller().decode(same(model)[0, len(PROMPT) :])
    assert streamer.ends == 2  # nobody waits for ever
    stream = draftwood.stream(model, PROMPT, max_new_tokens=40, tokenizer=speller())
    begun = next(stream).text
    with on():
        assert begun + "".join(piece.text for piece in stream) == text
    with on(), on(enabled=False):
        same(model)


def test_ids_of_fewer_bits_go_on_in_int64_or_are_refused(llama):
    assert same(llama, {**ONE, "input_ids": ONE["input_ids"].int()}).dtype == torch.int64
    for kind in (torch.int16, torch.uint8, torch.float32):
        ids = {**ONE, "input_ids": ONE["input_ids"].to(kind)}
        with pytest.raises(PromptError, match=f"input_ids are {kind}"):
            drafted(llama, ids)


def test_decode_with_drafts_and_tells_how(llama):
    decoding = draftwood.decode_with("ngram", "fixed:16")
    ids = drafted(llama, decoding=decoding)[0, len(PROMPT) :].tolist()
    (written,) = decoding.generations
    assert written.ids == ids
    assert set(written.sources) == {"ngram", "model"}
    assert written.stats.acceptance_rate > 0
    assert (written.finish_reason, written.prompt_tokens) == ("length", len(PROMPT))
    assert len(written.steps) < 39


def test_a_tokenizer_may_know_more_tokens_than_the_model(llama):
    class Longer:  # a token for padding was added, and the model never resized
        def __getattr__(self, name):
            return getattr(speller(), name)

        def __call__(self, *arguments, **named):
            return speller()(*arguments, **named)

        def __len__(self):
            return len(speller()) + 1

    longer = draftwood.decode_with("ngram", tokenizer=Longer())
    assert torch.equal(drafted(llama, decoding=longer), plain(llama))


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(llama, name):
    same(llama, **SETTINGS[name])


def test_prefixes_that_are_allowed(llama):
    def allowed(row, ids):
        return [(int(ids[-1]) * 3 + i + row) % 64 for i in range(1 + len(ids) % 3)]

    same(llama, prefix_allowed_tokens_fn=allowed)
    same(llama, batch(ROWS), prefix_allowed_tokens_fn=allowed)


def test_the_callers_own_processor_is_called_for_one_text_and_left_alone_for_several(llama):
    mine = Every()
    drafted(llama, logits_processor=[mine])
    assert mine.calls == 40
    drafted(llama, batch(ROWS), logits_processor=[mine])
    assert mine.calls == 40


def test_processors_get_no_less_than_transformers_gives_them(llama):
    seen = {}

    class Looks(LogitsProcessor):
        def __call__(self, input_ids, scores):
            seen[who].append((input_ids.tolist(), input_ids.dtype, scores.shape, scores.dtype))
            return scores

    for who, generate in (("theirs", plain), ("ours", drafted)):
        seen[who] = []
        generate(llama, logits_processor=[Looks()])
    assert seen["ours"] == seen["theirs"]


class After(StoppingCriteria):
    """Ends a text at its ``count``-th even token, counting for itself."""

    def __init__(self, count=7):
        self.left, self.lengths = count, []

    def __call__(self, input_ids, scores, **kwargs):
        self.left -= int(input_ids[0, -1]) % 2 == 0
        self.lengths.append(input_ids.shape[1])
        return torch.full((len(input_ids),), self.left <= 0, device=input_ids.device)


def test_a_criterion_is_asked_for_every_token_and_is_the_callers_own(llama):
    theirs, ours = After(), After()
    a = plain(llama, stopping_criteria=StoppingCriteriaList([theirs]))
    b = drafted(llama, stopping_criteria=[ours])
    assert torch.equal(a, b)
    assert a.shape[1] < len(PROMPT) + 40
    assert ours.lengths == theirs.lengths


def test_stop_strings(llama):
    tokenizer = speller()
    text = same(llama)[0, len(PROMPT) :].tolist()
    stop = tokenizer.decode(text[12:15])
    theirs = plain(llama, stop_strings=[stop], tokenizer=tokenizer)
    decoding = draftwood.decode_with(stop_strings=stop, tokenizer=tokenizer)
    ours = drafted(llama, decoding=decoding)
    assert torch.equal(ours, theirs)
    assert ours.shape[1] <= len(PROMPT) + 15
    assert decoding.generations[0].finish_reason == "stop"
    with pytest.raises(UsageError, match="tokenizer"):
        drafted(llama, decoding=draftwood.decode_with(stop_strings=stop))


class Notes:
    """A streamer that writes down what happens to it."""

    def __init__(self):
        self.puts, self.ends = [], 0

    def put(self, value):
        self.puts.append(value.clone())

    def end(self):
        self.ends += 1


@pytest.mark.parametrize("given_to", ["generate", "decode_with", "both"])
def test_a_streamer_gets_the_prompt_then_each_token_then_the_end(llama, given_to):
    theirs, ours = Notes(), Notes()
    plain(llama, streamer=theirs)
    decoding = draftwood.decode_with(streamer=ours if given_to != "generate" else None)
    drafted(llama, decoding=decoding, streamer=ours if given_to != "decode_with" else None)
    assert ours.ends == theirs.ends == 1
    assert [v.tolist() for v in ours.puts] == [v.tolist() for v in theirs.puts]
    assert [v.shape for v in ours.puts] == [v.shape for v in theirs.puts]


def test_a_streamer_takes_one_text(llama):
    streamer = Notes()
    decoding = draftwood.decode_with(streamer=streamer)
    for rows in (3, 2):
        with pytest.raises(UsageError, match=f"the batch has {rows}"):
            drafted(llama, batch(ROWS[:rows]), decoding)
    assert (streamer.puts, streamer.ends) == ([], 2)
    other = Notes()
    with pytest.raises(UsageError, match="two streamers"):
        drafted(llama, decoding=decoding, streamer=other)
    assert (streamer.ends, other.ends) == (3, 1)  # nobody waits for ever


def test_a_text_within_a_call_of_transformers_does_not_reach_its_streamer(llama):
    class Asks(LogitsProcessor):
        def __call__(self, input_ids, scores):
            config = GenerationConfig(do_sample=False, max_length=12)
            self.text = draftwood.decode_with()(llama, torch.tensor([[1, 2, 3]]), [], [], config)
            return scores

    streamer, asks = Notes(), Asks()
    plain(llama, max_new_tokens=1, streamer=streamer, logits_processor=[asks])
    assert asks.text.shape == (1, 12)
    assert [len(put) for put in streamer.puts] == [1, 1]  # the prompt, and one token
