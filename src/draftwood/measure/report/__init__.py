"""One page that shows what was measured: figures, coloured text, trees. Everything is in the file."""
