"""`strandline docs`: pages of the documentation that are generated from code."""
