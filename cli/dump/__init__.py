"""`strandline dump`: the bytes of log directories, explained."""
