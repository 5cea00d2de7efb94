"""Makes drafters for a model: text by the model itself, its hidden states, and what is trained on them."""
