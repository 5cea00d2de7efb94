"""Grammars that are too much, and tokenizers that fail, give one clear error and hurt nobody else."""

import pytest

import draftwood
from draftwood.errors import DraftwoodError, UsageError
from draftwood.grammar import grammar
from draftwood.grammar.follower import Follower, Template
from draftwood.grammar.grammar import Grammar
from draftwood.grammar.vocabulary import Spelled, vocabulary_of

BOMB = Grammar.regex("((a{1,100}){1,100}){1,100}")


@pytest.fixture(scope="module")
def vocabulary(pieces):
    return vocabulary_of(pieces[1], len(pieces[1]), frozenset())


def nested(depth):
    schema = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def chained(length):
    refs = {n: {"a": {"$ref": f"#/$defs/d{n + 1}"}} for n in range(length)}
    parts = {f"d{n}": {"type": "object", "properties": to} for n, to in refs.items()}
    return {"$defs": parts | {f"d{length}": {"type": "string"}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        (lambda: Grammar.json_schema('{"not":' * 50_000 + "{}" + "}" * 50_000), "no JSON|cannot be"),
        (lambda: Grammar.json_schema(nested(200)), "recursion|cannot be"),
        (lambda: Grammar.json_schema({"enum": [object()]}), "cannot be written as JSON"),
        (
            lambda: Grammar.json_schema({"properties": {f"p{n}": {} for n in range(30_000)}}),
            "too many times|longer than",
        ),
        (lambda: Grammar.json_schema(chained(3_000)), "too many times|longer than"),
        (lambda: Grammar.json_schema({"type": "integer", "multipleOf": 999_983}), "too many digits"),
        (lambda: Grammar.json_schema({"type": "number", "multipleOf": 1.234567e-9}), "too many digits"),
        (lambda: Grammar.json_schema({"$ref": "#"}), "cannot be used"),
        (lambda: Grammar.json_schema({"$ref": "file:///etc/passwd"}), "cannot be used"),
        (lambda: Grammar.regex("(" * 10_000 + "a" + ")" * 10_000), "cannot be used"),
        (lambda: Grammar.regex("\ud800"), "cannot be used"),
        (lambda: Grammar.lark("start: " + "(" * 3_000 + '"a"' + ")" * 3_000), "nested"),
    ],
)
def test_what_is_too_much_is_refused_before_a_token(vocabulary, grammar, said):
    with pytest.raises(UsageError, match=said) as raised:
        Template(grammar(), vocabulary)
    assert len(str(raised.value)) < 500


DIVISORS = {f"p{n}": {"type": "integer", "multipleOf": 9999 - n} for n in range(200)}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {f"^p{n}$": {} for n in range(20_000)}},
        {"patternProperties": {f"^p{n}$": {} for n in range(20_000)}},
        {"properties": DIVISORS},
        {"type": "integer", "allOf": [{"multipleOf": 9999}, {"multipleOf": 9998}]},
    ],
)
def test_what_takes_long_to_build_is_refused_once(monkeypatch, schema):
    monkeypatch.setattr(grammar, "TRIAL_SECONDS", 1.0)
    for _ in range(2):
        with pytest.raises(UsageError, match=r"longer than 1 seconds|too many times"):
            Grammar.json_schema(schema).compiled()
        monkeypatch.setattr(grammar, "_TRIAL", "a second process would fail")


def test_waiting_for_a_busy_machine_is_no_work(monkeypatch, vocabulary):
    monkeypatch.setattr(grammar, "TRIAL_SECONDS", 1.0)
    monkeypatch.setattr(grammar, "_TRIAL", f"import time\ntime.sleep(2)\n{grammar._TRIAL}")
    large = Grammar.json_schema({"properties": {f"property {n}": {"type": "null"} for n in range(100)}})
    assert len(large.compiled()) > grammar.LARGE
    Template(large, vocabulary)


def test_a_large_grammar_is_told_what_is_wrong_with_it():
    named = {f"property {n}": {"type": "null"} for n in range(100)}
    with pytest.raises(UsageError, match="uniqueItems"):
        Grammar.json_schema({"properties": {**named, "é": {"uniqueItems": True}}}).compiled()


def test_small_divisors_and_names_like_them_are_held(vocabulary):
    divided = {"type": "integer", "multipleOf": 100}
    schema = {"type": "object", "properties": {"multipleOf": divided, "b": {"const": '"multipleOf": 999983'}}}
    Template(Grammar.json_schema(schema), vocabulary)


def test_a_grammar_that_gets_too_complex_ends_its_own_text_alone(endless):
    """llguidance takes such an expression, and gives up in the middle of the text."""
    model, tokenizer = endless
    given = {"tokenizer": tokenizer, "max_new_tokens": 300, "drafters": "ngram", "temperature": 1.0}
    with pytest.raises(DraftwoodError, match=r"too complex at this place.*simplify"):
        draftwood.generate(model, "hello", grammar=BOMB, **given)
    assert draftwood.generate(model, "hello", grammar=Grammar.regex("(ab){3}"), **given).text == "ababab"


def test_a_follower_goes_on_after_a_place_that_is_too_complex(vocabulary):
    follower, answer = Follower(BOMB, vocabulary), list[int]()
    for _ in range(500):
        try:
            allowed = follower.allowed(answer)
        except UsageError as error:
            assert "too complex" in str(error)  # noqa: PT017
            break
        answer.append(int(allowed[-1]))
    assert 10 < len(answer) < 500
    assert follower.allowed([]).tolist() == follower.twin().allowed([]).tolist()
    assert follower.allowed(answer[:5]).tolist() == Follower(BOMB, vocabulary).allowed(answer[:5]).tolist()


class Failing:
    """A tokenizer with a token per letter, and a few longer ones, that can do no more than list them."""

    bos_token_id, eos_token_id, all_special_ids = None, 0, [0]
    words = ("<end>", "a", "b", "ab", "hell", "o", "é", " ", "h", "e", "l")

    def __init__(self, said):
        self._said = said

    def __call__(self, text, add_special_tokens=True):
        if isinstance(self._said, Exception):
            raise self._said
        return {"input_ids": self._said}

    def __len__(self):
        return len(self.words)

    def token_bytes(self):
        return [word.encode() for word in self.words]


@pytest.mark.parametrize("said", [ValueError("boom"), [1], [0], [99], "text", None])
def test_a_tokenizer_that_fails_or_lies_is_replaced(said):
    tokenizer = Failing(said)
    spelled = Spelled(tokenizer, 12, [0])
    assert spelled(b"hello ab") == [4, 5, 7, 3]
    assert spelled(b"\xff") == []
    vocabulary = vocabulary_of(tokenizer, 12, frozenset())
    follower = Follower(Grammar.regex("hello ab(a|b)"), vocabulary)
    assert follower.forced([], 9) == [4, 5, 7, 3]
    assert follower.allowed([4, 5, 7]).tolist() == [3]


def test_several_ends_of_a_foreign_tokenizer_are_all_allowed():
    vocabulary = vocabulary_of(Failing([1]), 12, frozenset({0, 8}))
    assert Follower(Grammar.regex("a|aa"), vocabulary).allowed([1]).tolist() == [0, 1, 8]


def test_pruning_that_fails_costs_no_text(pieces, monkeypatch):
    def broken(*_):
        raise RuntimeError("boom")

    model, tokenizer = pieces
    grammar = Grammar.json_schema({"type": "object", "properties": {"a": {"type": "integer"}}})
    given = {"tokenizer": tokenizer, "grammar": grammar, "max_new_tokens": 30, "drafters": "ngram"}
    before = draftwood.generate(model, "hello", **given)
    monkeypatch.setattr(Follower, "fitting", broken)
    assert draftwood.generate(model, "hello", **given).ids == before.ids
