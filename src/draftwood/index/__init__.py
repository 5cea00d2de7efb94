"""Kernels of the drafters, compiled at the first use; `tests/oracles` has slow twins of them."""
