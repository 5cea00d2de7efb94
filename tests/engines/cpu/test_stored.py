"""Prefixes that are stored as bytes: a text that goes on from them has the bits of one that is read afresh."""

import json
import os
import shutil
from time import time

import numpy as np
import pytest

from draftwood.engines.cpu.code.instructions import INSTRUCTIONS, runnable
from draftwood.engines.cpu.target import CpuTarget
from draftwood.errors import ModelError, UsageError
from draftwood.tree import TokenTree
from tests.engines.cpu.tiny_families import build, tensors_of, write
from tests.serve.scripted import save_bytes
from tests.tiers import rest_is_slow

FAMILIES = ("llama", "gemma3", "gemma4", "lfm2", "gpt-oss", "qwen35", "granitehybrid", "deepseek3")
TEXT = np.random.default_rng(9).integers(0, 300, 210).tolist()


@pytest.fixture(scope="module")
def files(tiny_gguf, tmp_path_factory):
    def get(family):
        if family != "deepseek3":
            return tiny_gguf(family, "Q8_0")
        model = build(family)
        place = tmp_path_factory.mktemp("stored") / "model.gguf"
        return write(place, family, tensors_of(family, model), model.config, "F32")

    return get


def stored(target, ids):
    """What is stored of a text: its pages, and its states by length, all as bytes."""
    ((session, _),) = target.open([ids])
    prefix, form = target.save(session), target.stored_form()
    pages = [np.frombuffer(page.tobytes(), np.uint8) for page in prefix.pages[: len(ids) // form.tokens]]
    states = {end: np.frombuffer(one.tobytes(), np.uint8) for end, one in prefix.states().items()}
    assert {len(page) for page in pages} == {form.page_bytes}
    assert {len(state) for state in states.values()} <= {form.state_bytes}
    return form, pages, states


@pytest.mark.parametrize("family", rest_is_slow(FAMILIES, "llama", "lfm2", "qwen35"))
def test_a_text_goes_on_from_stored_pages_with_the_same_bits(files, family):
    path = files(family)
    source = CpuTarget(path, threads=1)
    other = CpuTarget(path, threads=2, instructions=INSTRUCTIONS[runnable()[-1]])
    text = [token % other.capabilities.vocab_size for token in TEXT]
    form, pages, states = stored(source, text)
    assert other.stored_form() == form
    length = max(states) if form.state_bytes else len(pages) * form.tokens
    assert length == 192
    prefix = other.restored(text[:length], pages[: length // form.tokens], states.get(length))
    session = other.resume(prefix, length)
    assert session.length == length
    (scores,) = other.extend([(session, text[length:])])
    ((fresh, truth),) = other.open([text])
    assert scores.raw(0).tobytes() == truth.raw(0).tobytes()
    tree = TokenTree.build([1, 2, 3], [-1, -1, 0])
    both = other.score([(session, 5, tree), (fresh, 5, tree)])
    assert all(both[0].raw(row).tobytes() == both[1].raw(row).tobytes() for row in range(4))
    session.truncate(100)  # the pages are shared, and those that are written to are copied
    (scores,) = other.extend([(session, text[session.length : 130])])
    ((_, truth),) = other.open([text[:130]])
    assert scores.raw(0).tobytes() == truth.raw(0).tobytes()


@pytest.mark.parametrize("family", ["llama", "lfm2", "qwen35"])
def test_what_is_saved_stays_as_it_is_while_its_text_goes_on(files, family):
    target = CpuTarget(files(family), threads=1)
    text = [token % target.capabilities.vocab_size for token in TEXT]
    ((session, _),) = target.open([text[:140]])
    prefix = target.save(session)

    def content():
        return [page.tobytes() for page in prefix.pages], [one.tobytes() for one in prefix.states().values()]

    before = content()
    twin = target.resume(prefix, 130)
    for one in (session, twin):
        target.extend([(one, text[:9])])
        target.score([(one, 5, TokenTree.build([1, 2, 3], [-1, -1, 0]))])
        one.keep([0, 2])
        one.truncate(70)
        target.extend([(one, text[:90])])
    assert content() == before


@pytest.mark.parametrize("family", ["llama", "qwen35"])
def test_what_was_not_stored_by_such_a_target_is_refused(files, family):
    """Without its state a text would go on from zeros; of smaller pages a pass would read memory behind them."""
    target = CpuTarget(files(family), threads=1)
    text = [token % target.capabilities.vocab_size for token in TEXT]
    form, pages, states = stored(target, text)
    length = max(states, default=192)
    whole = pages[: length // form.tokens]
    target.restored(text[:length], whole, states.get(length))
    other = None if form.state_bytes else np.zeros(8, np.uint8)
    with pytest.raises(UsageError, match=r"^a stored state has \d bytes here, not \d+: give"):
        target.restored(text[:length], whole, other)
    for some in (whole[1:], [*whole[1:], whole[0][:-64]]):
        with pytest.raises(UsageError, match=r"^192 tokens are stored in whole pages of 64, \d+ bytes each: give"):
            target.restored(text[:length], some, states.get(length))


def test_other_settings_of_a_folder_have_another_form(tmp_path):
    folder = save_bytes(tmp_path / "tiny")
    form = CpuTarget(folder).stored_form()
    assert CpuTarget(folder).stored_form() == form
    assert CpuTarget(folder, becomes="int8").stored_form() != form
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-3}))
    assert CpuTarget(folder).stored_form() != form


def test_other_weights_have_another_form(tiny_gguf, tmp_path):
    path = shutil.copy(tiny_gguf("llama", "Q8_0"), tmp_path / "model.gguf")
    old = path.stat().st_mtime - 1000
    os.utime(path, (old, old))
    target = CpuTarget(path)
    form = target.stored_form()
    assert CpuTarget(path).stored_form() == form == target.stored_form()
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 1
    path.write_bytes(raw)
    os.utime(path, (old, old))  # size and time are as they were
    assert CpuTarget(path).stored_form() != form
    raw += bytes(32)
    path.write_bytes(raw)
    with pytest.raises(ModelError, match="has changed since it was loaded"):
        target.stored_form()


def test_what_a_file_holds_is_remembered_once_its_time_is_certain(tiny_gguf, monkeypatch):
    target = CpuTarget(tiny_gguf("llama", "Q8_0"))
    monkeypatch.setattr("draftwood.engines.files.open_file.time", lambda: time() + 60)
    form = target.stored_form()
    monkeypatch.setattr("draftwood.engines.files.open_file.OpenFile.read", lambda *_: pytest.fail("it was read"))
    assert target.stored_form() == form
