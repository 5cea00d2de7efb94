"""llama.cpp as a peer of the bench."""
