"""Why the output is still the model's own: noise, sampling, the exact rule."""
