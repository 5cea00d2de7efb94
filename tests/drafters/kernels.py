"""Calling helpers of kernels from Python, which cannot enter what is compiled into kernels."""

from numba import njit

from draftwood.index.numba_compiling import with_dispatchers


def helper(mark):
    """A function that does what a helper of kernels does."""
    return njit(error_model="numpy")(with_dispatchers(mark.py_func))
