"""Paths that users name, writing files whole or not at all, and the format of draftwood's own files."""
