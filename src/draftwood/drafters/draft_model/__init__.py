"""Drafting with a small model."""
