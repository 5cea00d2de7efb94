"""A random text in two random vocabularies, and what must hold at every step of it."""

from __future__ import annotations

import math
from random import Random

from tests.drafters.draft_model.random_tokenizers import KINDS, SPECIAL, random_text, random_tokenizer

from draftwood.drafters.draft_model.tokenizer_view import tokens_of
from draftwood.drafters.draft_model.translation import Translation
from draftwood.drafters.draft_model.writing import complete, valid
from draftwood.errors import VocabularyError

LOSSLESS = ("bytes", "bytes-spaced", "bytes-digits", "gemma", "metaspace-first", "metaspace-always")
"""Kinds that spell every character."""


LOSSY = ("words", "wordpiece", "lowercase")
"""Kinds whose ids do not give back their text."""


def tell(seed):
    """Tell one story; returns what it was about, and how many of the draft's tokens a fresh reading has, too."""
    random = Random(seed)
    weights = [0.3 if kind in LOSSY else 1 for kind in KINDS]
    kinds = random.choices(KINDS, weights, k=2)
    target, draft = (tokens_of(random_tokenizer(random, kind)) for kind in kinds)
    try:
        translation = Translation(target, draft, replacements(random))
    except VocabularyError:
        assert None in (target.prefix, draft.prefix)
        return {"kinds": kinds, "refused": True}
    assert not {*LOSSY} & {*kinds}
    session, seen, told, equal, read = translation.open(), [], list(draft.opening), 0, 0
    for _ in range(random.randint(1, 12)):
        ids = changed(random, target, seen)
        if ids[: len(seen)] != seen:
            session, seen, told = translation.open(), [], list(draft.opening)
        reading = session.grow(ids[len(seen) :])
        told[reading.kept :] = reading.added
        assert told == session.ids
        fresh = translation.open()
        fresh.grow(ids)
        seen = ids
        if kinds[1] in LOSSLESS:
            assert text_of(session) == text_of(fresh), "what is read step by step is what is read at once"
            assert text_of(session) == expected_text(translation, ids[: len(ids) - len(session._held)])
        equal += same_at_both_ends(session.ids, fresh.ids)
        read += max(len(session.ids), len(fresh.ids))
        check_written(
            random, session, translation, kinds[0] in LOSSLESS and "\u2581".encode() not in session._text
        )
    return {"kinds": kinds, "refused": False, "equal": equal, "read": read}


def same_at_both_ends(one, other):
    """Return how many tokens two lists begin and end with alike."""
    most = min(len(one), len(other))
    begin = next((n for n in range(most) if one[n] != other[n]), most)
    return begin + next((n for n in range(most - begin) if one[-1 - n] != other[-1 - n]), most - begin)


def replacements(random):
    pairs = (
        ("<|im_start|>", "<start_of_turn>"), ("<|im_start|>the", "<start_of_turn>x"), ("cat", "dog"),
        ("<|im_end|>\n", ""), ("</s>", "</s>"), (" ", "  "),
    )  # fmt: skip
    return random.sample(pairs, random.choice((0, 0, 0, 1, 3)))


def changed(random, target, ids):
    """Return a text that goes on, that was cut and goes on, or another one."""
    what = random.random()
    if what < 0.2:
        ids = ids[: random.randint(0, len(ids))]
    elif what < 0.25:
        ids = []
    text = random_text(random, random.choice((0, 1, 1, 2, 5, 20)))
    if random.random() < 0.3:
        text += random.choice(SPECIAL) * random.choice((1, 1, 3))
    new = list(target.encode(text))
    if random.random() < 0.3:  # models choose what no tokenizer would
        new += random.choices(range(-2, len(target.pieces) + 2), k=random.randint(1, 8))
    return [*ids, *new[: random.randint(0, len(new))]]


def text_of(session):
    """Return the bytes of the draft's tokens."""
    pieces = session._draft.pieces
    return _comparable(session, b"".join(pieces[token] or b"" for token in session.ids))


def expected_text(translation, ids):
    """Return the bytes of the target's tokens as the draft should read them, without haste."""
    rules, names = translation.rules, translation.target.pieces
    fixed = lambda after: b"".join(translation.draft.pieces[token] or b"" for token in after)  # noqa: E731
    parts, rest, at, before = [fixed(translation.draft.opening)], b"", 0, None
    while at < len(ids):
        unit = next(
            (unit for unit in rules.units.get(ids[at], ()) if tuple(ids[at : at + len(unit[0])]) == unit[0]), None
        )
        if unit is not None:
            parts, rest, at, before = [*parts, fixed(unit[1])], b"", at + len(unit[0]), unit[0][-1]
            continue
        piece = (names[ids[at]] if 0 <= ids[at] < len(names) else None) or b""
        if ids[at] in rules.named and before == ids[at]:
            piece = b""
        characters, rest = complete(rest + piece)
        parts, at, before = [*parts, characters], at + 1, ids[at]
    session = translation.open()
    return _comparable(session, b"".join(parts))


def _comparable(session, text):
    """Return a text without what dummy prefixes and the sign for a space leave open."""
    text = text.replace("\u2581".encode(), b" ")
    return text.replace(b" ", b"") if session._draft.prefix or session._own.target.prefix else text


def check_written(random, session, translation, is_whole):
    """What is written amounts to the drafted characters, and so do the beliefs."""
    target, draft = translation.target, translation.draft
    drafted = list(draft.encode(random_text(random, 4)))[: random.randint(0, 12)]
    if random.random() < 0.3:
        drafted += random.choices(range(-2, len(draft.pieces) + 2), k=3)
    beliefs = [random.uniform(0.1, 1) for _ in drafted]
    written = session.write(drafted, beliefs)
    if session._held:
        assert written == ([], [])
        return
    assert len(written.ids) == len(written.probabilities)
    assert all(0 <= token < len(target.pieces) for token in written.ids)
    texts = [b"" if not 0 <= t < len(draft.pieces) else draft.pieces[t] or b"" for t in drafted]
    stop = next((n for n, t in enumerate(drafted) if t in draft.special or not texts[n]), len(drafted))
    whole, rest = b"".join(texts[:stop]), session._rest
    ids = written.ids[:-1] if written.ids and written.ids[-1] in translation.rules.back.values() else written.ids
    data = b"".join(target.pieces[token] for token in ids)
    at_start = len(session.ids) == session._fixed
    begins = {whole, whole.removeprefix(b" ")} if draft.prefix and at_start else {whole}
    fitting = [w for w in begins if w.startswith(rest)]
    data_too = {data, data.removeprefix(b" ")} if target.prefix else {data}
    assert not ids or any(w[len(rest) :].startswith(d) for w in fitting for d in data_too), (whole, rest, data)
    if is_whole and fitting and ids == written.ids and "\u2581".encode() not in whole:
        assert any(w[len(rest) : valid(w)] == d for w in fitting for d in data_too), (whole, rest, data)
        if (
            valid(whole) == len(whole)
            and not rest
            and stop == len(drafted)
            and not draft.prefix
            and not whole[-1:].isspace()
        ):
            assert math.isclose(math.prod(written.probabilities), math.prod(beliefs))
