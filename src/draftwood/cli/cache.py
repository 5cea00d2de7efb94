"""``draftwood cache``: counts of what followed n-grams, for the levels of the drafter ngram-cache."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from draftwood.cli import early, options, screen
from draftwood.corpora.texts import documents
from draftwood.corpora.walk import MAX_BYTES, sources
from draftwood.errors import RecordError, UsageError
from draftwood.measure.records.lines import read_lines
from draftwood.models.fingerprint import tokenizer_fingerprint

if TYPE_CHECKING:
    from draftwood.drafters.llama_cpp.ngram_counts_file import CountsFile

Texts = Annotated[
    list[Path],
    Argument(
        metavar="TEXT...", help="Text files, folders, .jsonl of records (text; prompt, output; ids) or traces."
    ),
]
SomeTexts = Annotated[
    list[Path] | None, Argument(metavar="[TEXT...]", help="Texts to replay, as cache create reads them.")
]
File = Annotated[Path, Argument(metavar="FILE", help="Counts of draftwood or of llama.cpp.")]
Files = Annotated[list[Path], Argument(metavar="FILE...", help="Counts of draftwood or of llama.cpp.")]
Output = Annotated[Path, Option("--output", "-o", metavar="FILE", help="Write the counts here.")]
Tokenizer = Annotated[
    str | None, Option(metavar="MODEL", help="Model or folder whose tokenizer reads text. [default: smollm2]")
]
Format = Annotated[
    Literal["draftwood", "llama"],
    Option(help="draftwood: with tokenizer and checksum; llama: llama.cpp's own, which has neither."),
]
Sizes = Annotated[
    str, Option(metavar="N[-N]", help="Tokens of an n-gram: 2 for a static level, 1-4 for a dynamic one.")
]
Level = Annotated[
    Literal["static", "dynamic"] | None,
    Option(help="Level that FILE serves as. [default: static if its n-grams all have two tokens]"),
]
Chunk = Annotated[int, Option(min=3, metavar="N", help="Longest text replayed; longer ones are cut.")]
Draft = Annotated[int, Option(min=1, max=1 << 16, metavar="N", help="Most tokens of a draft.")]

_ENDINGS = (".jsonl", ".jsonl.zst")
_SHOWN = 5  # reasons why files were left out

app = options.group(
    "cache", "Counts of what followed n-grams: make, add up and inspect what the drafter ngram-cache reads."
)


@app.command()
def create(
    texts: Texts,
    output: Output,
    tokenizer: Tokenizer = None,
    format: Format = "draftwood",
    sizes: Sizes = "2",
    as_json: options.Json = False,
) -> None:
    """Count what follows each n-gram of some texts."""
    from draftwood.drafters.llama_cpp.ngram_counts_file import write_counts

    wanted = _sizes(sizes)
    _refuse_to_replace(output)
    from draftwood.drafters.llama_cpp.ngram_counts import NgramCounts

    counts, known, read = NgramCounts(wanted), _Tokens(tokenizer), 0
    with screen.progress() as bar:
        for ids in known.texts(texts, bar):
            counts.read(ids, fresh=True)
            read += len(ids)
    screen.say_skipped(known.skipped, _SHOWN)
    written = write_counts(output, counts.records(), format=format, tokenizer=known.fingerprint)
    _tell(written, as_json, {"tokens_read": read})


@app.command()
def merge(files: Files, output: Output, format: Format = "draftwood", as_json: options.Json = False) -> None:
    """Add up the counts of several files; FILE may be one of them."""
    from draftwood.drafters.llama_cpp.ngram_counts_file import common_tokenizer, read_counts, write_counts

    _refuse_to_replace(output)
    found = [read_counts(path) for path in files]
    tokenizer = common_tokenizer(found)
    from draftwood.drafters.llama_cpp.ngram_counts import NgramCounts

    counts = NgramCounts()
    with screen.busy(f"adding up {len(found)} files"):
        for file in found:
            counts.add(file.records)
        written = write_counts(output, counts.records(), format=format, tokenizer=tokenizer)
    _tell(written, as_json, {"files": len(found)})


@app.command()
def stats(
    file: File,
    texts: SomeTexts = None,
    tokenizer: Tokenizer = None,
    level: Level = None,
    chunk: Chunk = 4096,
    draft: Draft = 8,
    as_json: options.Json = False,
) -> None:
    """Show what a file holds and, given texts, how much of them it would have drafted.

    Each text is cut into pieces and replayed as if a model had written it; replayed pieces join the dynamic level.
    """
    from draftwood.drafters.llama_cpp.ngram_counts_file import read_counts

    found = read_counts(file)
    facts = _facts(found)
    if texts:
        level = level or ("static" if set(facts["ngrams"]) == {"2"} else "dynamic")
        facts["replay"] = _replay(found, texts, _Tokens(tokenizer), level, chunk, draft)
    screen.finish(facts, lambda: _show(facts), as_json=as_json)


class _Tokens:
    """Reads files of text, of records or of ids; the named model's tokenizer is loaded when there is text."""

    def __init__(self, tokenizer: str | None) -> None:
        self._name, self._known = tokenizer, None
        self.skipped: Counter[str] = Counter()

    def texts(self, paths: list[Path], progress: Callable[[int, int, str], None]) -> Iterator[list[int]]:
        """Yield the ids of each text: a file, or a record of a file of records that is named itself.

        In folders every file is text, and those are left out that a corpus would leave out.
        """
        found = sources(paths, MAX_BYTES, self.skipped)
        for number, source in enumerate(found):
            progress(number, len(found), source.name)
            if source.path in paths and source.path.name.endswith(_ENDINGS):
                yield from self._records(source.path)
            else:
                yield from (self._ids(text) for _, text in documents(source, (), self.skipped))
        progress(len(found), len(found), "")

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, loaded when it is first needed."""
        if self._known is None:
            self._known = options.load_tokenizer(self._name or options.MODEL_DEFAULT)
        return self._known

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the tokenizer; None where ids were read and none was named."""
        if self._known is None and self._name is None:
            return None
        return tokenizer_fingerprint(self.tokenizer)

    def _records(self, path: Path) -> Iterator[list[int]]:
        from draftwood.measure.records.traces import read_traces

        empty = True
        for number, row in read_lines(path):
            if row.get("row") == "header":  # what draftwood recorded: of several answers to a prompt, one
                yield from (trace.prompt_ids + trace.output_ids for trace in read_traces(path))
                return
            try:
                yield self._record(row)
            except ValueError as error:
                raise RecordError(f"{path}, line {number}: {error}") from error
            empty = False
        if empty:
            raise UsageError(f"{path} is empty: give a file with texts")

    def _record(self, row: Mapping[str, Any]) -> list[int]:
        for names in (("ids",), ("prompt_ids", "output_ids"), ("text",), ("prompt", "output")):
            if all(name in row for name in names):
                return [token for name in names for token in self._part(name, row[name])]
        raise ValueError(
            "has neither text, nor prompt and output, nor ids, nor prompt_ids and output_ids: add one"
        )

    def _part(self, name: str, value: Any) -> list[int]:
        if not name.endswith("ids"):
            if not isinstance(value, str):
                raise ValueError(f"{name} is no text")
            return self._ids(value)
        if not isinstance(value, list) or not all(type(i) is int and 0 <= i < 1 << 31 for i in value):
            raise ValueError(f"{name} is no list of token ids (whole numbers from 0)")
        return value

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


def _sizes(text: str) -> tuple[int, int]:
    written = re.fullmatch(r"([1-4])(?:-([1-4]))?", text.strip())
    low, high = (int(written[1]), int(written[2] or written[1])) if written else (1, 0)
    if low > high:
        raise UsageError(f"--sizes is written 2 or 1-4, of numbers from 1 to 4, not {text!r}")
    return low, high


def _refuse_to_replace(path: Path) -> None:
    """Refuse to replace anything but a file of counts, draftwood's or llama.cpp's."""
    from draftwood.drafters.llama_cpp.ngram_counts_file import KIND, read_counts

    early.check_replaceable(path, KIND, read_counts)


def _facts(file: CountsFile) -> dict[str, Any]:
    import numpy as np

    records = file.records
    sizes = (records[:, :4] >= 0).sum(axis=1)
    new = np.ones(len(records), dtype=np.bool_)
    new[1:] = (records[1:, :4] != records[:-1, :4]).any(axis=1)
    held = np.unique(sizes).tolist()
    return {
        "file": str(file.path),
        "format": file.format,
        "tokenizer": file.tokenizer,
        "bytes": file.path.stat().st_size,
        "ngrams": {str(size): int((new & (sizes == size)).sum()) for size in held},
        "continuations": {str(size): int((sizes == size).sum()) for size in held},
        "counted": {str(size): int(records[sizes == size, 5].sum(dtype=np.int64)) for size in held},
    }


def _replay(
    file: CountsFile, texts: list[Path], tokens: _Tokens, level: str, chunk: int, draft: int
) -> dict[str, Any]:
    from draftwood.drafters.llama_cpp.ngram_cache import NgramCacheDrafter
    from draftwood.measure.records.traces import Trace
    from draftwood.measure.simulate import row, simulate

    with screen.progress() as bar:
        read = list(tokens.texts(texts, bar))
        screen.say_skipped(tokens.skipped, _SHOWN)
        if tokens.fingerprint is not None:
            file.check_tokenizer(tokens.fingerprint)
        pieces = [ids[at : at + chunk] for ids in read for at in range(0, len(ids), chunk)]
        traces = [Trace("replay", str(n), ids[:1], ids[1:]) for n, ids in enumerate(pieces) if len(ids) > 2]
        if not traces:
            raise UsageError("the texts hold no three tokens in a row: give longer ones")
        static, dynamic = (str(file.path) if level == name else None for name in ("static", "dynamic"))
        drafter = NgramCacheDrafter(draft, static, dynamic, learn=True)
        answers = []
        for answer in simulate(traces, (drafter,), f"fixed:{draft}"):
            answers.append(answer)
            bar(len(answers), len(traces), "replaying")
    found = row(answers)
    steps = [step.by_source[0] for answer in answers for step in answer.steps if step.by_source]
    rates = ("acceptance_rate", "draft_coverage", "mean_acceptance_length", "drafting_us_per_step")
    return {
        "level": level,
        "pieces": len(traces),
        "tokens": sum(len(ids) for ids in pieces),
        "passes": found["verifier_passes"],
        "drafted": sum(step.kept for step in steps),
        "accepted": sum(step.accepted for step in steps),
        **{name: found[name] for name in rates},
    }


def _tell(file: CountsFile, as_json: bool, more: dict[str, Any]) -> None:
    facts = _facts(file) | more
    ngrams, continuations = (sum(facts[name].values()) for name in ("ngrams", "continuations"))
    held = f"{ngrams:,} n-grams with {continuations:,} continuations"
    line = f"{file.path}: {held}, {facts['bytes'] / 1e6:,.1f} MB"
    screen.finish(facts, lambda: screen.say(line), as_json=as_json)


def _show(facts: dict[str, Any]) -> None:
    to = screen.console()
    made_for = f"tokenizer {facts['tokenizer']}" if facts["tokenizer"] else "tokenizer unknown"
    to.print(f"{facts['file']}: format of {facts['format']}, {facts['bytes'] / 1e6:,.1f} MB, {made_for}")
    held = ("ngrams", "continuations", "counted")
    rows = [(size, *(f"{facts[name][size]:,}" for name in held)) for size in facts["ngrams"]]
    to.print(screen.table("tokens", "n-grams", "continuations", "counted", rows=rows))
    if "replay" not in facts:
        return
    found = facts["replay"]
    rate, length = screen.percent(found["acceptance_rate"]), screen.number(found["mean_acceptance_length"])
    to.print(
        f"as {found['level']} level, {found['tokens']:,} tokens replayed in {found['pieces']:,} pieces: "
        f"{found['drafted']:,} tokens drafted, {found['accepted']:,} accepted ({rate or 'none'})"
    )
    to.print(
        f"{found['passes']:,} passes, {length} tokens emitted per pass, a draft in "
        f"{screen.percent(found['draft_coverage'])} of them, {found['drafting_us_per_step']:.0f} us to draft"
    )
