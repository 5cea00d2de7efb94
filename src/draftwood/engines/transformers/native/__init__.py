"""Any model by its own forward pass and its own cache, text by text."""
