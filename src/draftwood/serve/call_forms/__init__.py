"""Forms in which models write calls of functions: a reader for each kind, and which one a template has."""
