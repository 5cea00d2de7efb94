"""Transformers models as targets."""
