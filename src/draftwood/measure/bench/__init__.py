"""Arms side by side: running them, the table, what differs, the pace over minutes."""
