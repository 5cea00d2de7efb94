"""Cascades: a draft model that is itself a target, with drafters and a planner of its own."""
