"""What a model would have said after contexts that it has scored."""
