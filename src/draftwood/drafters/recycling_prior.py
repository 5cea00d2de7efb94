"""Acceptance rates that ``recycling`` begins with."""

import numpy as np

_c = [0.002, 0.006, 0.02, 0.05, 0.1, 0.22, 0.42, 0.68, 0.93]
_g = [0.35, 0.4, 0.45, 0.52, 0.6, 0.68, 0.78, 0.86, 0.92]
_l = [0.3, 0.25, 0.2, 0.15, 0.1, 0.06, 0.03, 0.01, 0.003]
_f = (0.45, 0.7, 1)
PRIOR = np.array(
    [min(0.95, _c[b] * _f[s]) for s in range(3) for f in range(3) for r in range(8) for b in range(9)]
    + [(_g if r == 0 else _l)[b] * _f[s] for s in range(3) for f in range(3) for r in range(8) for b in range(9)],
    dtype=np.float32,
)
