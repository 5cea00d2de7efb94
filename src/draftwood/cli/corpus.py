"""``draftwood corpus``: text to draft from, indexed once and mapped into memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from draftwood.cli import early, options, screen
from draftwood.files.format import refuse_to_replace
from draftwood.measure.wording import count

if TYPE_CHECKING:
    from draftwood.drafters.corpus.corpus import Corpus


app = options.group("corpus", "Text to draft from: build and inspect such files.")


@app.command()
def build(
    paths: Annotated[
        list[Path],
        Argument(
            metavar="PATH...",
            help="Folders (without what .gitignore names), files of text, .jsonl files of records.",
        ),
    ],
    output: Annotated[Path, Option("--output", "-o", metavar="FILE.dwc", help="Write the corpus here.")],
    tokenizer: Annotated[
        str, Option(metavar="MODEL", help="The model that will use it, or a folder with its tokenizer.")
    ] = options.MODEL_DEFAULT,
    field: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Fields of records to take as texts. [default: text, else prompt and output]"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Index the text of folders and files."""
    from draftwood.corpora.build import build as make
    from draftwood.drafters.corpus.file import KIND

    refuse_to_replace(output, KIND)
    early.check_writable(output)
    known = options.load_tokenizer(tokenizer)
    with screen.progress() as bar:
        built = make(paths, output, known, model=tokenizer, fields=field or (), progress=bar)
    facts = _facts(built.corpus) | {"file": str(output)}

    def show() -> None:
        documents = count(facts["documents"], "document")
        said = f"{output}: {facts['tokens']:,} tokens of {documents}, {facts['bytes'] / 1e6:,.1f} MB"
        screen.say(said, file=screen.beside(output))
        if built.skipped:
            reasons = sorted(built.skipped.items(), key=lambda item: -item[1])
            said = ", ".join(f"{n:,} {reason}" for reason, n in reasons)
            screen.say(f"left out: {said}", file=sys.stderr)

    screen.finish(facts | {"skipped": dict(built.skipped)}, show, as_json=as_json)


@app.command()
def stats(
    file: Annotated[Path, Argument(metavar="FILE", help="A file that corpus build wrote.")],
    as_json: options.Json = False,
) -> None:
    """Show what a corpus holds, after reading it through."""
    from draftwood.drafters.corpus.corpus import Corpus

    corpus = Corpus.open(file)
    with screen.busy(f"reading {file}"):
        if corpus.header is not None:
            corpus.header.verify()
    found = _facts(corpus)
    screen.finish(found, lambda: screen.show_facts(found), as_json=as_json)


def _facts(corpus: Corpus) -> dict[str, Any]:
    header, counts = corpus.header, {"documents": len(corpus.documents), "parts": len(corpus.parts)}
    made_for = {"model": corpus.model, "tokenizer": corpus.fingerprint}
    size = header.start + header.length if header else 0
    return {"file": str(corpus.path), "tokens": len(corpus), **counts, "bytes": size, **made_for}
