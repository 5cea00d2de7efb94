"""llama.cpp, for the bench."""
