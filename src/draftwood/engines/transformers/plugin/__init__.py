"""Inside ``model.generate``: transformers drives, we write. What its call says, honoured or refused."""
