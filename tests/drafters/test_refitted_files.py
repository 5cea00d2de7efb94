"""Files whose damage somebody has made the checksums fit: an error of the format, or a file that can be used."""

import hashlib
import json
import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from draftwood.drafters.corpus.corpus import Corpus
from draftwood.drafters.corpus.drafter import CorpusDrafter
from draftwood.drafters.corpus.file import write_corpus
from draftwood.drafters.llama_cpp.ngram_counts import NgramCounts
from draftwood.drafters.llama_cpp.ngram_counts_file import read_counts, write_counts
from draftwood.errors import DraftwoodError, FileFormatError
from draftwood.files.format import ALIGNMENT, MAGIC, header_bytes, kind_of, read_payload

FIXED = struct.Struct("<8sIIQ16s16s")
RNG = np.random.default_rng(0)
TEXTS = [RNG.integers(0, 6, size).tolist() for size in (40, 3, 90)]


def write_of_corpus(path):
    made = Corpus.of(TEXTS, fingerprint="abc")
    sizes = [(len(part.tokens), len(part.suffixes)) for part in made.parts]
    write_corpus(path, made.parts, sizes, made.documents, {"tokenizer": "abc", "model": "smollm2"})


def write_of_counts(path):
    counts = NgramCounts()
    for text in TEXTS:
        counts.read(text, fresh=True)
    write_counts(path, counts.records(), tokenizer="abc")


def use_corpus(path):
    corpus = Corpus.open(path)
    draft(CorpusDrafter(corpora=(corpus,)))
    found = corpus.match(TEXTS[0][:5])
    corpus.occurrences(found, 8)
    for index in range(min(3, len(corpus.documents))):
        corpus.documents.name(index)


def draft(drafter):
    session = drafter.open(TEXTS[0][:20], None)
    for _ in range(3):
        tree = session.draft(16, 0, drafter.prior)
        tree.check_integrity()
        session.extend(tree.tokens[:2].tolist() or [1])
    session.close()


FORMATS = {"corpus": (write_of_corpus, use_corpus), "counts": (write_of_counts, read_counts)}


def refitted(description, payload, version=1):
    """A file with right checksums around any bytes as its description."""
    text = description + b" " * (-(FIXED.size + len(description)) % ALIGNMENT)
    checksum = hashlib.blake2b(payload, digest_size=16).digest()
    start = FIXED.pack(MAGIC, version, len(text), len(payload), checksum, bytes(16))[:-16]
    return start + hashlib.blake2b(start + text, digest_size=16).digest() + text + payload


@pytest.fixture(scope="module", params=sorted(FORMATS))
def whole(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "file"
    write, use = FORMATS[request.param]
    write(path)
    header, payload = read_payload(path, kind_of(path))
    return use, dict(header.about) | {"kind": header.kind}, payload, path.with_name("changed")


def used(use, path, content):
    path.write_bytes(content)
    with suppress(DraftwoodError):  # one sentence; whatever else is raised fails the test
        use(path)


WORDS = st.sampled_from([b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80"]) | st.binary(min_size=4, max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def test_what_refitted_makes_of_a_file_s_parts_is_that_file(whole):
    use, about, payload, path = whole
    kind = about["kind"]
    rest = {name: value for name, value in about.items() if name != "kind"}
    said = json.dumps({**rest, "kind": kind}, sort_keys=True, separators=(",", ":")).encode()
    checksum = hashlib.blake2b(payload, digest_size=16).digest()
    assert refitted(said, payload) == header_bytes(kind, rest, len(payload), checksum) + payload
    used(use, path, refitted(said, payload))


@pytest.mark.parametrize(
    "description",
    [b"", b"{", b"[]", b"[1]", b"7", b"null", b'"kind"', b"\xff\xfe", b'{"kind": 3}', b"{}", b"[" * 100000,
     b'{"kind": "corpus", "tokenizer": 3}', b'{"kind": null}', b"9" * 5000, b'{"kind": "corpus"} x'],
)  # fmt: skip
def test_a_description_that_is_none(whole, description):
    use, _, payload, path = whole
    path.write_bytes(refitted(description, payload))
    with pytest.raises(FileFormatError, match=r"description that cannot be read|another of draftwood's files"):
        use(path)


@given(name=st.data(), value=JSON)
def test_any_value_in_the_description(whole, name, value):
    use, about, payload, path = whole
    chosen = name.draw(st.sampled_from(sorted(about)))
    for changed in (about | {chosen: value}, {k: v for k, v in about.items() if k != chosen}):
        used(use, path, refitted(json.dumps(changed).encode(), payload))


@given(data=st.data())
@example(data=None)
def test_any_payload(whole, data):
    use, about, payload, path = whole
    said = json.dumps(about).encode()
    if data is None:
        for payload_too in (b"", payload[:-4], payload + bytes(64), bytes(len(payload)), b"\xff" * len(payload)):
            used(use, path, refitted(said, payload_too))
        return
    changed = bytearray(payload)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, max(0, len(payload) // 4 - 1))) * 4
        changed[at : at + 4] = data.draw(WORDS)
    used(use, path, refitted(said, bytes(changed)))
