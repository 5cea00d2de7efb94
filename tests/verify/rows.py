"""What the tests of the exact rule share: rows that play a pass, a stateful processor."""

import numpy as np

from draftwood.contracts import Sampling
from draftwood.verify.exact import SampleAndMatch

VOCAB = 6
GREEDY, SAMPLED = Sampling(), Sampling(temperature=1.0, seed=3)


class Rows:
    """Scores over rows in numpy or torch; remembers which were asked for."""

    def __init__(self, rows, kind=np.asarray):
        self.rows, self.asked = [kind(row) for row in np.array(rows, dtype=np.float32)], []

    def argmax(self, row):
        self.asked.append(row)
        return int(self.rows[row].argmax())

    def raw(self, row):
        self.asked.append(row)
        return self.rows[row]

    def numpy(self, array):
        return np.asarray(array, dtype=np.float32)


def taking(*tokens):
    """Rows whose best tokens are these: at the root, then at each node."""
    return Rows(5 * np.eye(VOCAB, dtype=np.float32)[list(tokens)])


def never(token):
    return None


def opened(sampling=GREEDY, processors=(), prompt=(0,), sequence=0):
    return SampleAndMatch().open(prompt, sampling, processors, sequence)


class Stateful:
    """Bans another token at each call: wrong if called too often, too rarely or out of order."""

    def __init__(self):
        self.prefixes = []

    def __call__(self, prefix, row):
        self.prefixes.append(prefix.tolist())
        row[len(self.prefixes) % VOCAB] = -float("inf")  # in place, as many do
        return row
