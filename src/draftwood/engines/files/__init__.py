"""Model files: GGUF, and folders of safetensors."""
