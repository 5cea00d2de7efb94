"""A trained exit: what scores tokens by the hidden states of a model's first layers."""
