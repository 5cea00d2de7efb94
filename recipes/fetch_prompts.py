"""Turn public data sets into files of prompts: the four tasks on which n-gram drafting was first compared.

    python recipes/fetch_prompts.py web-qa -o web-qa.jsonl --limit 100

writes one JSON object per line with the keys ``task``, ``name`` and ``messages``. It needs a network and the
library ``datasets``; draftwood itself needs neither. Mind the licence of each data set before you pass a file on.

============  ==========================================
task          data set
============  ==========================================
``web-qa``    ``openai/webgpt_comparisons``
``summary``   ``cnn_dailymail``, configuration ``3.0.0``
``grammar``   ``Owishiboo/grammar-correction``
``chat``      ``MohamedRashad/ChatGPT-prompts``
============  ==========================================
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

Row = Mapping[str, Any]
Message = dict[str, str]

LONGEST = 12_000
"""Characters of a prompt: longer ones would not fit the 8,192 positions of the smallest model."""

ONE_SENTENCE = "Answer in one sentence."


class Source(NamedTuple):
    """A data set, and how a row of it becomes a prompt (``None`` leaves the row out)."""

    path: str
    config: str | None
    split: str
    convert: Callable[[Row], list[Message] | None]


def web_qa(row: Row) -> list[Message] | None:
    """Question with the extracts that were found for the first answer, or else for the second."""
    question = _text(row["question"]["full_text"])
    for side in ("quotes_0", "quotes_1"):
        found = [f"{_text(title)}\n{_text(extract)}" for title, extract in _quotes(row[side]) if _text(extract)]
        if found and question:
            sources = "\n\n".join(found)
            return _asked(f"Answer the question using the sources below.\n\n{sources}\n\nQuestion: {question}")
    return None


def summary(row: Row) -> list[Message] | None:
    """News article to be summarised."""
    article = _text(row["article"])
    return _asked(f"Summarise this article.\n\n{article}") if article else None


def grammar(row: Row) -> list[Message] | None:
    """Sentence to be corrected; rows whose sentence is already right are left out."""
    wrong, right = _text(row["input"]), _text(row["target"])
    if not wrong or wrong == right:
        return None
    return _asked(f"Correct the grammar of this text. Reply with the corrected text only.\n\n{wrong}")


def chat(row: Row) -> list[Message] | None:
    """Prompt as somebody has typed it."""
    prompt = _text(row["human_prompt"])
    return _asked(prompt) if prompt else None


SOURCES: MappingProxyType[str, Source] = MappingProxyType(
    {
        "web-qa": Source("openai/webgpt_comparisons", None, "train", web_qa),
        "summary": Source("cnn_dailymail", "3.0.0", "test", summary),
        "grammar": Source("Owishiboo/grammar-correction", None, "train", grammar),
        "chat": Source("MohamedRashad/ChatGPT-prompts", None, "train", chat),
    }
)


def _quotes(quotes: Any) -> Iterator[tuple[Any, Any]]:
    """Yield titles and extracts; versions of ``datasets`` differ in what holds what, list or dictionary."""
    if isinstance(quotes, Mapping):
        yield from zip(quotes["title"], quotes["extract"], strict=True)
    else:
        for quote in quotes:
            yield quote["title"], quote["extract"]


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _asked(text: str) -> list[Message] | None:
    return [{"role": "user", "content": text}] if len(text) <= LONGEST else None


def lines(
    task: str, rows: Iterable[tuple[int, Row]], limit: int | None = None, one_sentence: bool = False
) -> Iterator[str]:
    """Yield one line of JSON per prompt.

    Parameters
    ----------
    task
        A key of :data:`SOURCES`.
    rows
        Numbers and rows of the data set; the number becomes part of the prompt's name.
    limit
        Stop after this many prompts; ``None`` for all.
    one_sentence
        Whether to ask for an answer in one sentence.

    Yields
    ------
    str
        A JSON object without a line end. A prompt that has already been seen is left out.
    """
    seen: set[str] = set()
    for number, row in rows:
        if limit is not None and len(seen) >= limit:
            return
        messages = SOURCES[task].convert(row)
        if messages is None or messages[-1]["content"] in seen:
            continue
        seen.add(messages[-1]["content"])
        if one_sentence:
            messages[-1]["content"] += f"\n\n{ONE_SENTENCE}"
        full = f"{task}:one-sentence" if one_sentence else task
        yield json.dumps({"task": full, "name": f"{task}-{number}", "messages": messages}, ensure_ascii=False)


def load(task: str) -> Sequence[Row]:
    """Return the rows of a task's data set, fetched if they are not here.

    Raises
    ------
    SystemExit
        If the library ``datasets`` is missing, or the data set cannot be fetched.
    """
    try:
        from datasets import load_dataset  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        sys.exit("the library datasets is missing: pip install datasets")
    path, config, split, _ = SOURCES[task]
    errors = []
    # Data sets that come as a script are refused by newer versions; the hub keeps a converted copy of them.
    for revision in (None, "refs/convert/parquet"):
        try:
            rows: Sequence[Row] = load_dataset(path, config, split=split, revision=revision)
        except Exception as error:  # whatever the network, the hub or the reader of the files raises
            errors.append(error)
        else:
            return rows
    sys.exit(f"the data set {path} could not be fetched ({errors[0]}): check the network and try again")


def in_order(rows: Sequence[Row], seed: int) -> Iterator[tuple[int, Row]]:
    """Yield numbers and rows in an order that depends on the seed alone."""
    rng = random.Random(seed)
    # random() is the one method whose sequence Python promises to keep, so it sorts instead of shuffle().
    for number in sorted(range(len(rows)), key=lambda _: rng.random()):
        yield number, rows[number]


def write(path: Path, made: Iterable[str]) -> int:
    """Write lines to a file, whole or not at all, and return how many there were."""
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    count = 0
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            for line in made:
                stream.write(line + "\n")
                count += 1
        if not count:
            raise SystemExit("no row of the data set could be used: have its columns changed?")
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
    return count


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


def main(arguments: Sequence[str] | None = None, rows: Sequence[Row] | None = None) -> None:
    """Write a file of prompts; ``rows`` stands in for the data set."""
    parser = argparse.ArgumentParser(description="Turn a public data set into a file of prompts.")
    parser.add_argument("task", choices=tuple(SOURCES))
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file to write, JSON lines")
    parser.add_argument("--limit", type=_at_least_one, default=100, help="how many prompts (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default: %(default)s)")
    parser.add_argument("--one-sentence", action="store_true", help="ask for answers of one sentence")
    args = parser.parse_args(arguments)
    if not args.output.parent.is_dir():
        parser.error(f"there is no folder {args.output.parent}: create it first")
    found = load(args.task) if rows is None else rows
    try:
        count = write(args.output, lines(args.task, in_order(found, args.seed), args.limit, args.one_sentence))
    except KeyError as error:
        sys.exit(f"the data set {SOURCES[args.task].path} has no column {error}: it has changed, report this")
    print(f"{count} prompts in {args.output}", file=sys.stderr)


if __name__ == "__main__":
    main()
