"""Trained heads: a small layer that reads the target's hidden states and drafts."""
