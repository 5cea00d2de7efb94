"""The functions of a pass, written as LLVM code and compiled for this processor."""
