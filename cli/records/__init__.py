"""`strandline produce` and `consume`: records from and to the terminal, files and pipes."""
