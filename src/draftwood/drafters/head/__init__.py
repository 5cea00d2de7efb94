"""Drafter ``head``: a small trained layer drafts from the target's hidden states."""
