"""Counts of what followed n-grams, in memory and in files."""
