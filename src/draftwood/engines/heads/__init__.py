"""Trained heads, as far as every engine has them: their files, their texts, the heads that come with draftwood."""
