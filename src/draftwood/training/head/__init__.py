"""Training of a head: a small layer that drafts from a model's hidden states."""
