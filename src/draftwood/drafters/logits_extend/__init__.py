"""Drafting from tokens that were nearly chosen a step ago."""
