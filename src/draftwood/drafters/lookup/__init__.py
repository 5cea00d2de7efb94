"""Prompt lookup."""
