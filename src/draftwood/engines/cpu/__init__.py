"""The CPU engine: draftwood's own pass over quantised weights, exact to the last bit."""
