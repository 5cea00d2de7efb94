"""Profiles: measure what a pass costs on this machine, write it to a file, draw it."""
