"""`strandline demo`: a leader dies before your eyes, and nothing is lost."""
