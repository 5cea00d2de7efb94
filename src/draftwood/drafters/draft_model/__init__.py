"""Drafters that ask a model: a smaller one, or a part or a cheaper copy of the target itself."""
