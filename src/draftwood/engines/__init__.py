"""Targets, one folder or file per engine, and peers of the bench."""
