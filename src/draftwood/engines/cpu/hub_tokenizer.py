"""The tokenizer of a folder, read by the library that wrote it (`tokenizers`): ids and texts are transformers'."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from draftwood.engines.cpu.safetensors_file import read_json
from draftwood.engines.cpu.vocabulary_bpe import byte_letters
from draftwood.engines.file_tokenizer import FileTokenizer, utf8
from draftwood.errors import ModelError, ModelNotFoundError

_BYTE_OF_LETTER = {letter: byte for byte, letter in byte_letters().items()}
_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")


class HubTokenizer(FileTokenizer):
    """Turns text into token ids and back, without transformers.

    Parameters
    ----------
    folder
        Where ``tokenizer.json`` lies, and ``tokenizer_config.json`` and ``chat_template.jinja`` where it has them.

    Raises
    ------
    ModelNotFoundError
        There is no ``tokenizer.json``.
    ModelError
        A file is damaged.
    """

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        place = folder / "tokenizer.json"
        if not place.is_file():
            raise ModelNotFoundError(f"{folder} has no tokenizer.json, which this engine reads: take transformers")
        try:
            self._tokenizer = Tokenizer.from_file(str(place))
        except Exception as error:  # the library raises Exception itself
            raise ModelError(f"{place} cannot be read ({error}): get it again") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        config = folder / "tokenizer_config.json"
        self._config = read_json(config) if config.is_file() else {}
        self._templates = _templates(folder, self._config.get("chat_template"))
        self.chat_template = self._templates.get("default")
        added = self._tokenizer.get_added_tokens_decoder()
        self.bos_token_id, self.eos_token_id = (self._id(f"{role}_token") for role in ("bos", "eos"))
        self._added = {token: str(said.content) for token, said in added.items()}
        self._control = frozenset(token for token, said in added.items() if said.special)
        self._spells_bytes = "ByteLevel" in repr(self._tokenizer.decoder)

    def _id(self, role: str) -> int | None:
        said = self._config.get(role)
        name = said.get("content") if isinstance(said, dict) else said
        found: int | None = self._tokenizer.token_to_id(name) if isinstance(name, str) else None
        return found

    @property
    def _rows(self) -> int:
        return 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

    @property
    def _adds_bos(self) -> bool:
        return False  # as with transformers, a chat has the token that its template writes

    def _metadata(self, key: str) -> str | None:
        return self._templates.get("tool_use") if key == "tokenizer.chat_template.tool_use" else None

    def _ids(self, text: str, add_special: bool) -> list[int]:
        found: list[int] = self._tokenizer.encode(utf8(text).decode(), add_special_tokens=add_special).ids
        return found

    def _name(self, token: int) -> str:
        found = self._tokenizer.id_to_token(token)
        return f"[PAD{token}]" if found is None else str(found)

    def _reader(self, *, special: bool) -> Callable[[int], bytes]:
        shown = self._added if special else {**self._added, **dict.fromkeys(self._control, "")}
        return partial(_piece, self._tokenizer, shown, self._spells_bytes)

    def _is_control(self, token: int) -> bool:
        return token in self._control

    def _is_unused(self, token: int) -> bool:
        return self._tokenizer.id_to_token(token) is None


def _templates(folder: Path, said: Any) -> Mapping[str, str]:
    """Return the chat templates by name: of a file of its own, of the settings, or of a list of several there."""
    if isinstance(said, list):
        found = {
            one["name"]: one["template"]
            for one in said
            if isinstance(one, dict) and all(isinstance(one.get(part), str) for part in ("name", "template"))
        }
    else:
        found = {"default": said} if isinstance(said, str) else {}
    place = folder / "chat_template.jinja"
    try:
        return found | ({"default": place.read_text(encoding="utf-8")} if place.is_file() else {})
    except (OSError, ValueError) as error:
        raise ModelError(f"{place} cannot be read ({error}): get it again") from error


def _piece(tokenizer: Any, added: Mapping[int, str], spells_bytes: bool, token: int) -> bytes:
    """Return the bytes of a token; ``added`` has the texts of those that stand for themselves."""
    name = added[token] if token in added else tokenizer.id_to_token(token)
    if token in added or name is None:
        return (name or "").encode(errors="replace")
    if spells_bytes:
        return b"".join(bytes([_BYTE_OF_LETTER[c]]) if c in _BYTE_OF_LETTER else c.encode() for c in name)
    byte = _BYTE.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else name.replace("\u2581", " ").encode(errors="replace")
