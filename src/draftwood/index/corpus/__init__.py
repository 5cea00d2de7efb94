"""Looking up what followed where in a file of token ids."""
