"""The parts that models are made of. One file has a part's names and weights, its phases, and its kernels."""
