"""The names by which a model is served, and the lists of models that clients ask for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from draftwood.serve.errors import NOT_FOUND, ApiError
from draftwood.serve.fields import JsonObject


class Names:
    """The model's own name and its ``aliases``.

    Agents ask for models of other services by name, and cannot be told otherwise; so any other name is served as
    well, unless ``is_strict``. Answers repeat the name that was asked for, as vLLM's do. ``most``: tokens that the
    model takes. ``known`` are the listed names, its own first; ``former`` is served, too, and not listed.
    """

    def __init__(
        self, own: str, aliases: Sequence[str], *, is_strict: bool, started: int, most: int, former: str = ""
    ) -> None:
        self.known = tuple(dict.fromkeys([own, *aliases]))
        self._is_strict, self._started, self._most, self._former = is_strict, started, most, former

    def checked(self, name: str | None) -> str:
        """Return the name that an answer has; raises `ApiError` for one that is not served."""
        own = self.known[0]
        if self._is_strict and name is not None and name not in (*self.known, self._former):
            said = f"no model {name[:200]!r} is served here: ask for {' or '.join(map(repr, self.known))}"
            raise ApiError(said, NOT_FOUND, param="model", code="model_not_found")
        return own if name is None else name

    def one(self, name: str) -> JsonObject:
        """Return what the OpenAI API and Anthropic's say of a model; raises as `checked`."""
        created = datetime.fromtimestamp(self._started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "id": self.checked(name), "object": "model", "created": self._started, "owned_by": "draftwood",
            "max_model_len": self._most, "type": "model", "display_name": name, "created_at": created,
            "max_input_tokens": self._most, "max_tokens": self._most, "lifecycle": "active",
        }  # fmt: skip

    def all(self) -> JsonObject:
        """Return the model under each of its names, as both APIs and Codex list models."""
        known = self.known
        return {
            "object": "list", "data": list(map(self.one, known)), "has_more": False, "first_id": known[0],
            "last_id": known[-1], "models": [self._for_codex(*pair) for pair in enumerate(known)],
        }  # fmt: skip

    def _for_codex(self, number: int, name: str) -> JsonObject:
        """Return a model as Codex reads it (`ModelInfo` in codex-rs/protocol/src/openai_models.rs)."""
        return {
            "slug": name, "display_name": name, "description": None, "priority": number, "upgrade": None,
            "visibility": "list", "supported_in_api": True, "context_window": self._most,
            "input_modalities": ["text"], "base_instructions": "", "shell_type": "default",
            "apply_patch_tool_type": None, "experimental_supported_tools": [], "supported_reasoning_levels": [],
            "supports_reasoning_summaries": False, "supports_parallel_tool_calls": True,
            "support_verbosity": False, "default_verbosity": None,
            "truncation_policy": {"mode": "tokens", "limit": 10_000},
        }  # fmt: skip
