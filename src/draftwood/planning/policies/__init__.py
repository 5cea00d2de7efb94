"""Reasons to draft less than a planner would, one per file."""
