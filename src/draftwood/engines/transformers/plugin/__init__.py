"""Writes the text of a call of ``model.generate``: what the call asks for is done, or refused by name."""
