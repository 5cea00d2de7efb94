"""Where drafts come from: one technique per file."""
