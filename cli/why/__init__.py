"""`strandline why`: what a partition waits for, and what was decided before."""
