"""The second model of transformers' assisted generation: it writes drafts for ``model.generate``.

Sources: Leviathan and others, "Fast Inference from Transformers via Speculative Decoding", arXiv 2211.17192; for
another vocabulary Timor and others, "Accelerating LLM Inference with Lossless Speculative Decoding Algorithms for
Heterogeneous Vocabularies", arXiv 2502.05202.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from transformers import GenerationConfig
from transformers.generation.candidate_generator import AssistantVocabTranslatorCache

from draftwood.engines.transformers.shadow import shadow
from draftwood.errors import UsageError

_PANGRAM = "The quick brown fox jumps over the lazy dog."  # tokenizers of one vocabulary split it alike


class Assistant:
    """What ``generate`` is given to draft with a smaller model; nothing stays from one answer to the next.

    transformers keeps its number of draft tokens in the settings of the assistant and, for sampled texts of
    another vocabulary, cuts rows out of the assistant's head for good. So it gets views of the model, which share
    its weights and are nobody else's.

    Parameters
    ----------
    peer
        What error messages call it.
    model, tokenizer
        The model that writes, and its tokenizer (None is enough where both vocabularies have one size).
    assistant, assistant_tokenizer
        The model that drafts, and its tokenizer.
    tokens
        Longest draft (transformers' ``num_assistant_tokens``). All other settings of drafting are transformers'
        defaults, whatever the assistant's files say: a constant length, and a draft ends behind a token of which
        the assistant is less than 0.4 sure (where scikit-learn is installed, this bound adapts to each text).

    Raises `UsageError` for an assistant that cannot take tokens back, and for another vocabulary of the same size:
    transformers knows vocabularies by their sizes, and would take the ids of one for those of the other.
    """

    def __init__(
        self, peer: str, model: Any, tokenizer: Any, assistant: Any, assistant_tokenizer: Any, tokens: int
    ) -> None:  # fmt: skip
        if assistant._is_stateful:
            raise UsageError(f"the assistant of {peer} cannot take rejected tokens back: name another model")
        self._model, self._tokens = assistant, tokens
        self._rows, theirs = (one.config.get_text_config().vocab_size for one in (model, assistant))
        self._tokenizers: tuple[Any, Any] | None = None
        if self._rows != theirs:
            if tokenizer is None:
                raise UsageError(
                    f"the assistant of {peer} has another vocabulary: give the model's tokenizer, too"
                )
            self._tokenizers = (tokenizer, assistant_tokenizer)
        elif tokenizer is not None and _split(tokenizer) != _split(assistant_tokenizer):
            raise UsageError(
                f"the assistant of {peer} has another vocabulary of the same size, which transformers would take "
                "for the model's own: name another model"
            )
        self._views: dict[bool, Any] = {}  # by whether transformers may have cut its head
        self._own: tuple[Any, Any] | None = None  # copies of the tokenizers, by which it keeps what it has cut

    def arguments(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of ``generate`` for one answer; ``settings`` are those of the text."""
        is_cut = self._tokenizers is not None and settings["do_sample"]
        if self._tokenizers is not None and self._own is None:
            self._own = copy.deepcopy(self._tokenizers)
        if is_cut not in self._views:
            self._views[is_cut] = shadow(self._model, attention=None)
            if is_cut and self._own is not None:
                # What generate would do in the first sampled answer, where it also uses up random numbers.
                AssistantVocabTranslatorCache.get_translator(
                    *self._own, self._rows, assistant_model=self._views[is_cut], assistant_prune_lm_head=True
                )
        view = self._views[is_cut]
        view.generation_config = GenerationConfig(**settings, num_assistant_tokens=self._tokens)
        given = {"assistant_model": view}
        if self._own is not None:
            given |= dict(zip(("tokenizer", "assistant_tokenizer"), self._own, strict=True))
        return given

    def close(self) -> None:
        """Free the views; transformers would keep the head that it has cut for as long as the process runs."""
        if self._own is not None:
            AssistantVocabTranslatorCache._cache.pop(self._own[0], None)
        self._views, self._own = {}, None


def _split(tokenizer: Any) -> list[int]:
    found: list[int] = tokenizer(_PANGRAM, add_special_tokens=False)["input_ids"]
    return found
