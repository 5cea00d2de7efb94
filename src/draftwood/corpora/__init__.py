"""Building corpora: from folders and records to token ids, and from these to a suffix array in a file."""
