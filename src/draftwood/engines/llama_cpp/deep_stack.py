"""A stack deep enough for llama.cpp's tokenizer.

Most pre-tokenizers split a text by a regular expression of C++'s own, which calls itself once per character of a
match. A match of some 26,000 characters (base64, a line of ``=``, for some models prose without punctuation) fills
a usual stack of 8 MiB, and the process ends: https://github.com/ggml-org/llama.cpp/issues/27783
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from draftwood.errors import PromptError

_Result = TypeVar("_Result")

_SHORT = 2_000  # characters that fit every stack
_FRAME = 2 << 10  # bytes per character: the worst expression takes a sixth of it
_MOST = 2_000_000  # characters of one match; a stack for more may not be given

_SETTING = threading.Lock()


def run_deep(text: str, function: Callable[[], _Result]) -> _Result:
    """Call a function that tokenizes ``text``, in a thread of its own if the text is long.

    Memory for a stack is reserved, and taken only as far as it is filled. Raises `PromptError` where no stack is
    deep enough.
    """
    if len(text) <= _SHORT:
        return function()
    longest = max(map(len, re.findall(r"\S+|\s+", text))) if len(text) > _MOST else 0
    if longest > _MOST:
        raise PromptError(
            f"a text has {longest:,} characters without a space between, too many to tokenize: cut it"
        )
    size = _FRAME * min(len(text), _MOST)
    with ThreadPoolExecutor(1) as pool:
        with _SETTING:
            usual = threading.stack_size(size)
            try:
                future = pool.submit(function)  # starts the thread
            except RuntimeError as error:
                raise PromptError(
                    f"a text of {len(text):,} characters needs {size >> 20:,} MiB of stack to be tokenized, which "
                    "the system refuses: allow more virtual memory (ulimit -v), or cut the text"
                ) from error
            finally:
                threading.stack_size(usual)
        return future.result()
