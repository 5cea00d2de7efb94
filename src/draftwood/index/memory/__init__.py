"""Finished answers of other requests."""
