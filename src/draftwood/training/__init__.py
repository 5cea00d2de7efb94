"""Makes heads: text from the model itself, its hidden states, and the training of a head on them."""
