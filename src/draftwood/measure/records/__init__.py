"""Records files, which every instrument writes, and traces: reading, writing and times of tokens."""
