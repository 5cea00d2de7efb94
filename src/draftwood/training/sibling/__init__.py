"""Training of a sibling: a model of a few of the target's layers, which drafts for it in any engine."""
