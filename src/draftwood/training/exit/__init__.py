"""Training of an exit: what scores tokens by the states of a model's first layers."""
