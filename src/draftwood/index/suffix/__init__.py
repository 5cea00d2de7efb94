"""The suffix automaton and the tree that it grows."""
