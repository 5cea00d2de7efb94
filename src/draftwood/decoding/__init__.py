"""The loop that writes text, and what it needs: requests, sequences, draft sources, feedback, stopping."""
