"""`strandline docs`: the pages that are generated from code."""
