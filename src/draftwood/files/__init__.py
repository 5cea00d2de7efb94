"""Files of users and of ours: paths, whole-or-nothing writing, headers."""
