"""Initial acceptance rates, per evidence class, of `suffix` with branches.

Learnt by `benchmarks/priors.py` from recorded answers of large models and of SmolLM2; the classes are those of
`draftwood.drafters.suffix.grow_kernel`.
"""

import numpy as np

from draftwood.drafters.base import fixed_rates

# fmt: off
_THOUSANDTHS = (
    251, 529, 201, 82, 95, 54, 21,
    428, 746, 388, 140, 195, 104, 33,
    573, 854, 478, 179, 211, 119, 51,
    682, 903, 457, 230, 131, 116, 14,
    802, 929, 633, 298, 288, 157, 112,
    908, 974, 758, 336, 62, 298, 80,
    968, 974, 765, 358, 184, 65, 92,
    46, 52, 41, 28, 16,
    126, 117, 83, 64, 10,
    135, 172, 153, 71, 42,
)
# fmt: on

PRIOR = fixed_rates(np.array(_THOUSANDTHS) / 1000)
