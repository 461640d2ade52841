"""`strandline dump`: prints the files of log directories in readable form."""
