"""Writing: rows of a DataFrame become records of topics."""
