"""A drafter of another package that opens a file of its own and takes users' texts; nothing else knows of it."""

import sys
from pathlib import Path

import numpy as np
import pytest
from tests.api.fake import toy
from tests.api.test_user_texts import IDS, KNOWN, SETTINGS, AnotherTokenizer, answer

import draftwood.api
from draftwood import generate
from draftwood.api.setup import Setup
from draftwood.api.user_texts import UserTexts
from draftwood.drafters.base import BaseDrafter
from draftwood.drafters.load import DRAFTERS
from draftwood.engines.tokens.fingerprint import tokenizer_fingerprint
from draftwood.errors import DrafterError, UsageError, VocabularyError
from draftwood.files.format import write_file

SOURCE = '''
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from draftwood.contracts import Takes, TokenFile
from draftwood.drafters.base import BaseDrafter, TextSession
from draftwood.files.format import read_payload
from draftwood.tree import TokenTree


class Phrases(BaseDrafter):
    """Copies from a file of phrases."""

    name = "phrases"
    takes = Takes(prediction=True, memory=True, corpus=True, context=True)

    def __init__(self, file: str, plain: bool = False):
        path = Path(file)
        header, payload = (None, path.read_bytes()) if plain else read_payload(path, "phrases")
        self.opened = TokenFile(f"the phrases {path}", header.tokenizer if header else None, path)
        self.ids, self.brought = np.frombuffer(payload, dtype=np.int32), []

    @property
    def files(self):
        return [self.opened]

    def with_user_texts(self, texts):
        self.brought.append(texts)
        return self

    def open(self, prompt, noise):
        return Session(prompt, self.ids)


class Session(TextSession):
    def __init__(self, prompt, ids):
        self.ids, self.at = ids, None
        super().__init__(prompt)

    def begin_answer(self, ids):
        self.at = len(self.text)
        super().begin_answer(ids)

    def draft(self, nodes, probes, odds):
        done = len(self.text) - self.at
        return TokenTree.build(self.ids[done : done + nodes].copy(), belief=odds[0])
'''


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """An installed distribution with the drafter ``phrases``."""
    info = tmp_path / "site" / "phrases-1.0.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site" / "phrases_of_others.py").write_text(SOURCE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: phrases\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[draftwood.drafters]\nphrases = phrases_of_others:Phrases\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    yield
    sys.modules.pop("phrases_of_others", None)


def kept(path, ids, tokenizer=KNOWN):
    about = {} if tokenizer is None else {"tokenizer": tokenizer_fingerprint(tokenizer)}
    write_file(path, "phrases", about, [np.array(ids, dtype=np.int32)])
    return path


@pytest.mark.usefixtures("installed")
def test_the_file_of_a_plug_in_is_opened_and_drafted_from(tmp_path):
    plain = answer()
    path = kept(tmp_path / "p.dwp", plain.ids)
    written = generate(toy(), IDS, drafters=f"phrases:file={path}", **SETTINGS)
    assert written.ids == plain.ids
    assert len(written.steps) < len(plain.steps) / 3
    assert "phrases" in written.sources


@pytest.mark.usefixtures("installed")
def test_the_tokenizer_of_a_plug_in_s_file_is_compared_as_those_of_our_files_are(tmp_path):
    path = kept(tmp_path / "p.dwp", IDS, AnotherTokenizer())
    with pytest.raises(VocabularyError, match=r"the phrases .*p\.dwp holds the ids of another tokenizer"):
        generate(toy(), IDS, drafters=f"phrases:file={path}", **SETTINGS)
    with pytest.raises(UsageError, match=r"p\.dwp belongs to one tokenizer, and none is known here to compare"):
        generate(toy(), IDS, drafters=f"phrases:file={path}")
    untold = kept(tmp_path / "u.dwp", IDS, None)
    assert generate(toy(), IDS, drafters=f"phrases:file={untold}", max_new_tokens=3).ids


class Boastful(BaseDrafter):
    """Declares what is no declaration."""

    name = "boastful"

    def open(self, prompt, noise):
        raise NotImplementedError


@pytest.mark.parametrize(("name", "value"), [("takes", "memory"), ("files", ["a.txt"])])
def test_wrong_declarations_are_told(name, value):
    drafter = type("Wrong", (Boastful,), {name: value})()
    with pytest.raises(DrafterError, match=f"drafter 'boastful': '{name}' must be"):
        Setup(toy(), KNOWN, drafter, "fixed:8", UserTexts())


def test_the_doors_know_no_drafter_by_its_type():
    types = [make.__name__ for make in DRAFTERS.values()]
    for file in Path(draftwood.api.__file__).parent.glob("*.py"):
        assert not [name for name in types if name in file.read_text()], file
