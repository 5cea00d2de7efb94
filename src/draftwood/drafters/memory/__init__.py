"""Drafting from earlier answers."""
