"""Why each step drafted as much as it did: read off steps and, where one was kept, the planner's own account."""
