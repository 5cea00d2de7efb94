"""How each token is chosen, so that the text stays the model's own: noise, sampling, the exact rule."""
