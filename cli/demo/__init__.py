"""`strandline demo`: kills a leader under load, and shows that nothing is lost."""
