"""Real models: catalogue, fetching, finding, loading. Importing this imports neither torch nor transformers."""
