"""Drafting from the model's own runners-up."""
