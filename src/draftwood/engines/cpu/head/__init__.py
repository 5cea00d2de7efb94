"""Trained heads on the CPU engine."""
