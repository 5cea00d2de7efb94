"""Drafting from what followed the last tokens before."""
