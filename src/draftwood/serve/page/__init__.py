"""The page on which a plain and a drafted answer race."""
