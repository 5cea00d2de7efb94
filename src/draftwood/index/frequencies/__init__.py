"""What followed each context of a text, and how often."""
