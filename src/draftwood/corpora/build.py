"""Build a corpus file: tokenise documents to disk, then sort them in parts that fit into memory."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from draftwood.corpora.suffix_array import MOST_BYTES, bytes_per_token, suffix_array, used_ids, width_of
from draftwood.corpora.texts import Skipped, Source, documents, sources
from draftwood.drafters.corpus.corpus import Corpus
from draftwood.drafters.corpus.file import BORDER, Documents, Part, write_corpus
from draftwood.engines.tokens.fingerprint import tokenizer_fingerprint
from draftwood.errors import UsageError
from draftwood.files.paths import is_stream, whole_file

Ints = NDArray[np.int32]
Progress = Callable[[int, int, str], None]

MOST_PARTS = 32  # A lookup searches every part, so many small ones would be slow

_BATCH = 1 << 20  # characters per call of the tokenizer, which uses several threads
_MEMORY_SHARE = 0.8  # of the free memory; the rest is for the system and the disk cache


@dataclass(frozen=True, slots=True)
class Built:
    """Result of a build: the new corpus, opened, and how many documents were left out."""

    corpus: Corpus
    skipped: Skipped


def build(
    paths: Sequence[Path], output: Path, tokenizer: Any, *, model: str | None = None,
    fields: Sequence[str] = (), progress: Progress = lambda *_: None,
) -> Built:  # fmt: skip
    """Build a corpus file from folders, files and records (``.jsonl``), whole or not at all.

    ``output`` is replaced if it exists; its folder also holds a temporary file of 4 bytes per token. ``tokenizer``
    is one of transformers, ``model`` the name by which `draftwood.models.load.load_tokenizer` finds it again.
    ``fields`` are those of records; if some are named, ``.jsonl`` files of folders are records too. Files of
    folders that are larger than `MAX_BYTES` are left out. ``progress`` is called with the bytes that were
    read, all bytes and the next file, then with tokens that were sorted, all tokens and "sorting".

    Raises `UsageError` for paths that cannot be read, hold no text, or hold more than this machine can sort, and
    without the libraries of ``draftwood[corpus]``; `RecordError` for broken records; `FileFormatError` if the file
    cannot be written.
    """
    missing = [name for name in ("pathspec", "psutil", "pydivsufsort") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f'building a corpus needs {", ".join(missing)}: run pip install "draftwood[corpus]"')
    fingerprint, skipped = tokenizer_fingerprint(tokenizer), Skipped()
    found = sources(paths, skipped, records=bool(fields), leave=[output])
    if not found:
        raise _nothing(paths, skipped)
    with (
        whole_file(output) as beside,
        tempfile.TemporaryDirectory(prefix=f".{output.name}-", dir=beside.parent) as folder,
        (Path(folder) / "tokens").open("w+b") as file,
    ):
        gathered = _Gathered(file)
        _read(found, fields, skipped, tokenizer, gathered, progress)
        if not gathered.names:
            raise _nothing(paths, skipped)
        file.flush()
        _write(beside, gathered, {"tokenizer": fingerprint, "model": model}, progress)
        sent = Corpus.open(beside) if is_stream(output) else None  # now, since its reader has it afterwards
    return Built(Corpus.open(output) if sent is None else sent, skipped)


class _Gathered:
    """Documents read so far: their ids are in a file, their names and lengths in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.names: list[str] = []
        self.lengths: list[int] = []  # with the border token

    def add(self, name: str, ids: Sequence[int] | Ints) -> None:
        if len(ids):
            self._file.write(np.asarray(ids, dtype=np.int32).data)
            self._file.write(np.int32(BORDER).tobytes())
            self.names.append(name)
            self.lengths.append(len(ids) + 1)

    def tokens(self) -> Ints:
        return np.asarray(np.memmap(self._file, dtype=np.int32, mode="r"))


def _read(
    found: Sequence[Source], fields: Sequence[str], skipped: Skipped, tokenizer: Any, gathered: _Gathered,
    progress: Progress,
) -> None:  # fmt: skip
    total, done, characters = sum(source.size for source in found), 0, 0
    batch: list[tuple[str, str]] = []
    for source in found:
        progress(done, total, source.name)
        for name, text in documents(source, fields, skipped):
            batch.append((name, text))
            characters += len(text)
            if characters >= _BATCH:
                _tokenise(batch, tokenizer, gathered)
                batch, characters = [], 0
        done += source.size
    _tokenise(batch, tokenizer, gathered)


def _tokenise(batch: Sequence[tuple[str, str]], tokenizer: Any, gathered: _Gathered) -> None:
    if batch:
        texts = [text for _, text in batch]
        found = tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)
        for (name, _), ids in zip(batch, found["input_ids"], strict=True):
            gathered.add(name, ids)


def _write(output: Path, gathered: _Gathered, about: dict[str, Any], progress: Progress) -> None:
    import psutil

    tokens = gathered.tokens()
    used = used_ids(tokens)
    ends = np.cumsum(gathered.lengths, dtype=np.int64)
    cuts = _cuts(ends, width_of(int(used.sum())), int(psutil.virtual_memory().available))
    edges = [0, *(int(ends[cut - 1]) for cut in cuts)]
    counts = np.diff([0, *cuts]).tolist()
    sizes = [(stop - start, stop - start - n) for (start, stop), n in zip(pairwise(edges), counts, strict=True)]

    def parts() -> Iterator[Part]:
        for start, stop in pairwise(edges):
            progress(start, len(tokens), "sorting")
            yield Part(tokens[start:stop], suffix_array(tokens[start:stop], used))

    starts: Iterable[int] = np.concatenate([[0], ends[:-1]]).tolist()
    write_corpus(output, parts(), sizes, Documents.listed(gathered.names, starts), about)


def _cuts(ends: NDArray[np.int64], width: int, memory: int) -> list[int]:
    """Return where each part ends, in documents: as few parts as memory allows, of about equal size."""
    most = min(int(memory * _MEMORY_SHARE) // bytes_per_token(width), MOST_BYTES // width)
    total, longest = int(ends[-1]), int(np.diff(ends, prepend=0).max())
    parts = -(-total // max(most, 1))
    if longest > (limit := MOST_BYTES // width):
        raise UsageError(f"a document holds {longest:,} tokens and the most is {limit:,}: split its file")
    if longest > most or parts > MOST_PARTS:
        need = max(longest, -(-total // MOST_PARTS)) * bytes_per_token(width) / _MEMORY_SHARE
        raise UsageError(
            f"indexing these {total:,} tokens takes {need / 1e9:,.1f} GB of memory and {memory / 1e9:,.1f} GB is "
            "free: give fewer or smaller files, or build on a larger machine"
        )
    cuts: list[int] = []
    while not cuts or cuts[-1] < len(ends):
        begin = int(ends[cuts[-1] - 1]) if cuts else 0
        even = -(-(total - begin) // max(parts - len(cuts), 1))
        cut = int(np.searchsorted(ends, begin + even)) + 1  # after the document that reaches the even share
        fits = int(np.searchsorted(ends, begin + most, side="right"))
        cuts.append(min(cut, fits, len(ends)))
    return cuts


def _nothing(paths: Sequence[Path], skipped: Skipped) -> UsageError:
    reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.most_common()) or "no files"
    return UsageError(f"no text was found in {', '.join(map(str, paths))} ({reasons}): name files that hold some")
