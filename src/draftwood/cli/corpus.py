"""``draftwood corpus``: text to draft from, indexed once and mapped into memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from draftwood.cli import early, options, screen
from draftwood.errors import UsageError

if TYPE_CHECKING:
    from draftwood.drafters.corpus.corpus import Corpus

Paths = Annotated[
    list[Path], Argument(metavar="PATH...", help="Folders (.gitignore is respected), files, .jsonl of records.")
]
File = Annotated[Path, Argument(metavar="FILE", help="What corpus build wrote.")]
Output = Annotated[Path, Option("--output", "-o", metavar="FILE.dwc", help="Write the corpus here.")]
AddOutput = Annotated[
    Path | None, Option("--output", "-o", metavar="FILE.dwc", help="Write here. [default: replace FILE]")
]
Tokenizer = Annotated[
    str, Option(metavar="MODEL", help="The model that will use it, or a folder with its tokenizer.")
]
KnownTokenizer = Annotated[
    str | None, Option(metavar="MODEL", help="Where its tokenizer is. [default: the model it was built for]")
]
Field = Annotated[
    list[str] | None,
    Option(metavar="NAME", help="Fields of records that are texts. [default: text, else prompt and output]"),
]
MaxFile = Annotated[float, Option("--max-file", min=0, metavar="MB", help="Leave out larger files of folders.")]

app = options.group("corpus", "Text to draft from: build and inspect such files.")

_LARGEST = 8.0  # of a folder's files, in MB


@app.command()
def build(
    paths: Paths,
    output: Output,
    tokenizer: Tokenizer = options.MODEL_DEFAULT,
    field: Field = None,
    max_file: MaxFile = _LARGEST,
    as_json: options.Json = False,
) -> None:
    """Index the text of folders and files."""
    _refuse_to_replace(output)
    _make(paths, output, tokenizer, field, max_file, as_json, None)


@app.command()
def add(
    file: File,
    paths: Paths,
    output: AddOutput = None,
    tokenizer: KnownTokenizer = None,
    field: Field = None,
    max_file: MaxFile = _LARGEST,
    as_json: options.Json = False,
) -> None:
    """Index more text together with what FILE holds; documents of the same name are replaced."""
    from draftwood.drafters.corpus.corpus import Corpus

    base = Corpus.open(file)
    if output is not None:
        _refuse_to_replace(output)
    _make(paths, output or file, tokenizer or _model_of(base), field, max_file, as_json, base)


@app.command()
def stats(file: File, as_json: options.Json = False) -> None:
    """Show what a corpus holds, after reading it through."""
    from draftwood.drafters.corpus.corpus import Corpus

    corpus = Corpus.open(file)
    with screen.busy(f"reading {file}"):
        if corpus.header is not None:
            corpus.header.verify()
    found = _facts(corpus)

    def show() -> None:
        for name, value in found.items():
            screen.say(
                f"{name.replace('_', ' '):<16} {value:,}" if isinstance(value, int) else f"{name:<16} {value}"
            )

    screen.finish(found, show, as_json=as_json)


@app.command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def query() -> None:
    """Say what to use instead of this verb of earlier versions."""
    raise UsageError(
        "draftwood corpus query is gone: draftwood.Corpus.open(FILE).match(ids) finds text in Python, and "
        "draftwood corpus stats says what a file holds"
    )


def _make(
    paths: list[Path], output: Path, tokenizer: str, field: list[str] | None, max_file: float, as_json: bool,
    base: Corpus | None,
) -> None:  # fmt: skip
    from draftwood.corpora.build import build as make

    known = options.load_tokenizer(tokenizer)
    with screen.progress() as bar:
        built = make(
            paths, output, known, model=tokenizer, fields=field or (), max_bytes=int(max_file * 1e6),
            base=base, progress=bar,
        )  # fmt: skip
    facts = _facts(built.corpus)

    def show() -> None:
        n = facts["documents"]
        documents = f"{n:,} document{'s' * (n != 1)}"
        screen.say(f"{output}: {facts['tokens']:,} tokens of {documents}, {facts['bytes'] / 1e6:,.1f} MB")
        screen.say_skipped(built.skipped)

    document = facts | {"read": built.read, "skipped": dict(built.skipped)}
    screen.finish(document, show, as_json=as_json)


def _facts(corpus: Corpus) -> dict[str, Any]:
    path, counts = corpus.path, {"documents": len(corpus.documents), "parts": len(corpus.parts)}
    size, made_for = path.stat().st_size if path else 0, {"model": corpus.model, "tokenizer": corpus.fingerprint}
    return {"file": str(path), "tokens": len(corpus), **counts, "bytes": size, **made_for}


def _model_of(corpus: Corpus) -> str:
    if corpus.model is None:
        raise UsageError(f"{corpus.path} does not say whose tokenizer it needs: give --tokenizer")
    return corpus.model


def _refuse_to_replace(path: Path) -> None:
    """Refuse to replace anything but a corpus."""
    from draftwood.drafters.corpus.file import KIND

    early.check_replaceable(path, KIND)
