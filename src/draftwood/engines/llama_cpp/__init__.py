"""llama.cpp as an engine, and as a peer of the bench."""
