"""The functions of a pass, written as LLVM code and compiled for this processor."""

from draftwood.index.missing import compilers

with compilers():
    import llvmlite as llvmlite
