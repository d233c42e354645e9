"""Changes of the schema, in order; shipped with the package and applied when a server starts."""
