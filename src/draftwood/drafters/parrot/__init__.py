"""The N-gram Parrot: frequencies of n-grams and a probability threshold."""
