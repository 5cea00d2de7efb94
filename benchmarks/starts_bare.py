"""What users write without draftwood: load a model by transformers and stream an answer; for `starts.py`.

python benchmarks/starts_bare.py FOLDER float32 THREADS "Once upon a time" TOKENS
"""

from __future__ import annotations

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer


class AtOnce(TextStreamer):  # type: ignore[misc]
    """Writes each token as soon as it is there, not word by word."""

    def put(self, value: torch.Tensor) -> None:
        """Write a token; the first call brings the prompt."""
        if self.next_tokens_are_prompt:
            self.next_tokens_are_prompt = False
            return
        print(self.tokenizer.decode(value.tolist()), end="", flush=True)


def main() -> None:
    folder, dtype, threads, prompt, tokens = sys.argv[1:]
    torch.set_num_threads(int(threads))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    ids = tokenizer(prompt, return_tensors="pt")
    model.generate(**ids, max_new_tokens=int(tokens), do_sample=False, streamer=AtOnce(tokenizer))


if __name__ == "__main__":
    main()
