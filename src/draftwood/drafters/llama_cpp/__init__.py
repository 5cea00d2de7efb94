"""llama.cpp's five n-gram drafters, corrected or as they stand there."""
