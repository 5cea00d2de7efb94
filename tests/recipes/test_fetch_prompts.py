"""The recipe that turns public data sets into prompts: no network, rows as the data sets have them."""

from __future__ import annotations

import json
import sys
import types

import pytest

from recipes import fetch_prompts as recipe

QUOTES = {
    "title": ["Bridges (example.org)", "Towers (example.org)"],
    "extract": ["It was closed. ", "It is tall."],
}
NO_QUOTES = {"title": [], "extract": []}
WEB = {
    "question": {"dataset": "eli5", "id": "1", "full_text": "Why was the bridge closed? "},
    "quotes_0": QUOTES,
    "answer_0": "Because of rust [1].",
    "tokens_0": {"prefix": [1], "completion": [2]},
    "score_0": 0.5,
    "quotes_1": NO_QUOTES,
    "answer_1": "Nobody knows.",
    "tokens_1": {"prefix": [1], "completion": [2]},
    "score_1": -0.5,
}
ROWS = {
    "web-qa": WEB,
    "summary": {"article": "(CNN) A bridge was closed on Monday.", "highlights": "Bridge closed .", "id": "abc"},
    "grammar": {"input": "She go to school .", "target": "She goes to school ."},
    "chat": {"human_prompt": "Write a poem about a bridge.", "chatgpt_response": "Over the water"},
}


def text(messages):
    (message,) = messages
    assert message["role"] == "user"
    return message["content"]


def test_every_task_has_a_source_and_a_row_here():
    assert tuple(recipe.SOURCES) == ("web-qa", "summary", "grammar", "chat") == tuple(ROWS)


def test_a_question_stands_below_its_sources():
    content = text(recipe.web_qa(WEB))
    assert content.endswith(
        "\n\nBridges (example.org)\nIt was closed.\n\nTowers (example.org)\nIt is tall."
        "\n\nQuestion: Why was the bridge closed?"
    )


def test_quotes_may_come_as_a_list():
    listed = [{"title": t, "extract": e} for t, e in zip(QUOTES["title"], QUOTES["extract"], strict=True)]
    assert recipe.web_qa(WEB | {"quotes_0": listed}) == recipe.web_qa(WEB)


def test_quotes_of_the_second_answer_serve_where_the_first_has_none():
    assert recipe.web_qa(WEB | {"quotes_0": NO_QUOTES, "quotes_1": QUOTES}) == recipe.web_qa(WEB)
    assert recipe.web_qa(WEB | {"quotes_0": NO_QUOTES}) is None


def test_the_other_rows_become_requests():
    assert text(recipe.summary(ROWS["summary"])).endswith("\n\n(CNN) A bridge was closed on Monday.")
    assert text(recipe.grammar(ROWS["grammar"])).endswith("\n\nShe go to school .")
    assert text(recipe.chat(ROWS["chat"])) == "Write a poem about a bridge."


@pytest.mark.parametrize(
    ("task", "change"),
    [
        ("web-qa", {"question": {"full_text": " "}}),
        ("summary", {"article": ""}),
        ("summary", {"article": "x" * 20_000}),
        ("grammar", {"input": None}),
        ("grammar", {"input": "She goes to school ."}),
        ("chat", {"human_prompt": "\n"}),
    ],
)
def test_rows_that_are_empty_too_long_or_right_already_are_left_out(task, change):
    assert recipe.SOURCES[task].convert(ROWS[task] | change) is None


@pytest.mark.parametrize("task", ROWS)
def test_a_file_of_prompts_is_written(task, tmp_path, capsys):
    path = tmp_path / "prompts.jsonl"
    recipe.main([task, "-o", str(path)], rows=[ROWS[task]])
    (line,) = path.read_text(encoding="utf-8").splitlines()
    prompt = json.loads(line)
    assert set(prompt) == {"task", "name", "messages"}
    assert prompt["task"] == task
    assert prompt["name"] == f"{task}-0"
    assert prompt["messages"] == recipe.SOURCES[task].convert(ROWS[task])
    assert capsys.readouterr().err == f"1 prompts in {path}\n"
    assert list(tmp_path.iterdir()) == [path]


def test_the_one_sentence_variant_asks_for_one_sentence(tmp_path):
    path = tmp_path / "prompts.jsonl"
    recipe.main(["chat", "--one-sentence", "-o", str(path)], rows=[ROWS["chat"]])
    prompt = json.loads(path.read_text(encoding="utf-8"))
    assert prompt["task"] == "chat:one-sentence"
    assert prompt["messages"][0]["content"] == "Write a poem about a bridge.\n\nAnswer in one sentence."


def test_limit_and_seed_choose_the_rows(tmp_path):
    rows = [{"human_prompt": f"Count to {i // 2}."} for i in range(40)]  # each twice

    def names(*options):
        path = tmp_path / "prompts.jsonl"
        recipe.main(["chat", "-o", str(path), *options], rows=rows)
        return [json.loads(line)["name"] for line in path.read_text(encoding="utf-8").splitlines()]

    assert len(names()) == 20
    assert len(names("--limit", "7")) == 7
    assert names("--limit", "7") == names()[:7] == names("--seed", "0")[:7]
    assert names("--seed", "1") != names()


def test_letters_beyond_ascii_stay_as_they_are(tmp_path):
    path = tmp_path / "prompts.jsonl"
    recipe.main(["chat", "-o", str(path)], rows=[{"human_prompt": "Où est le café?"}])
    assert "Où est le café?" in path.read_text(encoding="utf-8")


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("old\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="has no column 'human_prompt'"):
        recipe.main(["chat", "-o", str(path)], rows=[ROWS["chat"], {"text": "?"}])
    with pytest.raises(SystemExit, match="no row of the data set could be used"):
        recipe.main(["chat", "-o", str(path)], rows=[])
    assert path.read_text(encoding="utf-8") == "old\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("options", [["--limit", "0"], ["--limit", "x"], ["-o", "no/such/folder/x.jsonl"]])
def test_wrong_options_are_refused(options, tmp_path):
    with pytest.raises(SystemExit) as caught:
        recipe.main(["chat", "-o", str(tmp_path / "x.jsonl"), *options], rows=[ROWS["chat"]])
    assert caught.value.code == 2


def test_the_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(SystemExit, match="pip install datasets"):
        recipe.load("chat")


def test_a_data_set_is_fetched_by_its_name_or_as_the_converted_copy(monkeypatch):
    asked = []

    def load_dataset(path, config, split, revision):
        asked.append((path, config, split, revision))
        if revision is None:
            raise RuntimeError("scripts are not supported")
        return [WEB]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    assert recipe.load("summary") == [WEB]
    assert asked == [("cnn_dailymail", "3.0.0", "test", None), ("cnn_dailymail", "3.0.0", "test", asked[1][3])]


def test_a_data_set_that_cannot_be_fetched_is_named(monkeypatch):
    def load_dataset(*_, **__):
        raise OSError("no route")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(SystemExit, match=r"Owishiboo/grammar-correction could not be fetched.*no route"):
        recipe.load("grammar")
