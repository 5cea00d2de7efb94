"""Records that every instrument writes, traces, and logs of other programs: reading, writing, times of tokens."""
