"""The bench: runs arms side by side, computes the table, finds differing texts, measures the pace over minutes."""
