"""Occurrences of the last tokens, and the tree of what followed them."""
