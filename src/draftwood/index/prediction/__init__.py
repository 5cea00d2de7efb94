"""Following an answer through expected texts."""
