"""llama-cpp-python as `LlamaDraftModel` sees it: the loop of `Llama.generate` of release 0.3.36, over a toy model.

The loop is that release's own, shortened: what is called when, and with which view of which buffer, is the same.
"""

import numpy as np

N_VOCAB = 64
NAMES = [f"t{i}" for i in range(N_VOCAB)]


class Llama:
    """Writes ``script(text)`` after each text; a pass over n tokens takes ``cost(n)`` seconds of ``clock``."""

    def __init__(self, script, draft_model=None, *, logits_all=False, n_ctx=512, n_batch=512, clock=None):
        self.draft_model, self._script, self._clock = draft_model, script, clock
        self._logits_all = logits_all if draft_model is None else True
        self._n_ctx, self.n_tokens = -(-n_ctx // 256) * 256, 0  # rounded up, as the buffers are not
        self._is_recurrent = self._is_hybrid = False
        self.model = "model"
        self.input_ids = np.ndarray((n_ctx,), dtype=np.intc)
        self.scores = np.ndarray((n_ctx if logits_all else min(n_ctx, n_batch), 1), dtype=np.single)
        self.passes, self.evaluated = 0, 0
        self.drafts = []  # each with the text that it was for

    def n_vocab(self):
        return N_VOCAB

    def n_ctx(self):
        return self._n_ctx

    def tokenize(self, text, add_bos=True, special=False):
        return [1] * add_bos + [byte % N_VOCAB for byte in text]

    def eval(self, tokens):
        past, n = self.n_tokens, len(tokens)
        self.input_ids[past : past + n] = tokens
        if self._logits_all:
            self.scores[past : past + n, :].reshape(-1)[::] = np.zeros(n)
        self.n_tokens += n
        self.passes, self.evaluated = self.passes + 1, self.evaluated + n
        if self._clock is not None:
            self._clock.now += self._clock.cost(n)

    def generate(self, tokens, reset=True):
        tokens = list(tokens)
        if reset and self.n_tokens > 0:
            longest_prefix = 0
            for a, b in zip(self.input_ids[: self.n_tokens], tokens[:-1], strict=False):
                if a != b:
                    break
                longest_prefix += 1
            if longest_prefix > 0:
                reset, tokens, self.n_tokens = False, tokens[longest_prefix:], longest_prefix
        if reset:
            self.n_tokens = 0
        sample_idx = self.n_tokens + len(tokens) - 1
        while True:
            self.eval(tokens)
            while sample_idx < self.n_tokens:
                token = self._script(self.input_ids[: sample_idx + 1].tolist())
                sample_idx += 1
                sent = yield token
                tokens.clear()
                tokens.append(token)
                if sent is not None:
                    tokens.extend(sent)
                if sample_idx < self.n_tokens and token != self.input_ids[sample_idx]:
                    self.n_tokens = sample_idx
                    break
            if self.draft_model is not None:
                self.input_ids[self.n_tokens : self.n_tokens + len(tokens)] = tokens
                draft_tokens = self.draft_model(self.input_ids[: self.n_tokens + len(tokens)])
                self.drafts.append((self.input_ids[: self.n_tokens + len(tokens)].tolist(), draft_tokens))
                tokens.extend(draft_tokens.astype(int)[: self._n_ctx - self.n_tokens - len(tokens)])

    def write(self, prompt, count):
        """The first tokens after a prompt."""
        written = self.generate(prompt)
        return [next(written) for _ in range(count)]


def llama_model_get_vocab(model):
    return "vocabulary"


def llama_vocab_get_text(vocabulary, token):
    return NAMES[token].encode()


def llama_vocab_get_attr(vocabulary, token):
    return 0
