"""stream(): pieces whose texts, joined, are the text; what was written is kept however it ends."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from tests.api.fake import TOKENIZER, proper, text_of, toy

from draftwood import Piece, generate, stream
from draftwood.engines.tokens.file_tokenizer import decoder
from draftwood.errors import PromptError, UnknownNameError, UsageError

PROMPT = TOKENIZER("ab a\u00e9b")["input_ids"]


@examples(max_examples=40)
@given(
    seed=st.integers(0, 1000),
    stop=st.lists(st.sampled_from(["b b", "ab", "\u6728\u00e9", "a\n", "\U0001f333 "]), max_size=2),
    limit=st.integers(1, 40),
    is_proper=st.booleans(),
)
def test_the_pieces_join_to_the_text(seed, stop, limit, is_proper):
    model = toy()
    settings = {"temperature": 1.0, "seed": seed, "stop": stop, "max_new_tokens": limit, "tokenizer": TOKENIZER}
    settings |= {"logits_processor": proper} if is_proper else {}
    streamed = stream(model, PROMPT, **settings)
    pieces, written = list(streamed), streamed.generation
    assert "".join(piece.text for piece in pieces) == written.text
    assert written.text == generate(model, PROMPT, **settings).text
    shown, ids = decoder(TOKENIZER, special=True), written.ids  # special tokens part the letters of stop strings
    end = min((shown(ids).find(s) for s in stop if s in shown(ids)), default=len(shown(ids)))
    whole = max(k for k in range(len(ids) + 1) if len(shown(ids[:k])) <= end)  # tokens before a stop string
    assert written.text == text_of(ids[:whole]) + shown(ids)[len(shown(ids[:whole])) : end]
    if is_proper:
        assert not any("\ufffd" in piece.text for piece in pieces[:-1]), "no half characters"
    assert {piece.source for piece in pieces} <= {"model", "ngram", "logits-extend", "recycling"}
    assert len(written.sources) == len(written.ids)


def test_text_comes_while_it_is_written():
    model = toy()
    how = {"max_new_tokens": 30, "drafters": "none", "logits_processor": proper}
    streamed = stream(model, PROMPT, tokenizer=TOKENIZER, **how)
    seen = []
    for piece in streamed:
        assert isinstance(piece, Piece)
        assert text_of(streamed.generation.ids).startswith("".join([*seen, piece.text]))
        seen.append(piece.text)
        assert streamed.generation.text.startswith("".join(seen))
    assert len(seen) > 10
    assert len(streamed.generation.ids) == 30


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_closing_early_keeps_what_was_written_and_closes_every_session(taken):
    model = toy()
    with stream(model, PROMPT, tokenizer=TOKENIZER, max_new_tokens=40, logits_processor=proper) as streamed:
        text = "".join(next(streamed).text for _ in range(taken))
    written = streamed.generation
    assert model.open_sessions == 0
    assert (written.text or "").startswith(text)
    assert written.finish_reason is None
    assert len(written.ids) < 40
    assert list(streamed) == []
    streamed.close()


LEFT_OPEN = """
import draftwood
from tests.api.fake import TOKENIZER, TOKENS
from tests.engines.tiny import SHAPE, LlamaConfig, LlamaForCausalLM

model = LlamaForCausalLM(LlamaConfig(**SHAPE | {"vocab_size": len(TOKENS)})).eval()
for piece in draftwood.stream(model, [5, 6, 7, 5, 6], tokenizer=TOKENIZER, max_new_tokens=20):
    break
left = draftwood.stream(model, [5, 6, 7, 5, 6], tokenizer=TOKENIZER, max_new_tokens=20)
next(left)
chat = draftwood.Conversation(model, tokenizer=TOKENIZER, max_new_tokens=4)
list(chat.say("ab"))
print("end")
"""


def test_what_is_left_open_does_not_end_the_process_badly():
    done = subprocess.run([sys.executable, "-c", LEFT_OPEN], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_an_interrupt_keeps_what_was_written_and_closes_every_session():
    def interrupted(prefix, row):
        if len(prefix) == len(PROMPT) + 9:
            raise KeyboardInterrupt
        return proper(prefix, row)

    model = toy()
    streamed = stream(model, PROMPT, tokenizer=TOKENIZER, drafters="none", logits_processor=interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(streamed)
    assert len(streamed.generation.ids) == 9
    assert streamed.generation.text == text_of(streamed.generation.ids)
    assert model.open_sessions == 0


def test_several_prompts_come_together_each_piece_with_its_prompt():
    model = toy()
    prompts = [PROMPT, PROMPT[::-1]]
    streamed = stream(model, prompts, tokenizer=TOKENIZER, max_new_tokens=12)
    texts = ["", ""]
    for piece in streamed:
        texts[piece.prompt] += piece.text
    assert texts == [g.text for g in streamed.generations]
    assert [g.ids for g in streamed.generations] == [g.ids for g in generate(model, prompts, max_new_tokens=12)]


def test_mistakes_come_at_once_or_with_the_first_piece():
    with pytest.raises(UsageError, match="temperature must"):
        stream(toy(), PROMPT, temperature=-1)
    with pytest.raises(PromptError, match="vocabulary"):
        next(stream(toy(), [99]))
    with pytest.raises(UnknownNameError, match="unknown setting 'tempertaure': did you mean 'temperature'"):
        stream(toy(), PROMPT, tempertaure=1.0)
    with pytest.raises(UnknownNameError, match="did you mean 'planner'"):
        stream("a model that is nowhere", PROMPT, planer="off")
