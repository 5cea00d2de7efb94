"""The ways in from Python: each builds target, drafters and planner, and calls the one loop."""
