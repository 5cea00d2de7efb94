"""Tokenizers that model files describe."""
