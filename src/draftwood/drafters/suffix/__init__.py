"""Drafting from what followed the longest suffix that occurred before."""
