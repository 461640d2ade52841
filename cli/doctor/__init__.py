"""`strandline doctor`: what is wrong with a cluster, seen from here, with a remedy for each finding."""
