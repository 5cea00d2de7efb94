"""Texts that follow a grammar: JSON of a schema, a regular expression, or a context-free grammar."""
