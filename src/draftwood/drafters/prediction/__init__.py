"""Drafting from a text that the user expects."""
