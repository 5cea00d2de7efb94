"""A server that speaks the OpenAI API."""
