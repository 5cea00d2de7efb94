"""The structures of llama.cpp's speculators: hash chains and the hashed pool."""
