"""`strandline groups`: consumer groups, their members, their lag, and where they go on."""
