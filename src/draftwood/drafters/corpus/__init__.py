"""Drafting from files of the user."""
