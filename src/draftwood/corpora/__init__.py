"""Build corpora: read folders and records, turn them into token ids, and sort these into a suffix array."""
