"""`strandline verify`: load and faults against a cluster, then the verdict."""
