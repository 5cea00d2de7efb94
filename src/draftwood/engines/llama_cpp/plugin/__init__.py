"""Drafts inside llama-cpp-python, which reads the text and checks the drafts itself."""
