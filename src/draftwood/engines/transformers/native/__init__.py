"""Any decoder-only model by its own forward pass and its own cache, one text per pass."""
