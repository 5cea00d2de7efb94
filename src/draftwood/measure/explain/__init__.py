"""Explains why each step drafted as much as it did, from steps and the planner's record of its choice."""
