"""Text between two others (fill in the middle), for models whose vocabulary has tokens that mark these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from draftwood.api.prompts import text_ids
from draftwood.engines.tokens.file_tokenizer import FileTokenizer, single_token
from draftwood.engines.tokens.fingerprint import remembered
from draftwood.serve.errors import ApiError
from draftwood.serve.fields import CompletionRequest, DraftingField, Items, JsonObject, Lenient, Name
from draftwood.serve.meanings import ALL
from draftwood.serve.ollama import LlamaSampling

_NAMES = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, CodeGemma, Granite 4
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # noqa: RUF001 - DeepSeek-Coder writes so
    ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM-4
)
_REPOSITORIES = ("<|repo_name|>", "<repo_name>", "<reponame>")
_FILES = ("<|file_sep|>", "<file_sep>", "<filename>")
_SNIPPET = "\n\n--- snippet ---\n\n"
"""Goes before a piece of another file where the model has no token for that, as in llama.cpp."""
_REPOSITORY = "repository\n"


class InfillMarks(NamedTuple):
    """Tokens before the text that comes first, before the one that comes last, and before what is written."""

    prefix: int
    suffix: int
    middle: int
    repository: int | None = None  # before the name of a repository
    file: int | None = None  # before the name of a file

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end what is written: it goes on with another file, or with a mark."""
        return frozenset(token for token in self if token is not None)


def marks_of(tokenizer: Any) -> InfillMarks | None:
    """Return a model's marks; None where its vocabulary has none."""
    return remembered(tokenizer, "infill", len(tokenizer), _found)


def _found(tokenizer: Any) -> InfillMarks | None:
    by_role = _by_role(tokenizer, "fim_pre", "fim_suf", "fim_mid")
    for named in (by_role, *([single_token(tokenizer, name) for name in some] for some in _NAMES)):
        prefix, suffix, middle = named
        if prefix is not None and suffix is not None and middle is not None:
            repository = _by_role(tokenizer, "fim_rep")[0] or _first(tokenizer, _REPOSITORIES)
            file = _by_role(tokenizer, "fim_sep")[0] or _first(tokenizer, _FILES)
            return InfillMarks(prefix, suffix, middle, repository, file)
    return None


def _by_role(tokenizer: Any, *roles: str) -> list[int | None]:
    """Return the tokens that a file's metadata name for these roles."""
    known = isinstance(tokenizer, FileTokenizer)
    return [tokenizer.role_token(role) if known else None for role in roles]


def _first(tokenizer: Any, names: Sequence[str]) -> int | None:
    found = (single_token(tokenizer, name) for name in names)
    return next((token for token in found if token is not None), None)


class OtherFile(Lenient):
    """A piece of another file."""

    filename: Annotated[str, Field(max_length=4096)] = ""
    text: str


class InfillText(CompletionRequest):
    """A text between two others, as a plain text with a ``suffix``."""

    files: Items[OtherFile] = Field(default_factory=list)
    seconds: float | None = None


class InfillRequest(LlamaSampling):
    """Body of ``/infill``."""

    model: Name | None = None
    input_prefix: str = ""
    input_suffix: str = ""
    prompt: str = ""
    input_extra: Items[OtherFile] = Field(default_factory=list)
    n_predict: Annotated[int, Field(ge=-1, le=ALL)] | None = None
    t_max_predict_ms: Annotated[float, Field(ge=0, le=1e9)] | None = None
    response_fields: Items[str] | None = None
    stream: bool | None = None
    draftwood: DraftingField | None = None

    def text(self) -> InfillText:
        """Return the same as a plain text."""
        given = self.in_chats() | {
            "max_tokens": ALL if self.n_predict in (None, -1) else self.n_predict,
            "prompt": self.input_prefix + self.prompt, "suffix": self.input_suffix,
            "files": [one.model_dump() for one in self.input_extra],
            "seconds": self.t_max_predict_ms and self.t_max_predict_ms / 1e3,
            "draftwood": self.draftwood and self.draftwood.model_dump(),
        }  # fmt: skip
        return InfillText.model_validate(given)


def infill_ids(tokenizer: Any, asked: CompletionRequest, prompt: Any, *, special: bool) -> list[int]:
    """Return the ids of a prompt: what comes before, what comes behind, and the mark of the middle.

    ``special``: names of control tokens in the texts become these tokens. Raises `ApiError` for models without
    such marks.
    """
    marks = marks_of(tokenizer)
    if marks is None:
        said = (
            "this model's vocabulary has no tokens for text between two others: leave suffix out, or take one with"
        )
        raise ApiError(said, param="suffix")

    def ids(text: str) -> list[int]:
        return text_ids(text, tokenizer, special=special)

    before = list(prompt) if not isinstance(prompt, str) else ids(prompt)
    first = list(tokenizer("")["input_ids"])[:1]
    first = first if first == [getattr(tokenizer, "bos_token_id", None)] else []
    others = list(_others(marks, asked.files, ids)) if isinstance(asked, InfillText) else []
    return [*first, *others, marks.prefix, *before, marks.suffix, *ids(asked.suffix or ""), marks.middle]


def _others(marks: InfillMarks, files: Sequence[OtherFile], ids: Any) -> Iterator[int]:
    """Yield the ids of pieces of other files, as models were trained on them."""
    if not files:
        return
    if marks.repository is not None and marks.file is not None:
        yield from (marks.repository, *ids(_REPOSITORY))
    for one in files:
        if marks.file is None:
            yield from ids(_SNIPPET + one.text)
        else:
            yield from (marks.file, *ids(f"{one.filename}\n{one.text}"))
    if marks.file is not None:
        yield from (marks.file, *ids("filename\n"))


def picked(body: JsonObject, paths: Sequence[str] | None) -> JsonObject:
    """Return the parts of an answer that are wanted, by their paths; all where nothing is said."""
    if paths is None:
        return body
    found = JsonObject()
    for path in paths:
        here: Any = body
        for name in path.split("/"):
            here = here.get(name) if isinstance(here, dict) else None
        if here is not None:
            found[path] = here
    return found
